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

At each node, the sums over earlier times form a matrix Q_o M Q_iᵀ/N that is learned in training,
between orthonormal bases of the features and the gradients so far. The part of a new vector
orthogonal to its basis is neglected if it is below a tolerance; the error is of its square.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from largen.runs import Loss
from largen.theories.chains.normalized import LayerActivation, pull_back, slopes
from largen.theories.mean_field.deep.matrices.by_directions import (
    TOGETHER,
    Precision,
    Side,
    extend,
)
from largen.theories.mean_field.deep.matrices.row_buffers import combine, inner
from largen.theories.mean_field.engine.descent import moved
from largen.theories.mean_field.infinite_depth.depth_iteration import (
    extrapolate,
    integrate_over_depth,
)
from largen.theories.mean_field.infinite_depth.training_loop import (
    is_steady,
    loss_gradient,
    step_of,
)

ITERATIONS = 60


class NeuronModel(NamedTuple):
    """Static arguments: φ of the branches and of the read-out, loss, a sample's output shape."""

    phi: LayerActivation
    phi_out: LayerActivation
    loss: Loss
    output_shape: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """C."""
        return math.prod(self.output_shape)


class Moving(NamedTuple):
    """Trained parameters: a, w, the biases β of the blocks, the output's c, and M of each node."""

    fields: Float[Array, "direction n"]
    readout: Float[Array, "output n"]
    biases: Float[Array, "node n"]
    constant: Float[Array, " output"]
    change: Float[Array, "node gradient feature"]


class NeuronState(NamedTuple):
    """The state of training."""

    step: Int[Array, ""]  # number of steps made
    # params, velocity: trained parameters, and their momentum.
    params: Moving
    velocity: Moving
    # features, gradients: Q_i and Q_o at the nodes.
    features: Side
    gradients: Side
    # moved, pulled: h(τ) − h(0) of all samples, and g(τ) − g(1) of training samples, at the nodes,
    # at the last two steps.
    moved: Float[Array, "2 node sample n"]
    pulled: Float[Array, "2 node train n"]
    outputs: Float[Array, "time sample output"]  # f at every time so far


class NeuronConstants(NamedTuple):
    """The constants of training."""

    # fields, field_rate: F of all samples, and ρ of its directions.
    fields: Float[Array, "sample direction"]
    field_rate: Float[Array, " direction"]
    targets: Shaped[Array, "train *target"]  # y of training samples
    batches: Int[Array, "_ batch"] | None  # samples of each step; None for full batches
    # rise, whole: integrals over depth, see depth_grid.
    rise: Float[Array, "node node"]
    whole: Float[Array, " node"]
    block: Float[Array, "2"]  # ρσ² and ρ_bσ_b² of the maps in the blocks
    readout: Float[Array, "3"]  # σ and ρ of the read-out, and ρσ_b² of its bias
    # gamma, momentum, rates: γ₀, β, and η₀ of each step.
    gamma: Float[Array, ""]
    momentum: Float[Array, ""]
    rates: Float[Array, " step"]
    decay: Moving  # λ₀ of all trained parameters
    precision: Precision  # 1/N and the tolerance of directions
    close: Float[Array, ""]  # relative change at which an integral over depth counts as converged


class Ahead(NamedTuple):
    """A forward pass: h at the nodes, at both ends, and f."""

    h: Float[Array, "node sample n"]
    first: Float[Array, "sample n"]
    last: Float[Array, "sample n"]
    outputs: Float[Array, "sample output"]


class Back(NamedTuple):
    """A backward pass: g at the nodes and at both ends."""

    g: Float[Array, "node sample n"]
    first: Float[Array, "sample n"]
    last: Float[Array, "sample n"]


def forward(model: NeuronModel, state: NeuronState, constants: NeuronConstants) -> Ahead:
    """Return h and f of all samples."""
    params, weight = state.params, constants.precision.weight
    first = constants.fields @ params.fields

    def slope(m, h, asked):
        c = weight * inner(state.features.basis, m, model.phi(h), state.features.rank[m])
        rank = state.gradients.rank[m]
        drift = combine(state.gradients.basis, m, params.change[m] @ c, rank) + params.biases[m]
        return drift, asked

    guess = extrapolate(state.moved)
    rise = constants.rise, constants.whole
    h, last, _ = integrate_over_depth(slope, rise, first, guess, (), constants.close, ITERATIONS)
    last_features = model.phi_out(last)
    f = constants.readout[0] * weight * (last_features @ params.readout.T)
    return Ahead(h, first, last, f / constants.gamma + params.constant)


