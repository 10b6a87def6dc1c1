"""The causal sweep: training at infinite width, step after step.

Everything on the right-hand sides of the mean-field equations at a time is known from earlier
times (Pehlevan and Bordelon's lecture notes, (65)): within a step

    h¹, …, hᴸ    f    Δ    zᴸ, …, z¹

follow from one another as in a network, with random matrices in place of W, and then everything
that trains makes its step, with κ = η₀γ₀/P:

    M += κ (ρσ) d diag(Δ) cᵀ,   w += κ (ρσ) Σ_μ Δ_μ φ(hᴸ_μ),   a += κ ρ Σ_μ Δ_μ g¹_μ F_μ.

The notes' (65) integrates df/dt = (η₀/P) KΔ; at finite step size f = ⟨zᴸφ(hᴸ)⟩/γ₀ is right.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from largen.dmft.deep.innovations import gaussian, unit_vectors
from largen.dmft.deep.matrix import Matrix, backward, forward
from largen.dmft.deep.state import Constants, Model, Moving, State, has_room

ESCAPED = 1e6  # outputs beyond this many times the size of the targets have diverged


class Passed(NamedTuple):
    """What a forward pass leaves behind.

    Attributes
    ----------
    h, features
        hˡ and φ(hˡ) of every hidden layer.
    coordinates
        c of φ(hˡ) in the basis of the matrix behind it.
    outputs
        f.
    """

    h: tuple[Float[Array, "sample n"], ...]
    features: tuple[Float[Array, "sample n"], ...]
    coordinates: tuple[Float[Array, "_ sample"], ...]
    outputs: Float[Array, "sample output"]


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def sweep(model: Model, state: State, constants: Constants, stop) -> State:
    """Train until a step, or until a basis is full or the outputs have escaped."""
    columns, samples = constants.frozen_kernel.shape
    if constants.batches is not None:
        samples = constants.batches.shape[1]

    most = ESCAPED * (1 + jnp.abs(constants.targets).max())

    def goes_on(state: State):
        last = state.outputs[jnp.maximum(state.step - 1, 0)]
        room = has_room(state, columns, samples, model)
        bounded = (state.step == 0) | jnp.all(jnp.abs(last) < most)
        return (state.step < stop) & room & bounded

    return lax.while_loop(goes_on, lambda state: _step(model, state, constants), state)


def forward_pass(model: Model, state: State, constants: Constants) -> tuple[State, Passed]:
    """Return f and all that leads to it, and the state with what the matrices learnt of it."""
    params, precision = state.params, constants.precision
    matrices, draws = list(state.matrices), list(state.draws)
    h = constants.fields @ params.fields
    hs, features, coordinates = [h], [model.phi[0](h)], []
    for l, matrix in enumerate(matrices):
        rule = _rule(model, constants, l + 1)
        matrices[l], y, c, draws[l + 1] = forward(
            matrix, features[-1], draws[l + 1], rule, precision
        )
        h = constants.std[l] * params.scale * y
        if len(params.biases[l + 1]):
            h = h + constants.bias_std[l] * params.biases[l + 1]
        hs.append(h)
        features.append(model.phi[l + 1](h))
        coordinates.append(c)
    f = precision.weight * (features[-1] @ params.readout.T) * constants.std[-1]
    f = f / constants.gamma + params.frozen
    state = state._replace(matrices=tuple(matrices), draws=tuple(draws))
    return state, Passed(tuple(hs), tuple(features), tuple(coordinates), f)


def backward_pass(
    model: Model,
    state: State,
    constants: Constants,
    h: tuple[Float[Array, "k n"], ...],
    z: Float[Array, "k n"],
) -> tuple[State, tuple[Float[Array, "k n"], ...], tuple[Float[Array, "_ k"], ...]]:
    """Return g¹ … gᴸ from zᴸ, and their coordinates in the matrices' bases."""
    matrices, draws = list(state.matrices), list(state.draws)
    g = [model.phi[-1].derivative(h[-1]) * z]
    coordinates = []
    for l in reversed(range(len(matrices))):
        rule = _rule(model, constants, l)
        matrices[l], y, d, draws[l] = backward(
            matrices[l], g[0], draws[l], rule, constants.precision
        )
        z = constants.std[l] * state.params.scale * y
        g.insert(0, model.phi[l].derivative(h[l]) * z)
        coordinates.insert(0, d)
    return state._replace(matrices=tuple(matrices), draws=tuple(draws)), tuple(g), (*coordinates,)


