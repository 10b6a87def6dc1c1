"""The causal sweep: training at infinite width, step after step.

Everything on the right-hand sides of the mean-field equations at a time is known from earlier
times (Pehlevan and Bordelon's lecture notes, (65)): within a step

    h¹, …, hᴸ    f    Δ    zᴸ, …, z¹

follow from one another as in a network, with random matrices in place of W, and then everything
that trains makes its step, with κ = η₀γ₀/P:

    M += κ (ρσ) d diag(Δ) cᵀ,   w += κ (ρσ) Σ_μ Δ_μ φ(hᴸ_μ),   a += κ ρ Σ_μ Δ_μ g¹_μ F_μ.

With residual branches a layer adds an earlier one, hˡ⁺¹ = hˢ + σVφ(hˡ), and hands its gradient on
to it, gˢ = gˡ⁺¹ + φ'(hˢ)zˢ (Bordelon et al., Depthwise hyperparameter transfer in residual
networks, (40), where the response and the update in z want the branch's factor once).

The notes' (65) integrates df/dt = (η₀/P) KΔ; at finite step size f = ⟨zᴸφ(hᴸ)⟩/γ₀ is right.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from largen.dmft.deep.dense import DenseMatrices
from largen.dmft.deep.innovations import gaussian, unit_vectors
from largen.dmft.deep.matrix import Matrices
from largen.dmft.deep.noise import shaken
from largen.dmft.deep.rows import Index
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

    h: Float[Array, "layer sample n"]
    features: Float[Array, "layer sample n"]
    coordinates: Float[Array, "matrix row sample"]
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
    params, precision, matrices = state.params, constants.precision, state.matrices
    skips, streams = jnp.asarray(model.skips, int), jnp.asarray(model.streams)
    h = constants.fields @ params.fields
    hs, features = (jnp.zeros((matrices.number + 1, *h.shape), h.dtype) for _ in range(2))
    coordinates = jnp.zeros((matrices.number, matrices.change.shape[2], len(h)), h.dtype)

    def layer(l, carry):
        matrices, draws, hs, features, coordinates = carry
        x, stream = model.apply(l, hs[l]), streams[l + 1]
        rule = _rule(model, constants, l + 1)
        matrices, y, c, used = matrices.apply(l, x, draws[stream], rule, precision)
        h = constants.std[l] * params.scale[l] * y + constants.bias_std[l] * params.biases[l]
        if max(model.skips) >= 0:
            h = h + jnp.where(skips[l] >= 0, hs[skips[l]], 0)
        return (
            matrices,
            draws.at[stream].set(used),
            hs.at[l + 1].set(h),
            features.at[l].set(x),
            coordinates.at[l].set(c),
        )

    carry = (matrices, state.draws, hs.at[0].set(h), features, coordinates)
    if matrices.number:
        carry = lax.fori_loop(0, matrices.number, layer, carry)
    matrices, draws, hs, features, coordinates = carry
    last = model.apply(matrices.number, hs[-1])
    f = precision.weight * (last @ params.readout.T) * constants.std[-1]
    f = f / constants.gamma + params.frozen
    state = state._replace(matrices=matrices, draws=draws)
    return state, Passed(hs, features.at[-1].set(last), coordinates, f)


def backward_pass(
    model: Model,
    state: State,
    constants: Constants,
    h: Float[Array, "layer k n"],
    z: Float[Array, "k n"],
) -> tuple[State, Float[Array, "layer k n"], Float[Array, "matrix row k"]]:
    """Return g¹ … gᴸ from zᴸ, and their coordinates in the matrices' bases."""
    matrices = state.matrices
    count, scale = matrices.number, state.params.scale
    skips, streams = jnp.asarray(model.skips, int), jnp.asarray(model.streams)
    g = jnp.zeros_like(h).at[-1].set(model.slope(count, h[-1]) * z)
    coordinates = jnp.zeros((count, matrices.change.shape[1], len(z)), z.dtype)

    def layer(done, carry):
        matrices, draws, g, coordinates = carry
        l = count - 1 - done
        stream, rule = streams[l], _rule(model, constants, l)
        matrices, y, d, used = matrices.apply(
            l, g[l + 1], draws[stream], rule, constants.precision, transposed=True
        )
        z = constants.std[l] * scale[l] * y
        if max(model.skips) >= 0:
            g = g.at[skips[l]].add(jnp.where(skips[l] >= 0, g[l + 1], 0))
        g = g.at[l].add(model.slope(l, h[l]) * z)
        return matrices, draws.at[stream].set(used), g, coordinates.at[l].set(d)

    carry = (matrices, state.draws, g, coordinates)
    if count:
        carry = lax.fori_loop(0, count, layer, carry)
    matrices, draws, g, coordinates = carry
    return state._replace(matrices=matrices, draws=draws), g, coordinates


