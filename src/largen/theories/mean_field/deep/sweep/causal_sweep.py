"""The causal sweep: training at infinite width, step by step.

Everything on the right-hand sides of the mean-field equations at a time is known from earlier
times (Pehlevan and Bordelon's lecture notes, (65)): within a step

    h¹, …, hᴸ    f    Δ    zᴸ, …, z¹

follow from one another as in a network, with random matrices in place of W. Then all trained
variables make a step, with κ = η₀γ₀/P:

    M += κ (ρσ) d diag(Δ) cᵀ,   w += κ (ρσ) Σ_μ Δ_μ φ(hᴸ_μ),   a += κ ρ Σ_μ Δ_μ g¹_μ F_μ.

With residual branches a layer adds an earlier one, hˡ⁺¹ = hˢ + σVφ(hˡ), and the gradient of that
layer is gˢ = gˡ⁺¹ + φ'(hˢ)zˢ (Bordelon et al., Depthwise hyperparameter transfer in residual
networks, (40), where the response and the update in z should contain the branch's factor once).

With several positions h, g and the columns c, d extend over all samples and positions. A map reads
the layer below through its taps, and gradients propagate back through the transposed taps
(``patches.py``). Every position of a sample has the sample's Δ.

The notes' (65) integrates df/dt = (η₀/P) KΔ; at finite step size f = ⟨zᴸφ(hᴸ)⟩/γ₀ is exact.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from largen.compilation import Sooner
from largen.theories.mean_field.deep.matrices.by_directions import Draws, Share
from largen.theories.mean_field.deep.matrices.by_neurons import normals_of_neurons
from largen.theories.mean_field.deep.matrices.dense import DenseMatrices
from largen.theories.mean_field.deep.matrices.fresh_vectors import gaussian, unit_vectors
from largen.theories.mean_field.deep.matrices.row_buffers import Index
from largen.theories.mean_field.deep.sweep.langevin import add_langevin_noise
from largen.theories.mean_field.deep.sweep.patches import of_samples
from largen.theories.mean_field.deep.sweep.state import (
    NOTHING_MORE,
    AnyMatrices,
    Moving,
    SweepConstants,
    SweepModel,
    SweepState,
    has_room,
)
from largen.theories.mean_field.engine.descent import (
    Step,
    goes_on,
    moved,
    moved_matrices,
    pulled_together,
    residual,
    samples_of,
)


class Passed(NamedTuple):
    """The results of a forward pass."""

    h: Float[Array, "layer column n"]  # hˡ of every hidden layer, (layer, column, n)
    # The coordinates c, in the basis of each matrix, of the patches of φ(hˡ) that it reads.
    coordinates: Float[Array, "matrix row column"]
    last: Float[Array, "sample tap_n"]  # the part of φ(hᴸ) that the read-out reads
    outputs: Float[Array, "sample output"]


class Seen(NamedTuple):
    """The fields from which kernels are recorded."""

    h: Float[Array, "layer column n"]  # hˡ of every hidden layer
    # gˡ of each output, with the outputs of a sample in consecutive rows.
    g: Float[Array, "layer column_of_output n"]
    last: Float[Array, "sample tap_n"]  # the part of φ(hᴸ) that the read-out reads


def looks_while_training(model: SweepModel, constants: SweepConstants) -> bool:
    """Whether a training step computes all fields from which kernels are recorded.

    A record then uses the fields of the step at its time, which saves the compilation and the
    passes of :func:`largen.theories.mean_field.deep.sweep.kernel_records.look`.
    """
    one_output = math.prod(model.output_shape) == 1
    return one_output and constants.batches is None and model.kept == NOTHING_MORE


@partial(Sooner, static_argnums=0, donate_argnums=1)
def sweep(
    model: SweepModel, state: SweepState, constants: SweepConstants, stop
) -> tuple[SweepState, Seen | None]:
    """Train until a step, or until a basis is full or the outputs have diverged.

    The fields of the last step are returned as well, if steps compute those of records.
    """
    _, total, samples = constants.kernels.shape
    if constants.batches is not None:
        samples = constants.batches.shape[1]
    room_for = (
        constants.positions.output_positions * total,
        constants.positions.output_positions * samples,
    )

    def another(carry):
        state, _ = carry
        room = has_room(state, *room_for, model)
        return room & goes_on(state.step, stop, state.outputs[:, 0], constants.targets)

    def step(carry):
        state, seen = carry
        state, now = _step(model, state, constants)
        return state, seen if seen is None else now

    nothing = None
    if looks_while_training(model, constants):
        layers, places = state.matrices.number + 1, constants.positions.places
        h = jnp.zeros(
            (layers, samples * places, state.params.fields.shape[1]), constants.fields.dtype
        )
        nothing = Seen(h, h, jnp.zeros((samples, state.params.readout.shape[1]), h.dtype))
    return lax.while_loop(another, step, (state, nothing))


def hidden(state: SweepState, constants: SweepConstants) -> Index:
    """Return the number of matrices between hidden layers, which is the index of the last layer."""
    return state.matrices.number if constants.hidden is None else constants.hidden


def forward_pass(
    model: SweepModel, state: SweepState, constants: SweepConstants
) -> tuple[SweepState, Passed]:
    """Return a forward pass, and the state with the directions that it adds to the matrices."""
    params, precision, matrices = state.params, constants.precision, state.matrices
    skips, streams, at = (
        jnp.asarray(model.skips, int),
        jnp.asarray(model.streams),
        constants.positions,
    )
    h = constants.fields @ params.fields
    hs = jnp.zeros((matrices.number + 1, *h.shape), h.dtype)
    columns = constants.kernels.shape[1] * at.output_positions
    coordinates = jnp.zeros((matrices.number, matrices.change.shape[2], columns), h.dtype)

    def layer(l, carry):
        matrices, draws, hs, coordinates = carry
        x, stream = at.patches(l, live_features(model, constants, l, hs[l])), streams[l + 1]
        rule = _mute(model, l, 0, _rule(model, constants, l + 1))
        matrices, y, c, used = matrices.apply(l, x, draws[stream], rule, precision, state.share(l))
        h = constants.std[l] * y + constants.bias_std[l] * params.biases[l]
        h = at.widen(h)
        if max(model.skips) >= 0:
            h = h + jnp.where(skips[l] >= 0, hs[skips[l]], 0)
        draws, hs = draws.at[stream].set(used), hs.at[l + 1].set(h)
        return matrices, draws, hs, coordinates.at[l].set(c)

    carry, last_layer = (
        (matrices, state.draws, hs.at[0].set(h), coordinates),
        hidden(state, constants),
    )
    if matrices.number:
        carry = lax.fori_loop(0, last_layer, layer, carry)
    matrices, draws, hs, coordinates = carry
    last = at.readable(live_features(model, constants, last_layer, hs[last_layer]))
    f = precision.weight * (last @ params.readout.T) * constants.std[-1]
    f = f / constants.gamma + params.constant
    state = state._replace(matrices=matrices, draws=draws)
    return state, Passed(hs, coordinates, last, f)


def backward_pass(
    model: SweepModel,
    state: SweepState,
    constants: SweepConstants,
    h: Float[Array, "layer k n"],
    z: Float[Array, "sample tap_n"],
) -> tuple[SweepState, Float[Array, "layer k n"], Float[Array, "matrix row column"]]:
    """Return g¹ … gᴸ from the read-out's backward field, and their coordinates in the bases."""
    matrices, at, count = state.matrices, constants.positions, hidden(state, constants)
    skips, streams = jnp.asarray(model.skips, int), jnp.asarray(model.streams)
    g = (
        jnp.zeros_like(h)
        .at[count]
        .set(live_pull_back(model, constants, count, h[count], at.from_readout(z)))
    )
    coordinates = jnp.zeros(
        (matrices.number, matrices.change.shape[1], len(z) * at.output_positions), z.dtype
    )

    def layer(done, carry):
        matrices, draws, g, coordinates = carry
        l = count - 1 - done
        stream = streams[l]
        matrices, z, d, used = backward_field(
            model, matrices, state.share(l), constants, l, g[l + 1], draws[stream]
        )
        if max(model.skips) >= 0:
            g = g.at[skips[l]].add(jnp.where(skips[l] >= 0, g[l + 1], 0))
        g = g.at[l].add(live_pull_back(model, constants, l, h[l], z))
        return matrices, draws.at[stream].set(used), g, coordinates.at[l].set(d)

    carry = (matrices, state.draws, g, coordinates)
    if matrices.number:
        carry = lax.fori_loop(0, count, layer, carry)
    matrices, draws, g, coordinates = carry
    return state._replace(matrices=matrices, draws=draws), g, coordinates


