r"""Neurons of a residual network of infinite depth without noise, as functions of depth.

With branches L^(−α)V φ(h), α > ½ and one matrix V = σW in each block, whose rate is multiplied by
L^(2α−1), noise and responses vanish as L^(1−2α). The fields of a neuron are then deterministic
functions of its read-in a and its read-out w (Bordelon et al., Depthwise hyperparameter transfer in
residual networks, give the limit L⁻¹ in App. M, without equations):

    ∂h/∂τ = ρσ² Σ_{s<t,ν} k(t, s) Δ_ν(s) Φ(τ; t, s) g(τ, s) + β(τ, t),   h(0) = F·a
   −∂g/∂τ = ρσ² φ'(h) Σ_{s<t,ν} k(t, s) Δ_ν(s) G(τ; t, s) φ(h(τ, s)),    g(1) = φ_o'(h(1)) w
    β = ρ_b σ_b² Σ k Δ g,   f = ⟨w φ_o(h(1))⟩/γ₀ + c

with k(t, s) = κ for plain gradient descent. If the branches read the normalised stream, h̃ is in
place of h in φ and Φ, and what is behind φ' is pulled back through the normalisation
(``chains/normalized``), with averages over neurons at τ. Fields are stored at Gauss nodes of τ; the
integrals over depth are iterated to convergence, starting from those of the last step.

In blocks of several matrices at α = 1 the inner neurons are stochastic. The mean of a block changes
the stream, the noise of a single block does not. With branches L^(−1) V^K φ_{K−1}(u^{K−1}),
u¹ = V¹φ₀(h), and all rates multiplied by L, the inner neurons u of a block at the depth τ are
Gaussian at initialisation, and learn at order one. For K = 2

    u(τ, t) = χ + Σ_{s<t} k Δ Φ(τ; t, s) g̃(τ, s),           χ ~ GP(0, Φ),   Φ = ⟨φ(h)φ(h)⟩
    z(τ, t) = ξ + Σ_{s<t} k Δ G(τ; t, s) φ(u(τ, s)),         ξ ~ GP(0, G),   g̃ = φ'(u) z
    ∂h/∂τ = Σ_{s<t} [⟨∂φ(u(t))/∂ξ(s)⟩ + k Δ ⟨φ(u)φ(u)⟩] g(τ, s)
   −∂g/∂τ = φ'(h) Σ_{s≤t} [⟨∂g̃(t)/∂χ(s)⟩ + k Δ ⟨g̃g̃⟩] φ(h(τ, s))

Each Gauss node of τ has random matrices, represented by their images of the directions to which
they were applied (``deep/matrices/by_directions``). Images in the stream are zero, so that only the
responses and the change by training enter it. Directions are added at each iteration over depth,
so that their images exist before the iteration has converged. A single matrix has no images, and
is what training has added: the directions of training samples are added after the iteration, and
the part of a new vector orthogonal to its basis is neglected if it is below a tolerance; the error
is of its square.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from largen.runs import Loss
from largen.theories.chains.normalized import LayerActivation, pull_back, slopes
from largen.theories.mean_field.deep.matrices.by_directions import (
    TOGETHER,
    Matrices,
    Precision,
    Share,
    extend,
)
from largen.theories.mean_field.deep.matrices.fresh_vectors import gaussian
from largen.theories.mean_field.deep.matrices.row_buffers import inner as products
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

# Most iterations over depth, for blocks of one matrix and of several, which add directions in each.
ITERATIONS, STOCHASTIC_ITERATIONS = 60, 12
# Directions that a step may add to inner matrices, as a multiple of the number of samples.
ASKED = 4


class BlockModel(NamedTuple):
    """Static arguments: φ in front of each of the K matrices and of the read-out, and the loss."""

    phi: tuple[LayerActivation, ...]
    phi_out: LayerActivation
    loss: Loss
    output_shape: tuple[int, ...]
    sample_neurons: int = 0  # the number of neurons whose h and g are recorded

    @property
    def outputs(self) -> int:
        """C."""
        return math.prod(self.output_shape)

    @property
    def maps(self) -> int:
        """K."""
        return len(self.phi)

    @property
    def iterations(self) -> int:
        """The most iterations over depth."""
        return ITERATIONS if self.maps == 1 else STOCHASTIC_ITERATIONS


class Moving(NamedTuple):
    """Trained vectors and scales: a, w, b of each map at each node, c, and the scales s.

    The matrices are V = s V(0) + Q_o M Q_iᵀ/N, where weight decay makes s less than 1.
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
    size, matrices, product = len(first), state.matrices, partial(_product, model, state, constants)
    inner = jnp.zeros((matrices.number, *first.shape), first.dtype)
    coordinates = jnp.zeros((matrices.number, matrices.change.shape[2], size), first.dtype)

    def slope(m, h, asked):
        matrices, key, inner, coordinates = asked
        y = h
        for k, phi in enumerate(model.phi):
            l = m * model.maps + k
            rule = _muted if k == model.maps - 1 else _fresh(constants, l)
            matrices, y, c, key = product(matrices, l, phi(y), key, rule)
            y = constants.std[k] * y + constants.bias_std[k] * params.biases[l]
            inner, coordinates = inner.at[l].set(y), coordinates.at[l].set(c)
        return y, (matrices, key, inner, coordinates)

    asked = matrices, state.key, inner, coordinates
    guess = extrapolate(state.moved)
    rise = constants.rise, constants.whole
    h, last, asked = integrate_over_depth(
        slope, rise, first, guess, asked, constants.close, model.iterations
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
    matrices, product = state.matrices, partial(_product, model, state, constants)
    coordinates = jnp.zeros((matrices.number, matrices.change.shape[1], len(z)), z.dtype)

    def slope(m, g, asked):
        matrices, key, inner, coordinates = asked
        for k in reversed(range(model.maps)):
            l = m * model.maps + k
            inner = inner.at[l].set(g)
            rule = _fresh(constants, l - 1) if k else _muted
            matrices, y, d, key = product(matrices, l, g, key, rule, transposed=True)
            coordinates = coordinates.at[l].set(d)
            below = u[l - 1] if k else h[m]
            g = pull_back(model.phi[k], slopes(model.phi[k], below), constants.std[k] * y)
        return g, (matrices, key, inner, coordinates)

    end = pull_back(model.phi_out, slopes(model.phi_out, last), z)
    guess = jnp.zeros_like(h) if guess is None else guess
    asked = matrices, state.key, jnp.zeros_like(u), coordinates
    fall = constants.whole - constants.rise, constants.whole
    g, first, asked = integrate_over_depth(
        slope, fall, end, guess, asked, constants.close, model.iterations
    )
    matrices, key, inner, coordinates = asked
    state = state._replace(matrices=matrices, key=key)
    return state, Back(g, first, end, inner, coordinates)


def _product(
    model: BlockModel,
    state: BlockState,
    constants: BlockConstants,
    matrices: Matrices,
    l: Any,
    x: Float[Array, "k n"],
    key: Any,
    rule: Any,
    *,
    transposed: bool = False,
) -> tuple[Matrices, Float[Array, "k n"], Float[Array, "capacity k"], Any]:
    """Return V x of matrix l, or Vᵀ x, as :meth:`Matrices.apply` does.

    A single matrix of a block is without V(0), and gets new directions after the iteration.
    """
    precision = constants.precision
    if model.maps > 1:
        share = Share(state.params.scale[l], None)
        return matrices.apply(l, x, key, rule, precision, share, transposed=transposed)
    near = matrices.outputs if transposed else matrices.inputs
    c = precision.weight * products(near.basis, l, x, near.rank[l])
    return matrices, matrices.added(l, c, transposed=transposed), c, key


def _extended(
    matrices: Matrices,
    x: Float[Array, "node k n"],
    g: Float[Array, "node k n"],
    constants: BlockConstants,
) -> tuple[Matrices, Float[Array, "node feature k"], Float[Array, "node gradient k"]]:
    """Return single matrices with new directions of features and gradients, and coordinates."""

    def no_images(far, l, fills, rank, draws):
        return jnp.zeros((len(fills), 0), x.dtype), draws

    def at(m, carry):
        inputs, outputs, c, d = carry
        rule = no_images, constants.precision
        inputs, one, _ = extend(inputs, outputs, m, x[m], (), *rule)
        outputs, other, _ = extend(outputs, inputs, m, g[m], (), *rule)
        return inputs, outputs, c.at[m].set(one), d.at[m].set(other)

    nodes, rows, across = matrices.change.shape
    coordinates = (jnp.zeros((nodes, size, x.shape[1]), x.dtype) for size in (across, rows))
    start = matrices.inputs, matrices.outputs, *coordinates
    inputs, outputs, c, d = lax.fori_loop(0, jnp.count_nonzero(constants.whole), at, start)
    return matrices._replace(inputs=inputs, outputs=outputs), c, d


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

    matrices, c, d = state.matrices, ahead.coordinates[:, :, batch], back.coordinates
    if model.maps == 1:
        matrices, c, d = _extended(matrices, model.phi[0](ahead.h[:, batch]), back.g, constants)

    step, gamma = step_of(state, constants), constants.gamma
    everywhere = jnp.tile(jnp.arange(model.maps), len(constants.whole))
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
    rate = gamma * constants.rate[everywhere, None, None]
    learnt = rate * jnp.einsum("lgk,lfk->lgf", d * pull, c)
    matrices = moved_matrices(matrices, learnt, constants.decay.scale, step)
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


def room_for(maps: int, samples: int, batch: int) -> tuple[int, int]:
    """Return the numbers of directions for which bases must have room before a step."""
    if maps == 1:
        return batch + TOGETHER, batch + TOGETHER
    return ASKED * (samples + TOGETHER), ASKED * (batch + TOGETHER)