def backward(
    model: NeuronModel,
    state: NeuronState,
    constants: NeuronConstants,
    h: Float[Array, "node k n"],
    last: Float[Array, "k n"],
    z: Float[Array, "k n"],
    guess: Float[Array, "node k n"] | None = None,
) -> Back:
    """Return g of some samples, given the gradient behind the read-out."""
    weight = constants.precision.weight
    linearised = slopes(model.phi, h)

    def slope(m, g, asked):
        d = weight * inner(state.gradients.basis, m, g, state.gradients.rank[m])
        rank = state.features.rank[m]
        back = combine(state.features.basis, m, state.params.change[m].T @ d, rank)
        at = jax.tree.map(lambda part: part[m], linearised)
        return pull_back(model.phi, at, back), asked

    end = pull_back(model.phi_out, slopes(model.phi_out, last), z)
    fall = constants.whole - constants.rise, constants.whole
    guess = jnp.zeros_like(h) if guess is None else guess
    g, first, _ = integrate_over_depth(slope, fall, end, guess, (), constants.close, ITERATIONS)
    return Back(g, first, end)


def descend(model: NeuronModel, state: NeuronState, constants: NeuronConstants) -> NeuronState:
    """Make a step of gradient descent."""
    ahead = forward(model, state, constants)
    batch, delta, z, pull = loss_gradient(model, state, constants, ahead.outputs)
    h, last = ahead.h[:, batch], ahead.last[batch]
    steady = is_steady(model, constants)
    guess = extrapolate(state.pulled) if steady else None
    back = backward(model, state, constants, h, last, z, guess)
    features, c = _extend(state.features, model.phi(h), constants)
    gradients, d = _extend(state.gradients, back.g, constants)

    gamma = constants.gamma
    seen, pulled = constants.fields[batch], pull[:, None]
    gradient = Moving(
        fields=gamma * constants.field_rate[:, None] * (seen.T @ (pulled * back.first)),
        readout=gamma
        * (constants.readout[0] * constants.readout[1])
        * (delta.T @ model.phi_out(last)),
        biases=gamma * constants.block[1] * jnp.einsum("k,mkn->mn", pull, back.g),
        constant=constants.readout[2] * delta.sum(0),
        change=gamma * constants.block[0] * jnp.einsum("mgk,mfk->mgf", d * pull, c),
    )
    params, velocity = moved(state.params, state.velocity, gradient, step_of(state, constants))
    return NeuronState(
        step=state.step + 1,
        params=params,
        velocity=velocity,
        features=features,
        gradients=gradients,
        moved=jnp.stack([ahead.h - ahead.first, state.moved[0]]),
        pulled=jnp.stack([back.g - back.last, state.pulled[0]]) if steady else state.pulled,
        outputs=lax.dynamic_update_index_in_dim(state.outputs, ahead.outputs, state.step, 0),
    )


def _extend(side: Side, x: Float[Array, "node k n"], constants: NeuronConstants):
    """Add new directions of x to the bases of all nodes, and return the coordinates of x."""
    nothing = jnp.zeros(())

    def fresh_vectors(far, l, fills, rank, draws):
        return jnp.zeros((len(fills), 0), x.dtype), draws

    def at(m, carry):
        side, found = carry
        side, c, _ = extend(side, side, m, x[m], nothing, fresh_vectors, constants.precision)
        return side, found.at[m].set(c)

    found = jnp.zeros((len(x), side.basis.shape[1], x.shape[1]), x.dtype)
    return lax.fori_loop(0, jnp.count_nonzero(constants.whole), at, (side, found))


def has_room(state: NeuronState, most: int):
    """Whether all bases have room for this number of further directions."""
    room = jnp.asarray(True)
    for side in (state.features, state.gradients):
        room &= jnp.all(side.rank + most + TOGETHER <= side.basis.shape[1])
    return room
