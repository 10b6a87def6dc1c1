"""Training of a set of neurons, by gradient descent or by gradient flow.

Gradient flow is integrated by the classical Runge-Kutta method at a fixed step. Its right-hand
side is stiff enough for the step to be bounded by the largest eigenvalue of the tangent kernel
all along, so that an adaptive step gains little; and where φ has a kink, step control neuron by
neuron makes it ever shorter for errors that the average over neurons does not feel. The step is
chosen from what it does to the outputs instead: see ``methods``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from largen.dmft.one_hidden_layer.adaptive import adapt
from largen.dmft.one_hidden_layer.dynamics import (
    Constants,
    Fields,
    Model,
    Records,
    State,
    drift,
    empty_records,
    forward,
    kernels,
    kernels_between,
    prepare,
    sample_weights,
    shaken,
    stepped,
    test_outputs,
)
from largen.dmft.one_hidden_layer.neurons import Neurons
from largen.dmft.one_hidden_layer.problem import Problem
from largen.dmft.recorded import Recorded
from largen.runs import Run


def train(
    posed: Problem,
    run: Run,
    neurons: Neurons,
    recorded: Recorded,
    *,
    substeps: np.ndarray | None = None,
    dtype: Any = np.float64,
    key: int = 0,
) -> tuple[np.ndarray, np.ndarray, Records]:
    """Train a set of neurons.

    Parameters
    ----------
    posed, run
        The problem, and the run that poses it.
    neurons
        The set.
    recorded
        Entries at which, and between which, kernels are kept.
    substeps
        Steps of gradient flow after each entry, shape ``(step,)``.
    dtype
        Precision of the neurons.
    key
        Of the noise, if there is any.

    Returns
    -------
    f_train, f_test
        Outputs, shape ``(step, sample, output)``.
    records
        Kernels, with a leading axis of recorded entries.
    """
    average = None if posed.steps is None else posed.steps.average
    model = Model(posed.phi, run.loss, run.output_shape, average)
    state, constants = prepare(posed, run, neurons, dtype)
    counts = sample_weights(run, dtype)
    at = jnp.asarray(recorded.alone, int), jnp.asarray(sorted(recorded.paired), int)
    if substeps is None:
        noise = jax.random.key(key)
        out = _descend(model, len(run.times) - 1, state, constants, counts, at, noise)
    else:
        gaps = np.append(np.diff(run.times), 0.0)
        lengths = jnp.asarray(gaps / np.maximum(substeps, 1), dtype)
        out = _flow(model, jnp.asarray(substeps), lengths, state, constants, counts, at)
    f_train, f_test, records, fields = out
    pairs = jnp.searchsorted(at[1], jnp.asarray(recorded.pairs, int))
    found = _pairs(constants, fields, pairs) if len(recorded.pairs) else (None, None)
    records = records._replace(feature_kernel_pair=found[0], gradient_kernel_pair=found[1])
    return jax.tree.map(np.asarray, (f_train, f_test, records))


@jax.jit
def _pairs(constants: Constants, fields: Fields, pairs: Int[Array, "pair 2"]):
    def one(pair):
        t, s = (jax.tree.map(lambda field, i=i: field[pair[i]], fields) for i in range(2))
        return kernels_between(constants, t, s)

    return jax.lax.map(one, pairs)


@partial(jax.jit, static_argnames=("model", "steps"))
def _descend(
    model: Model,
    steps: int,
    state: State,
    constants: Constants,
    counts: Float[Array, "_ sample"],
    record_at: tuple[Int[Array, " record"], Int[Array, " entry"]],
    key: Any,
):
    def advance(index, moving, ahead):
        state, velocity = moving
        row, rate = counts[jnp.minimum(index, len(counts) - 1)], constants.rates[index]
        move = drift(model, state, constants, row, ahead)
        if model.average is not None:
            change, velocity = adapt(model.average, move, velocity, 1 + index.astype(row.dtype))
            change = jax.tree.map(jnp.multiply, change, constants.steps)
            change = stepped(change, state, constants, rate)
            return jax.tree.map(jnp.add, state, change), velocity
        move = stepped(move, state, constants, rate)
        move = shaken(move, constants.noise, rate, jax.random.fold_in(key, index))
        velocity = jax.tree.map(lambda v, dx: constants.momentum * v + dx, velocity, move)
        return jax.tree.map(jnp.add, state, velocity), velocity

    zero = jax.tree.map(jnp.zeros_like, state)
    moving = (state, zero if model.average is None else (zero, zero))
    return _entries(model, constants, moving, advance, steps + 1, record_at)


@partial(jax.jit, static_argnames=("model",))
def _flow(
    model: Model,
    substeps: Int[Array, " step"],
    lengths: Float[Array, " step"],
    state: State,
    constants: Constants,
    counts: Float[Array, "1 sample"],
    record_at: tuple[Int[Array, " record"], Int[Array, " entry"]],
):
    def slope(state: State) -> State:
        ahead = forward(model, state, constants)
        move = drift(model, state, constants, counts[0], ahead)
        return stepped(move, state, constants, constants.rates[0])

    def runge_kutta(length, state: State) -> State:
        def along(fraction, move):
            return jax.tree.map(lambda x, dx: x + fraction * length * dx, state, move)

        # The four slopes come from a scan, so that the network is compiled once.
        def stage(carry, now):
            move, total = carry
            fraction, weight = now
            move = slope(along(fraction, move))
            return (move, jax.tree.map(lambda a, m: a + weight * m, total, move)), None

        zero = jax.tree.map(jnp.zeros_like, state)
        fractions = jnp.asarray([0, 0.5, 0.5, 1], length.dtype)
        weights = jnp.asarray([1 / 6, 1 / 3, 1 / 3, 1 / 6], length.dtype)
        (_, total), _ = jax.lax.scan(stage, (zero, zero), (fractions, weights))
        return along(1, total)

    def advance(index, moving, ahead):
        def substep(_, state):
            return runge_kutta(lengths[index], state)

        return (jax.lax.fori_loop(0, substeps[index], substep, moving[0]),)

    return _entries(model, constants, (state,), advance, len(lengths), record_at)


def _entries(
    model: Model,
    constants: Constants,
    moving: tuple[Any, ...],
    advance: Callable[..., tuple[Any, ...]],
    entries: int,
    record_at: tuple[Int[Array, " record"], Int[Array, " entry"]],
):
    """Return outputs at every entry, kernels at the recorded ones, and fields at further ones."""
    alone, paired = record_at

    def put(here, old, new):
        return jax.tree.map(
            lambda old, new: jnp.where(here.reshape(-1, *[1] * new.ndim), new, old), old, new
        )

    def entry(carry, index):
        moving, records, fields = carry
        ahead = forward(model, moving[0], constants)
        outputs = (ahead[2], test_outputs(model, moving[0], constants))
        here = alone == index

        def write(records):
            return put(here, records, kernels(model, moving[0], constants))

        records = jax.lax.cond(here.any(), write, lambda r: r, records)
        if len(paired):
            fields = put(paired == index, fields, Fields(*ahead[:2], moving[0].readout))
        return (advance(index, moving, ahead), records, fields), outputs

    state, neurons = moving[0], len(constants.weights)
    sizes = (len(constants.train), len(constants.train), state.readout.shape[1])
    nothing = Fields(*(jnp.zeros((len(paired), neurons, k), state.readout.dtype) for k in sizes))
    start = (moving, empty_records(state, constants, len(alone)), nothing)
    (_, records, fields), (f_train, f_test) = jax.lax.scan(entry, start, jnp.arange(entries))
    return f_train, f_test, records, fields