def _step(model: Model, state: State, constants: Constants) -> State:
    state, passed = forward_pass(model, state, constants)
    f, samples = passed.outputs, constants.frozen_kernel.shape[1]
    batch: Any = slice(0, samples)
    if constants.batches is not None:
        batch = constants.batches[jnp.minimum(state.step, len(constants.batches) - 1)]
    count = len(f[batch])
    shaped = f[batch].reshape(-1, *model.output_shape)
    delta = model.loss.residual(shaped, constants.targets[batch]).reshape(count, -1)
    delta = delta.astype(f.dtype) / count
    readout = constants.std[-1] * state.params.readout
    if delta.shape[1] == 1:
        z, coefficients = jnp.broadcast_to(readout, (count, readout.shape[1])), delta[:, 0]
    else:
        # Only Σ_c Δ_c ∂f_c/∂h enters the update: one backward pass for all outputs.
        size = jnp.abs(delta).max(1) + jnp.finfo(f.dtype).tiny
        z, coefficients = (delta / size[:, None]) @ readout, size
    state, g, d = backward_pass(model, state, constants, passed.h[:, batch], z)

    lr = constants.rates[state.step]
    kappa = lr * constants.gamma
    pushed = jnp.einsum("m,lmn->ln", coefficients, g[1:])
    change = Moving(
        fields=kappa
        * constants.field_rate[:, None]
        * (constants.fields[batch].T @ (coefficients[:, None] * g[0])),
        readout=kappa * constants.rate[-1] * (delta.T @ passed.features[-1, batch]),
        biases=kappa * constants.bias_rate[:-1, None] * pushed,
        frozen=lr * (constants.frozen_kernel[:, batch] @ delta),
        scale=jnp.zeros_like(state.params.scale),
    )
    params, velocity = _descend(
        state.params, state.velocity, change, lr, constants.decay, constants.momentum
    )
    c = passed.coordinates[:, :, batch]
    matrices = _descend_matrices(
        state.matrices,
        kappa * constants.rate[:-1, None, None] * jnp.einsum("lok,lik->loi", d * coefficients, c),
        state.params.scale,
        params.scale,
        constants.momentum,
    )
    if constants.noise is not None:
        assert isinstance(matrices, DenseMatrices)
        key = jax.random.fold_in(state.draws[0], state.step)
        params, matrices = shaken(params, matrices, constants.noise, lr, key)
    outputs = lax.dynamic_update_index_in_dim(state.outputs, f, state.step, 0)
    return state._replace(
        step=state.step + 1, params=params, velocity=velocity, matrices=matrices, outputs=outputs
    )


def _descend(params: Moving, velocity: Moving | None, change: Moving, lr, decay: Moving, momentum):
    """θ ← θ + v,  v ← βv − η∇ − ηλθ."""
    moved = jax.tree.map(lambda c, p, shrink: c - lr * shrink * p, change, params, decay)
    if velocity is not None:
        velocity = moved = jax.tree.map(lambda m, v: m + momentum * v, moved, velocity)
    return jax.tree.map(jnp.add, params, moved), velocity


def _descend_matrices(matrices, change, before, after, momentum) -> Matrices | DenseMatrices:
    """Make the same step in the coordinates V = s (V(0) + Q_o M Q_iᵀ/N).

    The velocity is a (V(0) + Q_o M Q_iᵀ/N) + Q_o U Q_iᵀ/N, with a the velocity of s, so that
    s ← s + a, U ← βU + change, M ← M + U/s; referred to the new M, U shrinks by s_before/s.
    """
    velocity = matrices.velocity
    before, after = before[:, None, None], after[:, None, None]
    if velocity is not None:
        change = change + momentum * velocity
        velocity = change * (before / after)
    return matrices._replace(change=matrices.change + change / after, velocity=velocity)


def _rule(model: Model, constants: Constants, layer: Index):
    if model.mode == "linear":
        return unit_vectors()
    anchors = None if constants.anchors is None else constants.anchors[layer]
    return gaussian(anchors, constants.precision.weight)
