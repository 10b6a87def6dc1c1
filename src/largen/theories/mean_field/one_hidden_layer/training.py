"""Training of a set of neurons, by gradient descent or by gradient flow.

Gradient flow is integrated by the classical Runge-Kutta method at a fixed step. The equations are
stiff enough for the largest eigenvalue of the tangent kernel to bound the step throughout, so that
an adaptive step gains little. If φ has a kink, step control by the errors of single neurons would
shorten the step for errors that cancel in the average over neurons. The step is chosen by the error
of the outputs instead: see ``methods``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from largen.integration import runge_kutta_step
from largen.runs import Run
from largen.runs.spectra import derivatives
from largen.segments import scan_segments
from largen.theories.mean_field.engine.descent import moved, noisy, sample_weights
from largen.theories.mean_field.one_hidden_layer.curvature import Layer, hessian_sharpness
from largen.theories.mean_field.one_hidden_layer.dynamics import (
    Fields,
    OneLayerConstants,
    OneLayerModel,
    OneLayerState,
    Records,
    drift,
    empty_records,
    forward,
    kernels,
    kernels_between,
    prepare,
    step_of,
    step_with_decay,
    test_outputs,
)
from largen.theories.mean_field.one_hidden_layer.neurons import Neurons
from largen.theories.mean_field.one_hidden_layer.problem import OneLayerProblem
from largen.theories.mean_field.options import WantedKernels


class Found(NamedTuple):
    """Outputs at every time index, and kernels and fields at the recorded ones."""

    f_train: Float[Array, "time sample output"]
    f_test: Float[Array, "time test_sample output"]
    records: Records
    fields: Fields
    states: OneLayerState  # the neurons at the recorded time indices, if the sharpness is wanted


def train(
    posed: OneLayerProblem,
    run: Run,
    neurons: Neurons,
    wanted: WantedKernels,
    *,
    substeps: np.ndarray | None = None,  # the number of flow steps after each time index
    dtype: Any = np.float64,
    key: int = 0,  # of the Langevin noise, if there is any
) -> tuple[np.ndarray, np.ndarray, Records]:
    """Return outputs of training and of test samples, (step, sample, output), and kernels."""
    average = None if posed.steps is None else posed.steps.average
    recorded = wanted.recorded
    curved = "sharpness" in wanted.names
    model = OneLayerModel(posed.phi, run.loss, run.output_shape, average, wanted.test, curved)
    state, constants = prepare(posed, run, neurons, dtype)
    counts = sample_weights(run, dtype)
    at = jnp.asarray(recorded.alone, int), jnp.asarray(sorted(recorded.paired), int)
    if substeps is None:
        noise = jax.random.key(key)
        found = _descend(model, state, constants, counts, at, noise)
    else:
        gaps = np.append(np.diff(run.times), 0.0)
        lengths = jnp.asarray(gaps / np.maximum(substeps, 1), dtype)
        found = _flow(model, substeps, lengths, state, constants, counts, at)
    pairs = jnp.searchsorted(at[1], jnp.asarray(recorded.pairs, int))
    both = _pairs(constants, found.fields, pairs) if len(recorded.pairs) else (None, None)
    records = found.records._replace(feature_kernel_pair=both[0], gradient_kernel_pair=both[1])
    if curved:
        records = records._replace(sharpness=_sharpness(posed, run, neurons, found, recorded.alone))
    return jax.tree.map(np.asarray, (found.f_train, found.f_test, records))


def _sharpness(
    posed: OneLayerProblem, run: Run, neurons: Neurons, found: Found, at: np.ndarray
) -> np.ndarray:
    """Return the largest eigenvalue of the Hessian, its share in one neuron, and gᵀHg/|g|².

    They are (record, 3).
    """
    states, outputs = jax.tree.map(np.asarray, (found.states, found.f_train))
    values = []
    for i, index in enumerate(at):
        f = outputs[index].astype(np.float64)
        if not np.isfinite(f).all():
            values.append((np.nan,) * 3)
            continue
        first, second = derivatives(run, f.reshape(-1, *run.output_shape), posed.outputs)
        a, z = (part[i].astype(np.float64) for part in states[:2])
        values.append(hessian_sharpness(posed, Layer(a, z, neurons.weights), first, second))
    rates = run.rates_at(at)
    return np.array(values) * np.stack([rates, np.ones(len(at)), rates], axis=1)


@jax.jit
def _pairs(constants: OneLayerConstants, fields: Fields, pairs: Int[Array, "pair 2"]):
    def one(pair):
        t, s = (jax.tree.map(lambda field, i=i: field[pair[i]], fields) for i in range(2))
        return kernels_between(constants, t, s)

    return jax.lax.map(one, pairs)


def _descend(
    model: OneLayerModel,
    state: OneLayerState,
    constants: OneLayerConstants,
    counts: Float[Array, "_ sample"],
    record_at: tuple[Int[Array, " record"], Int[Array, " time"]],
    key: Any,
) -> Found:
    """Train by gradient descent, with one step between successive time indices."""
    zero = jax.tree.map(jnp.zeros_like, state)
    moving = (state, zero if model.average is None else (zero,) * model.average.memories)
    times = len(constants.rates)
    found = _nothing(model, moving, constants, times, record_at)
    arrays = (constants, counts, record_at, key)
    return scan_segments(_step, model, (moving, found), times, *arrays)[0][1]


def _step(model: OneLayerModel, index, carry, constants: OneLayerConstants, counts, record_at, key):
    """Record the observables at a time index, and make the step after it."""
    moving, found = carry
    ahead = forward(model, moving[0], constants)
    found = _observe(model, index, moving[0], ahead, found, constants, record_at)
    state, velocity = moving
    row, rate = counts[jnp.minimum(index, len(counts) - 1)], constants.rates[index]
    move = drift(model, state, constants, row, ahead)
    if model.average is not None:
        corrections = model.average.corrections(1 + index.astype(row.dtype))
        change, velocity = model.average.of_trees(move, velocity, corrections)
        change = jax.tree.map(jnp.multiply, change, constants.steps)
        change = step_with_decay(change, state, constants, rate)
        return ((jax.tree.map(jnp.add, state, change), velocity), found), ()
    state, velocity = moved(state, velocity, move, step_of(constants, index))
    if constants.noise is not None:
        state = noisy(state, constants.noise, rate, jax.random.fold_in(key, index))
    return ((state, velocity), found), ()


def _flow(
    model: OneLayerModel,
    substeps: np.ndarray,
    lengths: Float[Array, " step"],
    state: OneLayerState,
    constants: OneLayerConstants,
    counts: Float[Array, "1 sample"],
    record_at: tuple[Int[Array, " record"], Int[Array, " time"]],
) -> Found:
    """Integrate gradient flow, with given numbers of steps between successive time indices."""
    each = np.maximum(substeps, 1)
    begins = jnp.asarray(np.cumsum(each) - each)
    found = _nothing(model, (state,), constants, len(each), record_at)
    arrays = (begins, lengths, constants, counts, record_at)
    return scan_segments(_substep, model, (state, found), int(each.sum()), *arrays)[0][1]


def _substep(model: OneLayerModel, number, carry, begins, lengths, constants, counts, record_at):
    """Make one step of the flow; record observables before the first step after a time index."""
    state, found = carry
    index = jnp.searchsorted(begins, number, side="right") - 1

    def observed(found):
        ahead = forward(model, state, constants)
        return _observe(model, index, state, ahead, found, constants, record_at)

    found = jax.lax.cond(begins[index] == number, observed, lambda found: found, found)

    def slope(state: OneLayerState) -> OneLayerState:
        move = drift(model, state, constants, counts[0], forward(model, state, constants))
        return step_with_decay(move, state, constants, constants.rates[0])

    return (runge_kutta_step(slope, state, lengths[index]), found), ()


def _nothing(
    model: OneLayerModel,
    moving: tuple[Any, ...],
    constants: OneLayerConstants,
    times: int,
    record_at: tuple[Int[Array, " record"], Int[Array, " time"]],
) -> Found:
    """Return empty buffers for outputs, kernels and fields."""
    alone, paired = record_at
    state, neurons = moving[0], len(constants.weights)
    dtype, outputs = state.readout.dtype, state.readout.shape[1]
    hidden = jnp.zeros((len(paired), neurons, len(constants.train)), dtype)
    readout = jnp.zeros((len(paired), neurons, outputs), dtype)
    f_train, f_test = (
        jnp.zeros((times, len(x), outputs), dtype) for x in (constants.train, constants.test)
    )
    records = empty_records(model, state, constants, len(alone))
    kept = len(alone) * model.curved
    states = jax.tree.map(lambda part: jnp.zeros((kept, *part.shape), part.dtype), state)
    return Found(f_train, f_test, records, Fields(hidden, hidden, readout), states)


def _observe(
    model: OneLayerModel,
    index,
    state: OneLayerState,
    ahead,
    found: Found,
    constants: OneLayerConstants,
    record_at,
) -> Found:
    """Write outputs at a time index, and kernels and fields if recorded there, to the buffers."""
    alone, paired = record_at

    def put(here, old, new):
        return jax.tree.map(
            lambda old, new: jnp.where(here.reshape(-1, *[1] * new.ndim), new, old), old, new
        )

    def write(records):
        return put(alone == index, records, kernels(model, state, constants))

    records = jax.lax.cond((alone == index).any(), write, lambda r: r, found.records)
    fields = found.fields
    if len(paired):
        fields = put(paired == index, fields, Fields(ahead[0], ahead[1], state.readout))
    states = put(alone == index, found.states, state) if model.curved else found.states
    f_test = test_outputs(model, state, constants)
    return Found(
        found.f_train.at[index].set(ahead[2]),
        found.f_test.at[index].set(f_test),
        records,
        fields,
        states,
    )
