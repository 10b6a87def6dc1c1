"""The variance-reduced state at initialisation.

Averages at initialisation that are known in the limit are made exact: the covariances of fields
given the kernels of the layer below, and f(0) = 0. The difference between the tangent kernel of the
neurons and the exact one is corrected in the outputs afterwards
(``estimation/control_variate.py``).

Layers of a residual stream share their neurons: the vectors drawn for one layer are made orthogonal
to those of the others, as long as there are four times as many neurons as vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.theories.chains.normalized import LayerActivation, pull_back, slopes
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import Precision
from largen.theories.mean_field.deep.matrices.fresh_vectors import (
    frame,
    orthonormal,
    reorthonormalise,
)
from largen.theories.mean_field.deep.sweep.initial_kernels import initial_tangent, tangent
from largen.theories.mean_field.deep.sweep.layer_widths import pad_neurons
from largen.theories.mean_field.deep.sweep.patches import gather, scatter
from largen.theories.mean_field.deep.sweep.state import Start


def reduce_variance(
    problem: Problem,  # the network, with its samples
    raw: list[np.ndarray],  # Gaussian rows of each hidden layer, with one entry per neuron
    # fields, biases, readout: Gaussian parameters, made of other rows.
    fields: np.ndarray,
    biases: list[np.ndarray],
    has: np.ndarray,  # whether each hidden layer after the first has a bias
    readout: np.ndarray,
    precision: Precision,  # the precision of the directions
    # Whether each Gaussian row belongs to a sample instead of a direction, so that networks with
    # nearly the same features have nearly the same images of them. (Directions are eigenvectors,
    # whose signs and order are arbitrary.)
    by_sample: bool = False,
) -> Start:
    """Return a network of random matrices that is exact at initialisation."""
    samples, maps, skips, positions = (
        problem.samples,
        problem.maps,
        problem.skips,
        problem.positions,
    )
    own, dtype = [part.shape[1] for part in raw], fields.dtype
    weight = float(precision.weight)
    group, tap_by_tap = _groups(problem, min(own)), _apart(problem, min(own))
    taps = [affine.reading.taps.astype(dtype) for affine in maps]
    anchors: list[list[np.ndarray]] = [[] for _ in range(max(group) + 1)]

    def apart(l: int) -> np.ndarray:
        return np.concatenate([raw[l][:0], *anchors[group[l]]])

    fields, biases = orthonormal(fields, fields[:0]), list(biases)
    anchors[group[0]].append(fields)
    h = [problem.fields.astype(dtype) @ fields]
    features, inputs = [values_at(problem.phi[0], h[0])], []
    for l, (affine, skip) in enumerate(zip(maps[:-1], skips, strict=True)):
        basis, c, turn = new_directions(gather(taps[l], features[l]), precision)
        fresh = _rows(raw[l + 1][-problem.columns :], turn, by_sample)
        rows = np.concatenate([biases[l][: int(has[l])], fresh])
        both = orthonormal(rows, apart(l + 1))
        if problem.quiet and problem.into_stream[l]:
            both = np.zeros_like(both)
        xi = both[int(has[l]) :]
        image = affine.std * (c.T @ xi)
        if has[l]:
            biases[l] = both[:1]
            image = image + affine.bias_std * both[0]
        h.append(image + h[skip] if skip >= 0 else image)
        features.append(values_at(problem.phi[l + 1], h[-1]))
        inputs.append((basis, xi))
        anchors[group[l + 1]].append(both)
    readout = orthonormal(readout, np.concatenate([apart(len(skips)), features[-1]]))
    anchors[group[-1]].append(readout)
    readout = readout.reshape(problem.outputs, -1)
    kernels = np.zeros((0, problem.total, samples))
    outputs = [
        (after[:0], np.tile(before[:0], len(each)))
        for each, (before, after) in zip(taps[:-1], pairwise(raw), strict=True)
    ]
    g = [np.zeros_like(x) for x in h]
    if problem.outputs == 1:
        z = scatter(taps[-1], np.repeat(readout, problem.total, 0))
        g[-1] = pull_back_at(problem.phi[-1], h[-1], z) * maps[-1].std
        start = len(taps[-1]) + 1
        for l in reversed(range(len(inputs))):
            basis, xi, z = _transpose(
                g[l + 1],
                samples * positions[l + 1],
                raw[l][start:],
                inputs[l],
                (features[l], apart(l)),
                tap_by_tap,
                precision,
                by_sample,
                problem.quiet and problem.from_stream[l],
            )
            outputs[l] = (basis, xi)
            if skips[l] >= 0:
                g[skips[l]] += g[l + 1]
            z = scatter(taps[l], z)
            g[l] += maps[l].std * pull_back_at(problem.phi[l], h[l], z)
            if tap_by_tap:
                anchors[group[l]].append(xi.reshape(-1, own[l]))
        read = [gather(*pair) for pair in zip(taps, features, strict=True)]
        phi, gradients = (
            [
                (x @ x[: samples * (len(x) // problem.total)].T).astype(np.float64) * weight
                for x in parts
            ]
            for parts in (read, g)
        )
        kernels = np.stack([initial_tangent(problem), tangent(problem, phi, gradients)])
    bases = [fields[:0], *(basis for basis, _ in outputs)]
    # Gradients of training samples are already in the bases to which fresh vectors are orthogonal.
    tests = [x[samples * each :] for x, each in zip(g, positions, strict=True)]
    frames = [_frame(np.concatenate([apart(l), tests[l]]), bases[l], weight) for l in range(len(h))]
    most, longest = max(map(len, frames)), max(own)
    orthogonal = [np.pad(rows, ((0, most - len(rows)), (0, 0))) for rows in frames]

    def filled(parts: Iterable[np.ndarray]) -> list[np.ndarray]:
        return [pad_neurons(part, longest) for part in parts]

    fields, readout = filled([fields, readout])
    return Start(
        fields,
        readout,
        np.concatenate([fields[:0], *filled(biases)]),
        tuple((basis, xi) for basis, xi in map(filled, inputs)),
        tuple((basis, xi) for basis, xi in map(filled, outputs)),
        np.stack(filled(orthogonal)),
        kernels,
    )


def _groups(problem: Problem, neurons: int) -> tuple[int, ...]:
    """Return groups of layers with mutually orthogonal fresh vectors: streams, or single layers."""
    streams = problem.streams
    longest = int(np.bincount(streams).max())
    drawn = (1 + (problem.taps if _apart(problem, neurons) else 0)) * problem.columns
    few = longest * (drawn + problem.outputs + 1) <= neurons // 4
    return streams if few else tuple(range(len(streams)))


def _frame(rows: np.ndarray, basis: np.ndarray, weight: float) -> np.ndarray:
    found = frame(rows - weight * (rows @ basis.T) @ basis)
    return found / np.sqrt(weight * rows.shape[1]).astype(rows.dtype)


def _apart(problem: Problem, neurons: int) -> bool:
    """Whether there are enough neurons for images that are orthonormal for each tap."""
    taps = [affine.reading.number for affine in problem.maps[:-1]]
    ends = zip(problem.positions, taps, problem.positions[1:], strict=False)
    most = [
        2 * problem.total * before + number * problem.samples * behind
        for before, number, behind in ends
    ]
    return 5 * max(most, default=0) <= 2 * neurons


def _rows(fresh: np.ndarray, turn: np.ndarray, by_sample: bool) -> np.ndarray:
    """Return a Gaussian row for each direction: its own, or a rotation of those of the samples."""
    columns, directions = turn.shape
    return turn.T.astype(fresh.dtype) @ fresh[:columns] if by_sample else fresh[:directions]


def _transpose(g, known, fresh, inputs, avoided, tap_by_tap, precision, by_sample, muted=False):
    """Return directions and images of training gradients, and the image of all gradients.

    Test samples add no directions: the new components of their gradients are uncorrelated with all
    other vectors, and only correlations with training samples matter. The images of orthonormal
    directions are orthonormal, response included, for each tap and between taps; with few neurons,
    for the sum over taps only. ``muted`` images are zero, which leaves the response.
    """
    weight, neurons = precision.weight, fresh.shape[1]
    patches, answers = inputs
    features, anchors = avoided
    basis, _, turn = new_directions(g[:known], precision)
    taps = patches.shape[1] // neurons
    response = weight * (answers @ basis.T).T @ patches
    if taps == 1:
        features = patches
    else:  # the features of patches, in the precision that a basis of them needs
        features, anchors = features.astype(np.float64), anchors.astype(np.float64)
    size, together = len(basis) * taps, 1 if tap_by_tap else taps
    each = response.reshape(size, neurons) if tap_by_tap else response
    wanted = together * np.eye(len(each)) - each @ each.T / neurons
    avoid = np.concatenate([features, anchors])
    if taps == 1:
        fresh = _rows(fresh, turn, by_sample)
    xi = orthonormal(fresh[:size], avoid, wanted, together)
    xi = (not muted) * xi.reshape(len(basis), taps * neurons).astype(g.dtype)
    return basis, xi, weight * ((g @ basis.T) @ xi + (g @ answers.T) @ patches)


def new_directions(
    x: np.ndarray, precision: Precision
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an orthonormal basis of rows, up to the tolerance, and their coordinates in it.

    The third array contains the eigenvectors from which the basis is made, ``(row, direction)``.
    """
    weight = float(precision.weight)
    gram = (weight * (x @ x.T)).astype(np.float64)
    size = np.sqrt(np.diag(gram))
    size = np.where(size > 0, size, 1)
    values, vectors = np.linalg.eigh(gram / (size[:, None] * size))
    keep = values > precision.tolerance**2
    mix = (vectors[:, keep] / np.sqrt(values[keep]) / size[:, None]).astype(x.dtype)
    basis = reorthonormalise(mix.T @ x, weight)
    return basis, weight * (basis @ x.T), vectors[:, keep]


def values_at(phi: LayerActivation, h: np.ndarray) -> np.ndarray:
    """Return φ(h) in the precision of h."""
    with in_precision(h):
        return np.array(phi(jnp.asarray(h)))


def pull_back_at(phi: LayerActivation, h: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return φ'(h)z in the precision of h; see :func:`pull_back`."""
    with in_precision(h):
        return np.array(pull_back(phi, slopes(phi, jnp.asarray(h)), jnp.asarray(z)))
