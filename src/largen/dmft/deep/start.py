"""The state at initialisation.

In the variance-reduced mode everything that is exact at initialisation in the limit is made
exact: the covariances of fields given the kernels below them, f(0) = 0, and the tangent kernel.
What the neurons' own tangent kernel is short of the exact one is added as a model whose features
stand still, so that the limit γ₀ → 0 is the kernel limit, with any number of neurons.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.dmft.deep.initial_kernels import initial_tangent, tangent
from largen.dmft.deep.innovations import Mode, frame, initial, orthonormal
from largen.dmft.deep.matrix import Matrix, Precision, Side
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.schedule import Schedule
from largen.dmft.deep.state import Constants, Moving, State, empty_side, filled_side
from largen.parameterizations import GradientDescent
from largen.runs import Run


class Start(NamedTuple):
    """Initial values, as NumPy arrays.

    Attributes
    ----------
    fields, readout, biases
        Standard Gaussian parameters.
    inputs, outputs
        Directions and innovations of each matrix at initialisation.
    anchors
        All innovations of each layer.
    frozen_kernel
        What the tangent kernel of the neurons is short of.
    """

    fields: np.ndarray
    readout: np.ndarray
    biases: tuple[np.ndarray, ...]
    inputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    outputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    anchors: tuple[np.ndarray | None, ...]
    frozen_kernel: np.ndarray


def fewest(problem: Problem) -> int:
    """Return the fewest neurons for which directions at initialisation are few among them."""
    return max(8 * problem.columns + 4 * problem.outputs, 64)


def draw(
    problem: Problem,
    mode: Mode,
    neurons: int,
    rng: np.random.Generator,
    precision: Precision,
    dtype,
) -> Start:
    """Draw a network of random matrices at initialisation."""
    directions = problem.fields.shape[1]
    behind = problem.outputs + 1
    rows = behind + problem.columns + max(problem.columns, directions)
    raw = [initial(rows, neurons, mode, rng, dtype) for _ in problem.phi]
    fields, readout = raw[0][-directions:], raw[-1][: problem.outputs]
    biases = tuple(
        rows[problem.outputs : behind] if has else rows[:0]
        for rows, has in zip(raw, _biased(problem), strict=True)
    )
    if mode == "variance_reduced":
        return _reduced(problem, raw, fields, biases, readout, precision)
    return _without_directions(problem, fields, readout, biases)


def unit(problem: Problem, size: int, dtype) -> tuple[Start, tuple[int, ...]]:
    """Return a linear network in coordinates of its innovations, and how many each layer used."""
    identity = np.eye(size, dtype=dtype)
    biases = tuple(identity[: int(has)] for has in _biased(problem))
    used = [problem.fields.shape[1], *map(len, biases[1:])]
    readout = identity[used[-1] : used[-1] + problem.outputs]
    used[-1] += problem.outputs
    start = _without_directions(problem, identity[: problem.fields.shape[1]], readout, biases)
    return start, tuple(used)


def _biased(problem: Problem) -> list[bool]:
    """Whether each hidden layer has a bias of its own; the first one's is among the fields."""
    return [False, *(bool(affine.bias_std) for affine in problem.maps[:-1])]


def _without_directions(problem: Problem, fields, readout, biases) -> Start:
    nothing = (fields[:0], fields[:0])
    matrices = (nothing,) * (problem.hidden_layers - 1)
    kernel = np.full((problem.columns, problem.samples), problem.maps[-1].bias_kernel_rate)
    anchors = (None,) * problem.hidden_layers
    return Start(fields, readout, biases, matrices, matrices, anchors, kernel)


def _reduced(problem, raw, fields, biases, readout, precision) -> Start:
    samples, columns = problem.samples, problem.columns
    neurons, dtype = fields.shape[1], fields.dtype
    kernel_scale = 1 / neurons
    fields = orthonormal(fields, fields[:0])
    anchors = [fields]
    h = problem.fields.astype(dtype) @ fields
    hs, features, inputs = [h], [_values(problem.phi[0], h)], []
    for l in range(1, problem.hidden_layers):
        basis, c = new_directions(features[-1], precision)
        fresh = raw[l][-columns:][: len(basis)]
        both = orthonormal(np.concatenate([biases[l], fresh]), fresh[:0])
        bias, xi = both[: len(biases[l])], both[len(biases[l]) :]
        biases = (*biases[:l], bias, *biases[l + 1 :])
        affine = problem.maps[l - 1]
        h = affine.std * (c.T @ xi)
        if len(bias):
            h = h + affine.bias_std * bias
        hs.append(h)
        features.append(_values(problem.phi[l], h))
        inputs.append((basis, xi))
        anchors.append(both)
    readout = orthonormal(readout, np.concatenate([anchors[-1], features[-1]]))
    anchors[-1] = np.concatenate([anchors[-1], readout])
    kernel = np.full((columns, samples), problem.maps[-1].bias_kernel_rate)
    outputs: list[Any] = [(fields[:0], fields[:0])] * len(inputs)
    if problem.outputs == 1:
        g = [_values(problem.phi[-1].derivative, hs[-1]) * readout * problem.maps[-1].std]
        for l in reversed(range(len(inputs))):
            start = problem.outputs + 1
            fresh = raw[l][start : start + columns]
            basis, xi, z = _transposed(g[0], samples, fresh, inputs[l], anchors[l], precision)
            outputs[l] = (basis, xi)
            z = problem.maps[l].std * z
            g.insert(0, _values(problem.phi[l].derivative, hs[l]) * z)
            anchors[l] = np.concatenate([anchors[l], xi])
        # Gradients of training samples are among the bases from which innovations keep away.
        anchors = [np.concatenate([a, part[samples:]]) for a, part in zip(anchors, g, strict=True)]
        kernels = [
            [kernel_scale * (part @ part[:samples].T).astype(np.float64) for part in parts]
            for parts in (features, g)
        ]
        kernel = kernel + initial_tangent(problem) - tangent(problem, *kernels)
    for l, (basis, _) in enumerate(outputs, 1):
        anchors[l] = anchors[l] - (anchors[l] @ basis.T / neurons) @ basis
    frames = tuple(map(frame, anchors))
    return Start(fields, readout, biases, tuple(inputs), tuple(outputs), frames, kernel)


