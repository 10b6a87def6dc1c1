"""Gaussian fields of the outputs of random matrices, drawn for representative neurons.

A matrix W that multiplies many neurons makes of values x, one row for each sample and position, a
Gaussian field y = W x + b that is independent from neuron to neuron, with the covariance

    K_y = σ_w² F Fᵀ + σ_b²,

where F are features with F Fᵀ the kernel of x, moved by the window of a convolution. Derivatives
along a random direction of all parameters have the covariance σ_w² (F Fᵀ + Ḟ Ḟᵀ) + σ_b², with the
features Ḟ of the derivative of x: at the outputs this is the tangent kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from largen.errors import OutOfMemory
from largen.reading.laws import Law

UNIFORM_EXCESS = -1.2
RANK = 1e-14  # eigenvalues below this fraction of the largest are rounding
MOST_ROWS = 8192  # samples and positions of which there is a covariance
SMALL = 1e-10  # the same where a covariance is inverted


class Use(NamedTuple):
    """A use of a random matrix: the values that it multiplies and what it does with positions."""

    value: np.ndarray  # with the channels last, (*rows, channel)
    derivative: np.ndarray | None  # the same of derivatives; None for data
    # Returns the features of the outputs, (*rows behind, taps · rank), of features (*rows, rank).
    move: Callable[[np.ndarray], np.ndarray]
    # σ_w² and σ_b², for the mean over channels and taps; the same times the rates of their
    # parameters, relative to their variances.
    weight_variance: float
    bias_variance: float
    weight_rate: float
    bias_rate: float


class Drawn(NamedTuple):
    """A field that was drawn: values and derivatives, (neuron, row), and its covariances."""

    value: np.ndarray
    derivative: np.ndarray
    covariance: np.ndarray
    tangent: np.ndarray
    rows: tuple[int, ...]


@dataclass
class Matrix:
    """A random matrix with all its uses so far."""

    uses: list[Use] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)


class Fields:
    """Random draws of one population."""

    def __init__(self, seed: int):
        self._generator = np.random.default_rng(seed)

    def use(self, matrix: Matrix, use: Use, neurons: int) -> Drawn:
        """Return the field of one more use of a matrix, given those of its earlier uses."""
        matrix.uses.append(use)
        rows = sum(math.prod(each.value.shape[:-1]) for each in matrix.uses)
        if rows > MOST_ROWS:
            raise OutOfMemory(
                f"net.kernel: {rows} samples and positions that one matrix multiplies have a "
                f"covariance of {rows**2 * 8 / 1e9:.2g} GB; populations take {MOST_ROWS}. Pass "
                "fewer samples at once."
            )
        K, T, own_rows = _covariances(matrix.uses)
        before = len(K) - math.prod(own_rows)
        past = matrix.drawn
        own, mean = _given(K, before, [each.value for each in past])
        own_t, mean_t = _given(T, before, [each.derivative for each in past])
        roots = _root(own), _root(own_t)
        known = [t for each in past for t in (each.value, each.derivative)]
        against = np.concatenate(known, 1) if known else None
        g = self.normal(neurons, sum(r.shape[1] for r in roots), against)
        rank = roots[0].shape[1]
        found = Drawn(
            g[:, :rank] @ roots[0].T + mean,
            g[:, rank:] @ roots[1].T + mean_t,
            K[before:, before:],
            T[before:, before:],
            own_rows,
        )
        past.append(found)
        return found

    def normal(self, neurons: int, count: int, against: np.ndarray | None = None) -> np.ndarray:
        """Return normal numbers (neuron, count), whose second moments over neurons are exact.

        They are so for few enough of them, as are those with the fields ``against``.
        """
        g = self._generator.standard_normal((neurons, count))
        others = 0 if against is None else against.shape[1]
        if not count or neurons <= 2 * (count + others) + 8:
            return g
        if against is not None:
            basis = against @ _root(against.T @ against, inverse=True)
            g = g - basis @ (basis.T @ g)
        q, _ = np.linalg.qr(g - g.mean(0))
        return q * np.sign((q * g).sum(0)) * math.sqrt(neurons)

    def entries(
        self, law: Law, shape: tuple[int, ...], neurons: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return entries of a law, and a random direction of the same variance, of a shape.

        ``neurons``: the axis that counts neurons. Uniform numbers are in equal parts of their
        interval, one for each neuron; other laws have their first four moments.
        """
        size = shape[neurons]
        count = math.prod(shape) // max(size, 1)
        std = math.sqrt(law.variance)
        z, direction = np.split(self.normal(size, 2 * count), 2, axis=1)
        # Of a uniform and a normal number, whose sum has the law's fourth moment.
        if part := math.sqrt(min(max(law.excess / UNIFORM_EXCESS, 0.0), 1.0)):
            rank = self._generator.random((size, count)).argsort(0)
            inside = self._generator.random((size, count))
            uniform = math.sqrt(3) * (2 * (rank + inside) / size - 1)
            z = math.sqrt(part) * uniform + math.sqrt(1 - part) * z
        others = [n for axis, n in enumerate(shape) if axis != neurons]

        def placed(numbers: np.ndarray) -> np.ndarray:
            return np.moveaxis(numbers.reshape(size, *others), 0, neurons)

        return law.mean + std * placed(z), std * placed(direction)


def _covariances(uses: list[Use]) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return K_y and that of derivatives, of all uses' rows, and the shape of the last one's."""
    last = uses[-1]
    features = _features(uses, [each.value for each in uses])
    F = np.concatenate([_flat(f) for f in features])
    moments = F @ F.T
    K = last.weight_variance * moments + last.bias_variance
    T = last.weight_rate * moments + last.bias_rate
    if any(each.derivative is not None for each in uses):
        slopes = [np.zeros_like(u.value) if u.derivative is None else u.derivative for u in uses]
        G = np.concatenate([_flat(f) for f in _features(uses, slopes)])
        T = T + last.weight_variance * G @ G.T
    return K, T, tuple(features[-1].shape[:-1])


def _features(uses: list[Use], values: list[np.ndarray]) -> list[np.ndarray]:
    """Return features of the outputs of all uses, whose products are their joint kernel."""
    rows = np.concatenate([_flat(value) for value in values])
    channels = rows.shape[1]
    root = rows / math.sqrt(channels) if channels <= len(rows) else _root(rows @ rows.T / channels)
    ends = np.cumsum([len(_flat(value)) for value in values])
    parts = np.split(root, ends[:-1])
    return [
        use.move(part.reshape(*value.shape[:-1], root.shape[1]))
        for use, value, part in zip(uses, values, parts, strict=True)
    ]


def _flat(value: np.ndarray) -> np.ndarray:
    """Return values with all rows in one axis."""
    return value.reshape(math.prod(value.shape[:-1]), value.shape[-1])


def _root(covariance: np.ndarray, inverse: bool = False) -> np.ndarray:
    """Return R with R Rᵀ equal to a covariance or its pseudoinverse, with its rank as columns."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > (SMALL if inverse else RANK) * np.maximum(values[-1:], 1e-300)
    return vectors[:, kept] * values[kept] ** (-0.5 if inverse else 0.5)


def _given(
    covariance: np.ndarray, before: int, past: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray | float]:
    """Return the covariance and the mean of the last entries given the first ones."""
    if not before:
        return covariance, 0.0
    across = covariance[before:, :before]
    inverse = _root(covariance[:before, :before], inverse=True)
    half = across @ inverse
    rest = covariance[before:, before:] - half @ half.T
    return rest, np.concatenate(past, 1) @ inverse @ half.T