def _step(model: Model, state: State, constants: Constants) -> State:
    state, passed = forward_pass(model, state, constants)
    f, samples = passed.outputs, constants.frozen_kernel.shape[1]
    batch = jnp.arange(samples)
    if constants.batches is not None:
        batch = constants.batches[jnp.minimum(state.step, len(constants.batches) - 1)]
    shaped = f[batch].reshape(-1, *model.output_shape)
    delta = model.loss.residual(shaped, constants.targets[batch]).reshape(len(batch), -1)
    delta = delta.astype(f.dtype) / len(batch)
    readout = constants.std[-1] * state.params.readout
    if delta.shape[1] == 1:
        z, coefficients = jnp.broadcast_to(readout, (len(batch), readout.shape[1])), delta[:, 0]
    else:
        # Only Σ_c Δ_c ∂f_c/∂h enters the update: one backward pass for all outputs.
        size = jnp.abs(delta).max(1) + jnp.finfo(f.dtype).tiny
        z, coefficients = (delta / size[:, None]) @ readout, size
    h = tuple(h[batch] for h in passed.h)
    state, g, d = backward_pass(model, state, constants, h, z)

    lr = constants.rates[state.step]
    kappa = lr * constants.gamma
    pushed = [coefficients @ layer for layer in g]
    change = Moving(
        fields=kappa
        * constants.field_rate[:, None]
        * (constants.fields[batch].T @ (coefficients[:, None] * g[0])),
        readout=kappa * constants.rate[-1] * (delta.T @ passed.features[-1][batch]),
        biases=tuple(
            kappa * constants.bias_rate[l - 1] * pushed[l][None] if len(b) else b
            for l, b in enumerate(state.params.biases)
        ),
        frozen=lr * (constants.frozen_kernel[:, batch] @ delta),
        scale=jnp.zeros_like(state.params.scale),
    )
    params, velocity = _descend(
        state.params, state.velocity, change, lr * constants.decay, constants.momentum
    )
    matrices = tuple(
        _descend_matrix(
            matrix,
            kappa * constants.rate[l] * (d[l] * coefficients) @ passed.coordinates[l][:, batch].T,
            state.params.scale,
            params.scale,
            constants.momentum,
        )
        for l, matrix in enumerate(state.matrices)
    )
    outputs = lax.dynamic_update_index_in_dim(state.outputs, f, state.step, 0)
    return state._replace(
        step=state.step + 1, params=params, velocity=velocity, matrices=matrices, outputs=outputs
    )


def _descend(params: Moving, velocity: Moving | None, change: Moving, shrink, momentum):
    """θ ← θ + v,  v ← βv − η∇ − ηλθ."""
    moved = jax.tree.map(lambda c, p: c - shrink * p, change, params)
    if velocity is not None:
        velocity = moved = jax.tree.map(lambda m, v: m + momentum * v, moved, velocity)
    return jax.tree.map(jnp.add, params, moved), velocity


def _descend_matrix(matrix: Matrix, change, before, after, momentum) -> Matrix:
    """Make the same step in the coordinates V = s (V(0) + Q_o M Q_iᵀ/N).

    The velocity is a (V(0) + Q_o M Q_iᵀ/N) + Q_o U Q_iᵀ/N, with a the velocity of s, so that
    s ← s + a, U ← βU + change, M ← M + U/s; referred to the new M, U shrinks by s_before/s.
    """
    velocity = matrix.velocity
    if velocity is not None:
        change = change + momentum * velocity
        velocity = change * (before / after)
    return matrix._replace(change=matrix.change + change / after, velocity=velocity)


def _rule(model: Model, constants: Constants, layer: int):
    if model.mode == "linear":
        return unit_vectors()
    return gaussian(constants.anchors[layer], constants.precision.weight)