def backward_field(
    model: SweepModel,
    matrices: AnyMatrices,
    share: Share,
    constants: SweepConstants,
    l: Index,
    g: Float[Array, "k n"],
    draws: Draws,
):
    """Return the updated matrix, zˡ = Wᵀgˡ⁺¹, the coordinates of gˡ⁺¹, and the remaining draws."""
    at = constants.positions
    rule = _mute(model, l, 1, _rule(model, constants, l, at.live(l)))
    matrices, y, d, used = matrices.apply(
        l, at.narrow(g), draws, rule, constants.precision, share, transposed=True
    )
    return matrices, constants.std[l] * at.spread(l, y), d, used


def _step(
    model: SweepModel, state: SweepState, constants: SweepConstants
) -> tuple[SweepState, Seen]:
    """Make one training step; also return the fields of the samples of its batch."""
    state, passed = forward_pass(model, state, constants)
    f, samples, at = passed.outputs, constants.kernels.shape[2], constants.positions
    batch, y = samples_of(constants.batches, state.step, samples), constants.targets
    outputs = jnp.concatenate([f[None], state.params.linear])
    deltas = jnp.stack(
        [residual(model.loss, model.output_shape, each[batch], y[batch]) for each in outputs]
    )
    delta = deltas[0]
    readout = constants.std[-1] * state.params.readout
    z, coefficients = pulled_together(delta, readout, model.coupled)
    h = of_samples(passed.h, batch, 1, at.places)
    state, g, d = backward_pass(model, state, constants, h, z)

    step = Step(constants.rates[state.step], constants.momentum, constants.decay)
    gamma = constants.gamma
    everywhere = jnp.repeat(coefficients, at.places)
    pushed = jnp.einsum("m,lmn->ln", everywhere, g[1:])
    seen = of_samples(constants.fields, batch, 0, at.places)
    gradient = Moving(
        fields=gamma * constants.field_rate[:, None] * (seen.T @ (everywhere[:, None] * g[0])),
        readout=gamma * constants.rate[-1] * (delta.T @ passed.last[batch]),
        biases=gamma * constants.bias_rate[:-1, None] * pushed,
        constant=constants.bias_rate[-1] * constants.bias_std[-1] * delta.sum(0),
        linear=jnp.einsum("kms,kso->kmo", constants.kernels[:, :, batch], deltas[1:]),
        scale=jnp.zeros_like(state.params.scale),
    )
    params, velocity = moved(state.params, state.velocity, gradient, step)
    c = of_samples(passed.coordinates, batch, 2, at.output_positions)
    d = d * jnp.repeat(coefficients, at.output_positions)
    learnt = gamma * constants.rate[:-1, None, None] * jnp.einsum("lok,lik->loi", d, c)
    matrices = moved_matrices(state.matrices, learnt, constants.decay.scale, step)
    if constants.noise is not None:
        assert isinstance(matrices, DenseMatrices)
        key = jax.random.fold_in(state.draws[0], state.step)
        params, matrices = add_langevin_noise(
            params, matrices, constants.noise, constants.live, step.rate, key
        )
    outputs = lax.dynamic_update_index_in_dim(state.outputs, outputs, state.step, 0)
    state = state._replace(
        step=state.step + 1, params=params, velocity=velocity, matrices=matrices, outputs=outputs
    )
    return state, Seen(h, g, passed.last[batch])


