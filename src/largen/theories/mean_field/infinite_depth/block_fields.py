r"""Blocks of several matrices at α = 1: stochastic neurons within blocks, a deterministic stream.

The mean of a block changes the stream, the noise of a single block does not. With branches
L^(−1) V^K φ_{K−1}(u^{K−1}), u¹ = V¹φ₀(h), and all rates multiplied by L, the inner neurons u of a
block at the depth τ are Gaussian at initialisation, and learn at order one. For K = 2

    u(τ, t) = χ + Σ_{s<t} k Δ Φ(τ; t, s) g̃(τ, s),           χ ~ GP(0, Φ),   Φ = ⟨φ(h)φ(h)⟩
    z(τ, t) = ξ + Σ_{s<t} k Δ G(τ; t, s) φ(u(τ, s)),         ξ ~ GP(0, G),   g̃ = φ'(u) z
    ∂h/∂τ = Σ_{s<t} [⟨∂φ(u(t))/∂ξ(s)⟩ + k Δ ⟨φ(u)φ(u)⟩] g(τ, s)
   −∂g/∂τ = φ'(h) Σ_{s≤t} [⟨∂g̃(t)/∂χ(s)⟩ + k Δ ⟨g̃g̃⟩] φ(h(τ, s))

Each Gauss node of τ has random matrices, represented by their images of the directions to which
they were applied (``deep/matrices/by_directions``). Images in the stream are zero, so that only the
responses and the change by training enter it. Directions are added at each iteration over depth,
so that their images exist before the iteration has converged.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from largen.runs import Loss
from largen.theories.chains.normalized import LayerActivation, pull_back, slopes
from largen.theories.mean_field.deep.matrices.by_directions import TOGETHER, Matrices, Precision
from largen.theories.mean_field.deep.matrices.fresh_vectors import gaussian
from largen.theories.mean_field.engine.descent import moved, moved_matrices
from largen.theories.mean_field.infinite_depth.depth_iteration import (
    extrapolate,
    integrate_over_depth,
)
from largen.theories.mean_field.infinite_depth.training_loop import (
    is_steady,
    loss_gradient,
    step_of,
)

ITERATIONS = 12
ASKED = 4  # directions that a step may add, as a multiple of the number of samples


class BlockModel(NamedTuple):
    """Static arguments: φ in front of each of the K matrices and of the read-out, and the loss.

    ``nodes`` is the number of nodes of depth.
    """

    phi: tuple[LayerActivation, ...]
    phi_out: LayerActivation
    loss: Loss
    output_shape: tuple[int, ...]
    nodes: int

    @property
    def outputs(self) -> int:
        """C."""
        return math.prod(self.output_shape)

    @property
    def maps(self) -> int:
        """K."""
        return len(self.phi)


class Moving(NamedTuple):
    """Trained vectors and scales: a, w, b of each map at each node, c, and the scales s.

    The matrices are V = s (V(0) + Q_o M Q_iᵀ/N), where weight decay makes s less than 1.
    """

    fields: Float[Array, "direction n"]
    readout: Float[Array, "output n"]
    biases: Float[Array, "matrix n"]
    constant: Float[Array, " output"]
    scale: Float[Array, " matrix"]


class BlockState(NamedTuple):
    """The state of training; matrix m·K + k is that of map k at node m."""

    step: Int[Array, ""]  # number of steps made
    # params, velocity: trained parameters, and their momentum.
    params: Moving
    velocity: Moving
    matrices: Matrices  # the random matrices and their changes by training
    key: Any  # random key of images that are drawn later
    # moved, pulled: h(τ) − h(0) of all samples, and g(τ) − g(1) of training samples, at the last
    # two steps.
    moved: Float[Array, "2 node sample n"]
    pulled: Float[Array, "2 node train n"]
    outputs: Float[Array, "time sample output"]  # f at every time so far


class BlockConstants(NamedTuple):
    """The constants of training."""

    # fields, field_rate: F of all samples, and ρ of its directions.
    fields: Float[Array, "sample direction"]
    field_rate: Float[Array, " direction"]
    # targets, batches: y of training samples, and samples of each step; None for full batches.
    targets: Shaped[Array, "train *target"]
    batches: Int[Array, "_ batch"] | None
    # rise, whole: integrals over depth, see depth_grid.
    rise: Float[Array, "node node"]
    whole: Float[Array, " node"]
    # Orthonormal images at initialisation of the layer behind each matrix of a block but the last,
    # (matrix, row, n).
    anchors: Float[Array, "matrix row n"]
    # std, rate, bias_std, bias_rate: σ, ρσ, σ_b and ρσ_b of the K maps.
    std: Float[Array, " map"]
    rate: Float[Array, " map"]
    bias_std: Float[Array, " map"]
    bias_rate: Float[Array, " map"]
    readout: Float[Array, "3"]  # σ and ρ of the read-out, and ρσ_b² of its bias
    # gamma, momentum, rates, decay: γ₀, β, η₀ of each step, λ₀ of all trained parameters.
    gamma: Float[Array, ""]
    momentum: Float[Array, ""]
    rates: Float[Array, " step"]
    decay: Moving
    precision: Precision  # 1/N and the tolerance of directions
    close: Float[Array, ""]  # relative change at which an integral over depth counts as converged


class Ahead(NamedTuple):
    """A forward pass: h at the nodes and both ends, u, coordinates in the bases, and f."""

    h: Float[Array, "node sample n"]
    first: Float[Array, "sample n"]
    last: Float[Array, "sample n"]
    inner: Float[Array, "matrix sample n"]
    coordinates: Float[Array, "matrix feature sample"]
    outputs: Float[Array, "sample output"]


class Back(NamedTuple):
    """A backward pass: g at the nodes and both ends, and gradients behind each map."""

    g: Float[Array, "node sample n"]
    first: Float[Array, "sample n"]
    last: Float[Array, "sample n"]
    inner: Float[Array, "matrix sample n"]
    coordinates: Float[Array, "matrix gradient sample"]


def forward(
    model: BlockModel, state: BlockState, constants: BlockConstants
) -> tuple[BlockState, Ahead]:
    """Return h, u and f of all samples, and the state with the new directions of the matrices."""
    params = state.params
    first = constants.fields @ params.fields
    size, matrices = len(first), state.matrices
    inner = jnp.zeros((matrices.number, *first.shape), first.dtype)
    coordinates = jnp.zeros((matrices.number, matrices.change.shape[2], size), first.dtype)

    def slope(m, h, asked):
        matrices, key, inner, coordinates = asked
        y = h
        for k, phi in enumerate(model.phi):
            l = m * model.maps + k
            rule = _muted if k == model.maps - 1 else _fresh(constants, l)
            matrices, y, c, key = matrices.apply(l, phi(y), key, rule, constants.precision)
            y = constants.std[k] * params.scale[l] * y + constants.bias_std[k] * params.biases[l]
            inner, coordinates = inner.at[l].set(y), coordinates.at[l].set(c)
        return y, (matrices, key, inner, coordinates)

    asked = matrices, state.key, inner, coordinates
    guess = extrapolate(state.moved)
    rise = constants.rise, constants.whole
    h, last, asked = integrate_over_depth(
        slope, rise, first, guess, asked, constants.close, ITERATIONS
    )
    x = model.phi_out(last)
    f = constants.readout[0] * constants.precision.weight * (x @ params.readout.T)
    f = f / constants.gamma + params.constant
    matrices, key, inner, coordinates = asked
    state = state._replace(matrices=matrices, key=key)
    return state, Ahead(h, first, last, inner, coordinates, f)


def backward(
    model: BlockModel,
    state: BlockState,
    constants: BlockConstants,
    ahead: Ahead,
    batch: Any,
    z: Float[Array, "k n"],
    guess: Float[Array, "node k n"] | None = None,
) -> tuple[BlockState, Back]:
    """Return gradients of some samples, given those behind the read-out."""
    h, u, last = ahead.h[:, batch], ahead.inner[:, batch], ahead.last[batch]
    params, matrices = state.params, state.matrices
    coordinates = jnp.zeros((matrices.number, matrices.change.shape[1], len(z)), z.dtype)

    def slope(m, g, asked):
        matrices, key, inner, coordinates = asked
        for k in reversed(range(model.maps)):
            l = m * model.maps + k
            inner = inner.at[l].set(g)
            rule = _fresh(constants, l - 1) if k else _muted
            matrices, y, d, key = matrices.apply(
                l, g, key, rule, constants.precision, transposed=True
            )
            coordinates = coordinates.at[l].set(d)
            below = u[l - 1] if k else h[m]
            z = constants.std[k] * params.scale[l] * y
            g = pull_back(model.phi[k], slopes(model.phi[k], below), z)
        return g, (matrices, key, inner, coordinates)

    end = pull_back(model.phi_out, slopes(model.phi_out, last), z)
    guess = jnp.zeros_like(h) if guess is None else guess
    asked = matrices, state.key, jnp.zeros_like(u), coordinates
    fall = constants.whole - constants.rise, constants.whole
    g, first, asked = integrate_over_depth(
        slope, fall, end, guess, asked, constants.close, ITERATIONS
    )
    matrices, key, inner, coordinates = asked
    state = state._replace(matrices=matrices, key=key)
    return state, Back(g, first, end, inner, coordinates)


def _fresh(constants: BlockConstants, l):
    """Return the rule for images of the neurons behind matrix l, within a block.

    Images have unit norm, as in the limit; in a finite network, the part orthogonal to a basis has
    a smaller norm.
    """
    weight = constants.precision.weight
    rule = gaussian(constants.anchors[l], weight)

    def fresh_vectors(far, l, fills, rank, key):
        xi, key = rule(far, l, fills, rank, key)
        norm = weight * jnp.sum(xi**2, 1, keepdims=True)
        return xi / jnp.sqrt(jnp.where(fills[:, None], norm, 1)), key

    return fresh_vectors


def _muted(far, l, fills, rank, key):
    """Return images of zero, for neurons of the stream."""
    return jnp.zeros((len(fills), far.basis.shape[2]), far.basis.dtype), key


def descend(model: BlockModel, state: BlockState, constants: BlockConstants) -> BlockState:
    """Make a step of gradient descent."""
    state, ahead = forward(model, state, constants)
    batch, delta, z, pull = loss_gradient(model, state, constants, ahead.outputs)
    steady = is_steady(model, constants)
    guess = extrapolate(state.pulled) if steady else None
    state, back = backward(model, state, constants, ahead, batch, z, guess)

    step, gamma = step_of(state, constants), constants.gamma
    everywhere = jnp.tile(jnp.arange(model.maps), model.nodes)
    out = gamma * constants.readout[0] * constants.readout[1]
    gradient = Moving(
        fields=gamma
        * constants.field_rate[:, None]
        * (constants.fields[batch].T @ (pull[:, None] * back.first)),
        readout=out * (delta.T @ model.phi_out(ahead.last[batch])),
        biases=gamma
        * constants.bias_rate[everywhere, None]
        * jnp.einsum("k,lkn->ln", pull, back.inner),
        constant=constants.readout[2] * delta.sum(0),
        scale=jnp.zeros_like(state.params.scale),
    )
    params, velocity = moved(state.params, state.velocity, gradient, step)
    learnt = jnp.einsum("lgk,lfk->lgf", back.coordinates * pull, ahead.coordinates[:, :, batch])
    changed = moved_matrices(
        state.matrices.change,
        state.matrices.velocity,
        gamma * constants.rate[everywhere, None, None] * learnt,
        (state.params.scale, params.scale),
        step,
    )
    matrices = state.matrices._replace(change=changed[0], velocity=changed[1])
    return BlockState(
        step=state.step + 1,
        params=params,
        velocity=velocity,
        matrices=matrices,
        key=state.key,
        moved=jnp.stack([ahead.h - ahead.first, state.moved[0]]),
        pulled=jnp.stack([back.g - back.last, state.pulled[0]]) if steady else state.pulled,
        outputs=lax.dynamic_update_index_in_dim(state.outputs, ahead.outputs, state.step, 0),
    )


def room_for(columns: int) -> int:
    """Return the number of directions for which bases must have room before a step."""
    return ASKED * (columns + TOGETHER)


def has_room(state: BlockState, columns: int, trained: int):
    """Whether all bases have room for the directions of another step."""
    inputs, outputs = state.matrices.inputs, state.matrices.outputs
    return jnp.all(inputs.rank + room_for(columns) <= inputs.basis.shape[1]) & jnp.all(
        outputs.rank + room_for(trained) <= outputs.basis.shape[1]
    )