def _transposed(g, samples, fresh, inputs, anchors, precision):
    """Return directions and innovations of training gradients, and the image of all gradients.

    Test samples leave no directions: what is new in their gradients is uncorrelated with all
    else, and only correlations with training samples matter.
    """
    neurons = g.shape[1]
    features, answers = inputs
    basis, _ = new_directions(g[:samples], precision)
    response = answers @ basis.T / neurons
    # The images of orthonormal directions are orthonormal, response included.
    wanted = np.eye(len(basis)) - response.T @ response
    xi = orthonormal(fresh[: len(basis)], np.concatenate([features, anchors]), wanted)
    return basis, xi, (g @ basis.T / neurons) @ xi + (g @ answers.T / neurons) @ features


def new_directions(x: np.ndarray, precision: Precision) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthonormal basis of rows, up to the tolerance, and their coordinates in it."""
    neurons = x.shape[1]
    gram = (x @ x.T / neurons).astype(np.float64)
    size = np.sqrt(np.diag(gram)) + np.finfo(x.dtype).tiny
    values, vectors = np.linalg.eigh(gram / (size[:, None] * size))
    keep = values > precision.tolerance**2
    mix = (vectors[:, keep] / np.sqrt(values[keep]) / size[:, None]).astype(x.dtype)
    basis = mix.T @ x
    root = np.linalg.cholesky((basis @ basis.T / neurons).astype(np.float64))
    basis = np.linalg.solve(root, basis).astype(x.dtype)
    return basis, basis @ x.T / neurons


def _values(function, h: np.ndarray) -> np.ndarray:
    with in_precision(h):
        return np.array(function(jnp.asarray(h)))


def begin(
    problem: Problem,
    run: Run,
    schedule: Schedule,
    start: Start,
    draws: tuple[Any, ...],
    precision: Precision,
    capacities: tuple[tuple[int, int], ...],
    known: tuple[Matrix, ...] = (),
) -> tuple[State, Constants]:
    """Return the initial state and the constants, on the device.

    ``known`` are the matrices of an earlier sweep of the same network, whose answers then hold
    for this one too; they are used up.
    """
    dtype = start.fields.dtype
    optimizer = run.optimizer
    beta = optimizer.momentum if isinstance(optimizer, GradientDescent) else 0.0

    def real(value) -> jax.Array:
        return jnp.asarray(value, dtype)

    neurons = start.fields.shape[1]
    params = Moving(
        fields=real(start.fields),
        readout=real(start.readout),
        biases=tuple(map(real, start.biases)),
        frozen=real(np.zeros((problem.columns, problem.outputs))),
        scale=real(1.0),
    )
    matrices = tuple(
        Matrix(
            _side(inputs, capacity[0], neurons, dtype),
            _side(outputs, capacity[1], neurons, dtype),
            jnp.zeros((capacity[1], capacity[0]), dtype),
            jnp.zeros((capacity[1], capacity[0]), dtype) if beta else None,
        )
        for inputs, outputs, capacity in zip(start.inputs, start.outputs, capacities, strict=True)
    )
    if known:
        matrices = tuple(
            Matrix(
                matrix.inputs,
                matrix.outputs,
                jnp.zeros_like(matrix.change),
                None if matrix.velocity is None else jnp.zeros_like(matrix.change),
            )
            for matrix in known
        )
    state = State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        velocity=jax.tree.map(jnp.zeros_like, params) if beta else None,
        matrices=matrices,
        draws=draws,
        outputs=real(np.full((len(schedule.rates), problem.columns, problem.outputs), np.nan)),
    )
    y, maps = run.data.y_train, problem.maps
    constants = Constants(
        fields=real(problem.fields),
        field_rate=real(problem.field_rate),
        targets=real(y) if y.dtype.kind == "f" else jnp.asarray(y),
        anchors=tuple(None if a is None else real(a) for a in start.anchors),
        std=real([affine.std for affine in maps]),
        rate=real([affine.rate * affine.std for affine in maps]),
        bias_std=real([affine.bias_std for affine in maps]),
        bias_rate=real([affine.bias_rate * affine.bias_std for affine in maps]),
        frozen_kernel=real(start.frozen_kernel),
        gamma=real(problem.gamma),
        decay=real(optimizer.weight_decay),
        momentum=real(beta),
        rates=real(schedule.rates),
        precision=Precision(*map(real, precision)),
        batches=None if run.batches is None else jnp.asarray(run.batches),
    )
    return state, constants


def _side(found: tuple[np.ndarray, np.ndarray], capacity: int, neurons: int, dtype) -> Side:
    if not len(found[0]):
        return empty_side(capacity, neurons, dtype)
    return filled_side(*found, capacity)
