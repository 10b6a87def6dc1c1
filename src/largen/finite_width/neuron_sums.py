"""The distribution of the mean of φ(√S ξ)² over n independent Gaussians ξ, for many S at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from largen.errors import NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import values

_LATTICE = 4096  # places for sums of neurons
_NODES = 4096  # values of ξ
_REACH = 7.2  # |ξ| is larger with probability 6e-13
_SPREAD = 7.5  # standard deviations of a sum on either side of its mean
_MARGIN = 16  # places below 0, over which interpolation spreads the value 0


class LawOfMean(NamedTuple):
    """Distributions of a mean square T ≥ 0 for each S."""

    at_zero: np.ndarray  # the probability that T is exactly 0, (S,)
    # Values of T where one neuron alone is not 0, (S, node), and the probability of at most that;
    # None without such neurons.
    single: tuple[np.ndarray, np.ndarray] | None
    # Values of T where more are not, (S, place), and the probability of at most that.
    sums: tuple[np.ndarray, np.ndarray]
    # The smallest and the largest T that occur, but for probabilities below 1e-11, each (S,).
    ends: tuple[np.ndarray, np.ndarray]

    def cdf(self, t: np.ndarray) -> np.ndarray:
        """Return the probabilities that T is at most t > 0, (S, t)."""
        found = np.repeat(self.at_zero[:, None], len(t), axis=1)
        for part in (self.single, self.sums):
            if part is not None:
                found += [np.interp(t, *row, left=0.0) for row in zip(*part, strict=True)]
        return found


def law_of_mean(phi: ActivationFunction, S: np.ndarray, n: int, coarser: int = 1) -> LawOfMean:
    """Return the distribution of Σ_j φ(√S ξ_j)²/n for each S, (S,).

    The characteristic function of a sum is the n-th power of a neuron's, whose values lie on three
    places of a lattice that keep mean and variance exact. A neuron is 0 with probability p, as with
    relu; the terms with n or n − 1 such neurons are exact, as the density of one φ² diverges at 0.
    """
    ends = np.linspace(-_REACH, _REACH, _NODES // coarser + 1)
    masses = np.diff(ndtr(ends)) / (1 - 2 * ndtr(-_REACH))
    y = values(phi, np.sqrt(S)[:, None] * (ends[1:] + ends[:-1]) / 2)[0] ** 2
    if not np.isfinite(y).all():
        raise NumericalFailure(f"{phi}: its values overflow at the variance {S.max():.3g}.")
    # A sum of rounded masses is to be 1 where all neurons are 0.
    p = np.where((y == 0).all(axis=1), 1.0, np.where(y == 0, masses, 0).sum(axis=1))
    mean = y @ masses
    spread = _SPREAD * np.sqrt(n * (np.square(y - mean[:, None]) @ masses))
    low = np.maximum(n * mean - spread, n * y.min(axis=1))
    high = np.minimum(n * mean + spread + y.max(axis=1), n * y.max(axis=1))
    places = _LATTICE // coarser
    span = np.maximum(high - low, 1e-9 * np.where(mean > 0, n * mean, 1.0))
    step = span / (places - 2 * _MARGIN)
    one = np.fft.rfft(_on_lattice(y / step[:, None], masses, places))
    p_others = n * p ** (n - 1)
    many = one**n - (p**n + p_others * (one.T - p)).T
    first = np.floor(low / step) - _MARGIN
    at = first[:, None] + np.arange(places)
    sums = np.take_along_axis(np.fft.irfft(many, places), np.mod(at, places).astype(int), axis=1)
    # At half places above 0; what lies below is what interpolation spreads of small values.
    points = np.maximum(at + 0.5, 0) * step[:, None] / n
    cumulative = np.where(at < 0, 0, np.maximum(np.cumsum(sums, axis=1), 0))
    single = _single(y, masses, p_others, n) if (p_others > 1e-14).any() else None
    return LawOfMean(p**n, single, (points, cumulative), (low / n, high / n))


def _single(
    y: np.ndarray, masses: np.ndarray, p_others: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(y, axis=1)
    y = np.take_along_axis(y, order, axis=1)
    masses = np.where(y == 0, 0, masses[order])
    return y / n, p_others[:, None] * (np.cumsum(masses, axis=1) - masses / 2)


def _on_lattice(places: np.ndarray, masses: np.ndarray, count: int) -> np.ndarray:
    """Spread masses at real places over integers mod ``count``, (S, count)."""
    nearest = np.rint(places)
    d = places - nearest
    row = np.arange(len(places))[:, None] * count
    found = np.zeros(len(places) * count)
    for shift, share in ((-1, d * (d - 1) / 2), (0, 1 - d**2), (1, d * (d + 1) / 2)):
        at = row + np.mod(nearest + shift, count).astype(int)
        found += np.bincount(at.ravel(), (share * masses).ravel(), len(found))
    return found.reshape(len(places), count)
