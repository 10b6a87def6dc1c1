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
    network = _Network(problem, raw, precision, by_sample)
    fields, biases = network.forward(fields, biases, has)
    readout = network.read_out(readout)
    kernels = np.zeros((0, problem.total, problem.samples))
    # With averages over a batch there is neither a gradient of each sample nor an exact kernel.
    if problem.outputs == 1 and not problem.coupled:
        network.backward(readout)
        kernels = np.stack([initial_tangent(problem), network.tangent()])
    frames = network.frames()
    most, longest = max(map(len, frames)), max(network.neurons)
    orthogonal = [np.pad(rows, ((0, most - len(rows)), (0, 0))) for rows in frames]

    def filled(parts: Iterable[np.ndarray]) -> list[np.ndarray]:
        return [pad_neurons(part, longest) for part in parts]

    fields, readout = filled([fields, readout])
    return Start(
        fields,
        readout,
        np.concatenate([fields[:0], *filled(biases)]),
        tuple((basis, xi) for basis, xi in map(filled, network.inputs)),
        tuple((basis, xi) for basis, xi in map(filled, network.outputs)),
        np.stack(filled(orthogonal)),
        kernels,
    )


class _Network:
    """Fields h, features φ(h) and gradients g of all layers, while rows are made orthogonal."""

    def __init__(
        self, problem: Problem, raw: list[np.ndarray], precision: Precision, by_sample: bool
    ):
        self._problem, self._raw, self._precision = problem, raw, precision
        self._by_sample, self._weight = by_sample, float(precision.weight)
        self.neurons = [part.shape[1] for part in raw]
        self._group = _groups(problem, min(self.neurons))
        self._tap_by_tap = _apart(problem, min(self.neurons))
        self._taps = [affine.reading.taps.astype(raw[0].dtype) for affine in problem.maps]
        # By group of layers, the rows to which further ones are made orthogonal.
        self._anchors: list[list[np.ndarray]] = [[] for _ in range(max(self._group) + 1)]
        self._h: list[np.ndarray] = []
        self._features: list[np.ndarray] = []
        self._g: list[np.ndarray] = []
        # Directions and images of each hidden matrix, forward and backward.
        self.inputs: list[tuple[np.ndarray, np.ndarray]] = []
        self.outputs = [
            (after[:0], np.tile(before[:0], len(each)))
            for each, (before, after) in zip(self._taps[:-1], pairwise(raw), strict=True)
        ]

    def _apart_from(self, l: int) -> np.ndarray:
        """Return the rows to which those of a layer are orthogonal."""
        return np.concatenate([self._raw[l][:0], *self._anchors[self._group[l]]])

    def _values(self, l: int) -> np.ndarray:
        return values_at(self._problem.phi[l], self._h[l], self._problem.positions[l])

    def _pull_back(self, l: int, z: np.ndarray) -> np.ndarray:
        return pull_back_at(self._problem.phi[l], self._h[l], z, self._problem.positions[l])

    def forward(
        self, fields: np.ndarray, biases: list[np.ndarray], has: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Make fields and features of all layers; return the first layer's rows, and biases."""
        problem, biases = self._problem, list(biases)
        fields = orthonormal(fields, fields[:0])
        self._anchors[self._group[0]].append(fields)
        self._h = [problem.fields.astype(fields.dtype) @ fields]
        self._features = [self._values(0)]
        for l, (affine, skip) in enumerate(zip(problem.maps[:-1], problem.skips, strict=True)):
            basis, c, turn = new_directions(
                gather(self._taps[l], self._features[l]), self._precision
            )
            fresh = _rows(self._raw[l + 1][-problem.columns :], turn, self._by_sample)
            rows = np.concatenate([biases[l][: int(has[l])], fresh])
            both = orthonormal(rows, self._apart_from(l + 1))
            if problem.quiet and problem.into_stream[l]:
                both = np.zeros_like(both)
            xi = both[int(has[l]) :]
            image = affine.std * (c.T @ xi)
            if has[l]:
                biases[l] = both[:1]
                image = image + affine.bias_std * both[0]
            self._h.append(image + self._h[skip] if skip >= 0 else image)
            self._features.append(self._values(l + 1))
            self.inputs.append((basis, xi))
            self._anchors[self._group[l + 1]].append(both)
        self._g = [np.zeros_like(x) for x in self._h]
        return fields, biases

    def read_out(self, readout: np.ndarray) -> np.ndarray:
        """Return the read-out's rows, orthogonal to the features: f(0) = 0."""
        last = len(self._problem.skips)
        rows = np.concatenate([self._apart_from(last), self._features[-1]])
        readout = orthonormal(readout, rows)
        self._anchors[self._group[-1]].append(readout)
        return readout.reshape(self._problem.outputs, -1)

    def backward(self, readout: np.ndarray) -> None:
        """Make the gradients of all layers."""
        problem, taps, maps = self._problem, self._taps, self._problem.maps
        z = scatter(taps[-1], np.repeat(readout, problem.total, 0))
        self._g[-1] = self._pull_back(len(maps) - 1, z) * maps[-1].std
        start = len(taps[-1]) + 1
        for l in reversed(range(len(self.inputs))):
            basis, xi, z = _transpose(
                self._g[l + 1],
                problem.samples * problem.positions[l + 1],
                self._raw[l][start:],
                self.inputs[l],
                (self._features[l], self._apart_from(l)),
                self._tap_by_tap,
                self._precision,
                self._by_sample,
                problem.quiet and problem.from_stream[l],
            )
            self.outputs[l] = (basis, xi)
            if problem.skips[l] >= 0:
                self._g[problem.skips[l]] += self._g[l + 1]
            z = scatter(taps[l], z)
            self._g[l] += maps[l].std * self._pull_back(l, z)
            if self._tap_by_tap:
                self._anchors[self._group[l]].append(xi.reshape(-1, self.neurons[l]))

    def tangent(self) -> np.ndarray:
        """Return the tangent kernel of these neurons."""
        samples, total = self._problem.samples, self._problem.total
        read = [gather(*pair) for pair in zip(self._taps, self._features, strict=True)]
        phi, gradients = (
            [
                (x @ x[: samples * (len(x) // total)].T).astype(np.float64) * self._weight
                for x in parts
            ]
            for parts in (read, self._g)
        )
        return tangent(self._problem, phi, gradients)

    def frames(self) -> list[np.ndarray]:
        """Return orthonormal rows of each layer, to which later fresh vectors are orthogonal.

        Gradients of training samples are already in the bases to which these are orthogonal.
        """
        bases = [self._raw[0][:0], *(basis for basis, _ in self.outputs)]
        positions = zip(self._g, self._problem.positions, strict=True)
        tests = [x[self._problem.samples * each :] for x, each in positions]
        return [
            _frame(np.concatenate([self._apart_from(l), test]), basis, self._weight)
            for l, (test, basis) in enumerate(zip(tests, bases, strict=True))
        ]


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


def values_at(phi: LayerActivation, h: np.ndarray, positions: int = 1) -> np.ndarray:
    """Return φ(h) in the precision of h."""
    with in_precision(h):
        return np.array(phi(_by_position(h, positions))).reshape(h.shape)


def pull_back_at(
    phi: LayerActivation, h: np.ndarray, z: np.ndarray, positions: int = 1
) -> np.ndarray:
    """Return φ'(h)z in the precision of h; see :func:`pull_back`."""
    with in_precision(h):
        at, z = slopes(phi, _by_position(h, positions)), np.broadcast_to(z, h.shape)
        return np.array(pull_back(phi, at, _by_position(z, positions))).reshape(h.shape)


def _by_position(x: np.ndarray, positions: int):
    return jnp.asarray(x).reshape(-1, positions, x.shape[-1])
