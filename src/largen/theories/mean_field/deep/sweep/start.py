"""The state at initialisation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.parameterizations import momentum_of, temperature_of
from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import Matrices, Precision
from largen.theories.mean_field.deep.matrices.fresh_vectors import initial
from largen.theories.mean_field.deep.sweep.layer_widths import counts, live, pad_neurons
from largen.theories.mean_field.deep.sweep.patches import positions_of
from largen.theories.mean_field.deep.sweep.schedule import Schedule
from largen.theories.mean_field.deep.sweep.state import (
    AnyMatrices,
    Moving,
    Noise,
    Start,
    SweepConstants,
    SweepState,
    fill_side,
)
from largen.theories.mean_field.deep.sweep.variance_reduction import reduce_variance
from largen.theories.mean_field.options import Sampling


def fewest(problem: Problem) -> int:
    """Return the smallest number of neurons that is large compared with the initial directions."""
    outputs = problem.outputs * problem.maps[-1].reading.number
    return max(8 * problem.total * max(problem.positions) + 4 * outputs, 64)


def draw(
    problem: Problem,
    sampling: Sampling,
    neurons: int,
    rng: np.random.Generator,
    precision: Precision,
    dtype,
) -> Start:
    """Draw a network of random matrices at initialisation."""
    raw = gaussian_rows(problem, sampling, neurons, rng, dtype)
    return start_from_rows(problem, raw, sampling, neurons, precision)


def gaussian_rows(
    problem: Problem, sampling: Sampling, neurons: int, rng: np.random.Generator, dtype
) -> list[np.ndarray]:
    """Return the Gaussian rows from which each hidden layer is initialised.

    The rows are, in this order, those of the read-out, one for a bias, the images of gradients that
    propagate back to the layer (from row ``outputs + 1`` on), and the images of features of the
    layer below, or for the first layer those of its fields.
    """
    directions = problem.fields.shape[1]
    outputs = problem.outputs * problem.maps[-1].reading.number
    rows = outputs + 1 + problem.taps * problem.columns + max(problem.columns, directions)
    return _raw(problem, rows, counts(problem, neurons), sampling, rng, dtype)


def start_from_rows(
    # problem, sampling, neurons, precision: as in draw.
    problem: Problem,
    raw: list[np.ndarray],  # the rows from gaussian_rows
    sampling: Sampling,
    neurons: int,
    precision: Precision,
    # As in theories.mean_field.deep.sweep.variance_reduction.reduce_variance.
    by_sample: bool = False,
) -> Start:
    """Return the initial network with random matrices from Gaussian rows."""
    directions, own, dtype = problem.fields.shape[1], counts(problem, neurons), raw[0].dtype
    outputs = problem.outputs * problem.maps[-1].reading.number
    fields, readout = raw[0][-directions:], raw[-1][:outputs]
    has = np.array([bool(affine.bias_std) for affine in problem.maps[:-1]])
    biases = [there * part[outputs : outputs + 1] for there, part in zip(has, raw[1:], strict=True)]
    if sampling == "variance_reduced":
        start = reduce_variance(problem, raw, fields, biases, has, readout, precision, by_sample)
    else:
        fields, readout, *biases = (
            pad_neurons(part, max(own)) for part in (fields, readout, *biases)
        )
        start = _without_directions(problem, fields, readout, np.concatenate([fields[:0], *biases]))
    return start._replace(live=live(problem, neurons, dtype))


def _raw(problem, rows, own, sampling, rng, dtype) -> list[np.ndarray]:
    """Return Gaussian rows of each layer; layers of one stream share a Sobol sequence."""
    streams = np.array(problem.streams)
    raw: list[Any] = [None] * len(streams)
    for stream in range(streams.max() + 1):
        layers = np.flatnonzero(streams == stream)
        drawn = initial(rows * len(layers), own[layers[0]], sampling, rng, dtype)
        for place, l in enumerate(layers):
            raw[l] = drawn[place * rows : (place + 1) * rows]
    return raw


def unit(problem: Problem, size: int, dtype) -> tuple[Start, tuple[int, ...]]:
    """Return a linear network in coordinates of fresh vectors, and their number in each stream."""
    used = [0] * (max(problem.streams) + 1)

    def unused(layer: int, rows: int) -> np.ndarray:
        stream = problem.streams[layer]
        used[stream] += rows
        found = np.eye(rows, size, used[stream] - rows, dtype=dtype)
        return found * float(problem.ratios[layer]) ** 0.5

    last = problem.hidden_layers - 1
    fields = unused(0, problem.fields.shape[1])
    biases = np.zeros((last, size), dtype)
    for l, affine in enumerate(problem.maps[:-1]):
        if affine.bias_std:
            biases[l] = unused(l + 1, 1)
    readout = unused(last, problem.outputs * problem.maps[-1].reading.number)
    return _without_directions(problem, fields, readout, biases), tuple(used)


def _without_directions(problem: Problem, fields, readout, biases) -> Start:
    none = [(fields[:0], np.tile(fields[:0], m.reading.number)) for m in problem.maps[:-1]]
    inputs, outputs = tuple((patch, one) for one, patch in none), tuple(none)
    readout = readout.reshape(problem.outputs, -1)
    kernels = np.zeros((0, problem.total, problem.samples))
    return Start(fields, readout, biases, inputs, outputs, None, kernels)


def _rates(problem: Problem) -> tuple[Any, ...]:
    """Return the rates of first fields, read-out, biases and matrices."""
    maps = problem.maps
    biases = np.reshape([affine.bias_rate for affine in maps[:-1]], (-1, 1))
    matrices = np.array([affine.rate for affine in maps[:-1]])
    return problem.field_rate[:, None], maps[-1].rate, biases, matrices


def _decay(problem: Problem, decay: float, dtype) -> Moving:
    """Return λ₀ of each trained variable; 0 for frozen ones."""
    *vectors, matrices = _rates(problem)
    rates = *vectors, 1.0, 1.0, matrices
    return Moving(*(jnp.asarray(decay * np.sign(rate), dtype) for rate in rates))


def _noise(problem: Problem, temperature: float, weight: Any, dtype) -> Noise | None:
    if not temperature:
        return None
    *vectors, matrices = _rates(problem)
    rates = *vectors, matrices * weight
    return Noise(*(jnp.asarray(np.sqrt(2 * temperature * np.asarray(r)), dtype) for r in rates))


def initial_matrices(start: Start, capacities: tuple[int, int]) -> Matrices:
    """Return matrices that are represented by the initial directions only."""
    neurons, dtype = start.fields.shape[1], start.fields.dtype
    patch = max((basis.shape[1] for basis, _ in start.inputs), default=neurons)
    inputs = fill_side(start.inputs, capacities[0], (patch, neurons), dtype)
    outputs = fill_side(start.outputs, capacities[1], (neurons, patch), dtype)
    change = jnp.zeros((len(start.inputs), *reversed(capacities)), dtype)
    return Matrices(inputs, outputs, change, None)


def begin(
    problem: Problem,
    run: Run,
    schedule: Schedule,
    start: Start,
    draws: Any,
    precision: Precision,
    matrices: AnyMatrices,
    hidden: int | None = None,
    chosen: np.ndarray | None = None,
) -> tuple[SweepState, SweepConstants]:
    """Return the initial state and the constants, on the device.

    ``matrices`` may be those of an earlier sweep of the same network, whose directions and images
    are then reused; their buffers are consumed. ``hidden`` is the network's number of matrices, if
    the problem has more; ``chosen`` are the neurons among those of a larger network, for
    matrices of type ``NeuronMatrices``.
    """
    dtype = start.fields.dtype
    optimizer = run.optimizer
    beta = momentum_of(optimizer)

    def real(value) -> jax.Array:
        return jnp.asarray(value, dtype)

    networks = 1 + len(start.kernels)
    params = Moving(
        fields=real(start.fields),
        readout=real(start.readout),
        biases=real(start.biases),
        constant=real(np.zeros(problem.outputs)),
        linear=real(np.zeros((len(start.kernels), problem.total, problem.outputs))),
        scale=real(np.ones(len(start.inputs))),
    )
    if isinstance(matrices, Matrices):
        matrices = matrices._replace(change=jnp.zeros_like(matrices.change))
    matrices = matrices._replace(velocity=jnp.zeros_like(matrices.change) if beta else None)
    state = SweepState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        velocity=jax.tree.map(jnp.zeros_like, params) if beta else None,
        matrices=matrices,
        draws=draws,
        outputs=real(
            np.full((len(schedule.rates), networks, problem.total, problem.outputs), np.nan)
        ),
    )
    y, maps = run.data.y_train, problem.maps
    readings = [affine.reading for affine in maps]
    positions = positions_of(readings, problem.positions, dtype)
    rows = problem.fields.reshape(problem.total, problem.positions[0], -1)
    rows = np.pad(rows, ((0, 0), (0, positions.places - problem.positions[0]), (0, 0)))
    constants = SweepConstants(
        positions=positions,
        fields=real(rows.reshape(-1, rows.shape[2])),
        field_rate=real(problem.field_rate),
        targets=real(y) if y.dtype.kind == "f" else jnp.asarray(y),
        anchors=None if start.anchors is None else real(start.anchors),
        std=real([affine.std for affine in maps]),
        rate=real([affine.rate * affine.std for affine in maps]),
        bias_std=real([affine.bias_std for affine in maps]),
        bias_rate=real([affine.bias_rate * affine.bias_std for affine in maps]),
        kernels=real(start.kernels),
        gamma=real(problem.gamma),
        decay=_decay(problem, optimizer.weight_decay, dtype),
        momentum=real(beta),
        rates=real(schedule.rates),
        precision=Precision(*map(real, precision)),
        ratios=real([float(ratio) for ratio in problem.ratios]),
        live=None if start.live is None else real(start.live),
        batches=None if run.batches is None else jnp.asarray(run.batches),
        noise=_noise(problem, temperature_of(optimizer), precision.weight, dtype),
        hidden=None if hidden is None else jnp.asarray(hidden, jnp.int32),
        chosen=None if chosen is None else jnp.asarray(chosen, jnp.int32),
    )
    return state, constants