def _rule(model: SweepModel, constants: SweepConstants, layer: Index, taps: Any = None):
    """Return the rule for fresh vectors on a layer's neurons, or on several taps of them."""
    ratio = constants.ratios[layer]
    if model.sampling == "linear":
        return unit_vectors(model.units, taps, ratio)
    if model.sampling == "by_neurons":
        assert constants.chosen is not None
        assert constants.live is not None
        return normals_of_neurons(model.units, constants.chosen[layer], constants.live[layer], taps)
    anchors, live = (
        None if rows is None else rows[layer] for rows in (constants.anchors, constants.live)
    )
    return gaussian(anchors, constants.precision.weight, taps, live, ratio)


def _mute(model: SweepModel, matrix: Index, side: int, rule: Any) -> Any:
    """Return the rule, with images of zero for a matrix or a transpose that brings no noise."""
    if not model.muted:
        return rule
    factors = 1.0 - jnp.asarray(model.muted)[:, side]

    def fresh_vectors(far, l, fills, rank, draws):
        xi, draws = rule(far, l, fills, rank, draws)
        return xi * factors[matrix].astype(xi.dtype), draws

    return fresh_vectors


def live_features(
    model: SweepModel, constants: SweepConstants, layer: Index, h: Float[Array, "k n"]
):
    """Return φ(hˡ), with 0 for neurons that the layer does not have."""
    if constants.live is None:
        return model.apply(layer, h)
    return model.apply(layer, _unscale(h, constants.live[layer])) * constants.live[layer]


def live_pull_back(
    model: SweepModel,
    constants: SweepConstants,
    layer: Index,
    h: Float[Array, "k n"],
    z: Float[Array, "k n"],
):
    """Return φ'(hˡ)z; see :meth:`Model.pull_back`."""
    if constants.live is not None:
        h = _unscale(h, constants.live[layer])
    return model.pull_back(layer, h, z)


def _unscale(h: Float[Array, "k n"], live: Float[Array, " n"]) -> Float[Array, "k n"]:
    """Return preactivations without the root of the weight of their neurons."""
    return h / jnp.where(live > 0, live, 1)
