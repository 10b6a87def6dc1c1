r"""Blocks of several matrices at α = 1: full mean-field sites at each depth of a quiet stream.

The stream of neurons does not feel the noise of a single block, but its mean: with branches
L^(−1) V^K φ_{K−1}(u^{K−1}), u¹ = V¹φ₀(h), and all rates multiplied by L, a block's own neurons u
at the depth τ are Gaussian at first, and learn at order one. For K = 2

    u(τ, t) = χ + Σ_{s<t} k Δ Φ(τ; t, s) g̃(τ, s),           χ ~ GP(0, Φ),   Φ = ⟨φ(h)φ(h)⟩
    z(τ, t) = ξ + Σ_{s<t} k Δ G(τ; t, s) φ(u(τ, s)),         ξ ~ GP(0, G),   g̃ = φ'(u) z
    ∂h/∂τ = Σ_{s<t} [⟨∂φ(u(t))/∂ξ(s)⟩ + k Δ ⟨φ(u)φ(u)⟩] g(τ, s)
   −∂g/∂τ = φ'(h) Σ_{s≤t} [⟨∂g̃(t)/∂χ(s)⟩ + k Δ ⟨g̃g̃⟩] φ(h(τ, s))

At Gauss's nodes of τ there are random matrices that are known by the directions in which they were
asked (``deep/matrices/by_directions``), with images of zero for answers into the stream: what
is left of these are the responses and the change by training. A direction is asked at each
iteration over depth, so that images exist before it has converged.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from largen.expectations import ActivationFunction
from largen.runs import Loss
from largen.theories.mean_field.deep.matrices.by_directions import TOGETHER, Matrices, Precision
from largen.theories.mean_field.deep.matrices.fresh_vectors import gaussian
from largen.theories.mean_field.infinite_depth.depth_iteration import continued, integrated
from largen.theories.mean_field.infinite_depth.training_loop import (
    descended,
    is_steady,
    pulled_by_loss,
)

ITERATIONS = 12
ASKED = 4  # how many times the samples a step may add directions


class Model(NamedTuple):
    """What is compiled in: φ in front of each of the K matrices, and of the read-out, and the loss.

    ``nodes`` are those of depth.
    """

    phi: tuple[ActivationFunction, ...]
    phi_out: ActivationFunction
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
    """What trains beside the matrices: a, w, b of each map at each node, c, and the scales s.

    V = s (V(0) + Q_o M Q_iᵀ/N), where decay makes s less than 1.
    """

    fields: Float[Array, "direction n"]
    readout: Float[Array, "output n"]
    biases: Float[Array, "matrix n"]
    constant: Float[Array, " output"]
    scale: Float[Array, " matrix"]


class State(NamedTuple):
    """Everything that changes; matrix m·K + k is that of map k at node m.

    Attributes
    ----------
    step
        How many steps have been made.
    params, velocity
        What trains, and its momentum.
    matrices
        With their changes.
    key
        Of images to come.
    moved, pulled
        h(τ) − h(0) of all samples, and g(τ) − g(1) of training samples, at the last two steps.
    outputs
        f at every time so far.
    """

    step: Int[Array, ""]
    params: Moving
    velocity: Moving
    matrices: Matrices
    key: Any
    moved: Float[Array, "2 node sample n"]
    pulled: Float[Array, "2 node train n"]
    outputs: Float[Array, "time sample output"]


class Constants(NamedTuple):
    """What stands still.

    Attributes
    ----------
    fields, field_rate
        F, of all samples, and ρ of its directions.
    targets, batches
        y of training samples, and samples of each step; None for full batches.
    rise, whole
        Integrals over depth, see ``depth_grid``.
    anchors
        Images of a block's neurons at initialisation, orthonormal: those of the layer behind
        each matrix but the last, ``(matrix, row, n)``.
    std, rate, bias_std, bias_rate
        σ, ρσ, σ_b and ρσ_b of the K maps.
    readout
        σ, ρ, and ρσ_b² of its bias.
    gamma, momentum, rates, decay
        γ₀, β, η₀ of each step, λ₀ of everything that trains.
    precision
        1/N and the tolerance of directions.
    close
        When an integral over depth stands still, relative.
    """

    fields: Float[Array, "sample direction"]
    field_rate: Float[Array, " direction"]
    targets: Shaped[Array, "train *target"]
    batches: Int[Array, "_ batch"] | None
    rise: Float[Array, "node node"]
    whole: Float[Array, " node"]
    anchors: Float[Array, "matrix row n"]
    std: Float[Array, " map"]
    rate: Float[Array, " map"]
    bias_std: Float[Array, " map"]
    bias_rate: Float[Array, " map"]
    readout: Float[Array, "3"]
    gamma: Float[Array, ""]
    momentum: Float[Array, ""]
    rates: Float[Array, " step"]
    decay: Moving
    precision: Precision
    close: Float[Array, ""]


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


def forward(model: Model, state: State, constants: Constants) -> tuple[State, Ahead]:
    """Return h, u and f of all samples, and the state with what the matrices were asked."""
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
    guess = continued(state.moved)
    rise = constants.rise, constants.whole
    h, last, asked = integrated(slope, rise, first, guess, asked, constants.close, ITERATIONS)
    x = model.phi_out(last)
    f = constants.readout[0] * constants.precision.weight * (x @ params.readout.T)
    f = f / constants.gamma + params.constant
    matrices, key, inner, coordinates = asked
    state = state._replace(matrices=matrices, key=key)
    return state, Ahead(h, first, last, inner, coordinates, f)


def backward(
    model: Model,
    state: State,
    constants: Constants,
    ahead: Ahead,
    batch: Int[Array, " k"],
    z: Float[Array, "k n"],
    guess: Float[Array, "node k n"] | None = None,
) -> tuple[State, Back]:
    """Return gradients of some samples from what the read-out returns."""
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
            slopes = model.phi[k].derivative(below)
            g = slopes * (constants.std[k] * params.scale[l] * y)
        return g, (matrices, key, inner, coordinates)

    end = model.phi_out.derivative(last) * z
    guess = jnp.zeros_like(h) if guess is None else guess
    asked = matrices, state.key, jnp.zeros_like(u), coordinates
    fall = constants.whole - constants.rise, constants.whole
    g, first, asked = integrated(slope, fall, end, guess, asked, constants.close, ITERATIONS)
    matrices, key, inner, coordinates = asked
    state = state._replace(matrices=matrices, key=key)
    return state, Back(g, first, end, inner, coordinates)


def _fresh(constants: Constants, l):
    """Return the rule for images of the neurons behind matrix l, within a block.

    They have unit norm, as in the limit; what is orthogonal to a basis has less in a network.
    """
    weight = constants.precision.weight
    rule = gaussian(constants.anchors[l], weight)

    def fresh_vectors(far, l, fills, rank, key):
        xi, key = rule(far, l, fills, rank, key)
        norm = weight * jnp.sum(xi**2, 1, keepdims=True)
        return xi / jnp.sqrt(jnp.where(fills[:, None], norm, 1)), key

    return fresh_vectors


def _muted(far, l, fills, rank, key):
    """Return no images, for those of the stream."""
    return jnp.zeros((len(fills), far.basis.shape[2]), far.basis.dtype), key


def stepped(model: Model, state: State, constants: Constants) -> State:
    """Make a step of gradient descent."""
    state, ahead = forward(model, state, constants)
    batch, delta, z, pull = pulled_by_loss(model, state, constants, ahead.outputs)
    steady = is_steady(model, constants)
    guess = continued(state.pulled) if steady else None
    state, back = backward(model, state, constants, ahead, batch, z, guess)

    lr = constants.rates[state.step]
    kappa = lr * constants.gamma
    everywhere = jnp.tile(jnp.arange(model.maps), model.nodes)
    out = kappa * constants.readout[0] * constants.readout[1]
    change = Moving(
        fields=kappa
        * constants.field_rate[:, None]
        * (constants.fields[batch].T @ (pull[:, None] * back.first)),
        readout=out * (delta.T @ model.phi_out(ahead.last[batch])),
        biases=kappa
        * constants.bias_rate[everywhere, None]
        * jnp.einsum("k,lkn->ln", pull, back.inner),
        constant=lr * constants.readout[2] * delta.sum(0),
        scale=jnp.zeros_like(state.params.scale),
    )
    params, velocity = descended(state, change, constants)
    learnt = jnp.einsum("lgk,lfk->lgf", back.coordinates * pull, ahead.coordinates[:, :, batch])
    learnt = kappa * constants.rate[everywhere, None, None] * learnt
    before, after = (part.scale[:, None, None] for part in (state.params, params))
    # The velocity of V is U beside that of s: M ← M + U/s, referred to the new s.
    assert state.matrices.velocity is not None
    learnt = learnt + constants.momentum * state.matrices.velocity
    matrices = state.matrices._replace(
        change=state.matrices.change + learnt / after, velocity=learnt * (before / after)
    )
    return State(
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
    """Return for how many directions there must be room before a step."""
    return ASKED * (columns + TOGETHER)


def has_room(state: State, columns: int, trained: int):
    """Whether all bases can take the directions of another step."""
    inputs, outputs = state.matrices.inputs, state.matrices.outputs
    return jnp.all(inputs.rank + room_for(columns) <= inputs.basis.shape[1]) & jnp.all(
        outputs.rank + room_for(trained) <= outputs.basis.shape[1]
    )
