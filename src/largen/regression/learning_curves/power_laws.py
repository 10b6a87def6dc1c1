"""Power laws of spectra, and the exponents of errors that follow from them.

With λ_i ~ i^(−a) and v_i² ~ i^(−b): n samples without a ridge determine the effective ridge
κ ~ n^(−a), and leave Σ v_i²κ²/(λ_i + κ)² ~ n^(−min(b − 1, 2a)); k features leave
Σ v_i²κ/(λ_i + κ) ~ k^(−min(b − 1, a)). In t steps of one pass of stochastic gradient descent at a
rate η (1 for a > 1, k^(a − 1) for a < 1, where the largest rate falls with the trace of modes whose
number is in proportion to k), with r = ηt, errors are the sum of

    k^(−min(b − 1, a)),   r^(−(b − 1)/a),   and, if a > 1/2, η r^(−2 + 1/a),   and, if a > 1 and
    b − a > 1, k^(−1) r^(−1 + 1/a),

what features lack, what is not learned yet, noise of gradients, and what features distort. They
follow from the generating function of ``descent.py`` at a rate s ~ 1/r, with κ(1 − z(κ)/k) = s:

* κ ~ k^(−a) for s = 0, as above;
* Σ v_i² e^(−2λ_i r) is the power of modes with λ_i < 1/r, i > r^(1/a);
* the kernel of the recursion is η Σ λ_i² e^(−2λ_i r) ~ η r^(−2 + 1/a). For a < 1/2 its last modes
  dominate: until r ~ k^a it is η k^(1 − 2a) = k^(−a), no more than what features lack;
* κ = s + s z(s)/k + … with z(s) ~ s^(−1/a): for a finite Σ v_i²/λ_i this adds s^(1 − 1/a)/k to
  Σ v_i²κ/(λ_i + κ), which is k^(−1) r^(−1 + 1/a) in time.

The best share of compute is where the largest of these is smallest, a linear program in
log k/log C, with t = C/k. Phases have the names of Paquette et al. (2024), whose 2α and 2β are a
and b − a; their limits are where other parts are the largest.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from largen.errors import InvalidInput
from largen.regression.learning_curves.effective_ridge import effective_ridge
from largen.regression.learning_curves.extrapolation import power_law
from largen.regression.learning_curves.modes import Modes
from largen.regression.learning_curves.population import Population

_LEAST, _MOST, _SIZES = 0.02, 0.3, 12  # numbers of samples where laws are fitted, of all samples
_FIRST, _LAST = 0.002, 0.5  # modes of a population where they are: from 0.1 % to half of them
_FEWEST = 4  # samples, or ranges of modes
_NOISY = 0.5  # a from which on noise of gradients falls as a power of time


class Laws(NamedTuple):
    """λ_i ~ i^(−a), v_i² ~ i^(−b)."""

    a: float
    b: float


class Compute(NamedTuple):
    """Exponents of the best error and of the best width in compute, and the phase."""

    error: float
    width: float
    phase: str


class _Equal(Modes):
    """Modes of M samples that are all alike."""

    def spare(self, total: Any) -> Any:
        """Return M − df from the sum of the unlearned parts."""
        return total

    def spare_slope(self, slope: Any) -> Any:
        """Return the derivative of the same by log μ, from that of the sum."""
        return slope


def fit(population: Population) -> Laws:
    """Fit laws to the means of eigenvalues and power in ranges of modes whose ends are in ratio."""
    last = _LAST * population.rank
    edges = np.unique(np.geomspace(max(_FIRST * last, _FEWEST), last, _SIZES).astype(int))
    counts, middle = np.diff(edges), np.sqrt(edges[1:] * (edges[:-1] + 1.0))
    means = [
        np.add.reduceat(values, edges)[:-1] / counts
        for values in (population.values, population.power.sum(axis=1))
    ]
    known = means[1] > 0
    if known.sum() < _FEWEST:
        raise InvalidInput("task: too few modes have power for a power law of it.")
    return Laws(-_slope(middle, means[0]), -_slope(middle[known], means[1][known]))


def fit_to_samples(population: Population, samples: int) -> Laws:
    """Fit a to effective ridges of n samples of a pool, and b to errors without a ridge.

    Both are those of the population, not of the pool: n of its samples are n samples of it, so
    that κ = ν/(M − n) and errors of alike samples have no bias by the pool's last modes.
    """
    n = np.geomspace(max(_LEAST * samples, _FEWEST), _MOST * samples, _SIZES)
    equal = _Equal(population.values * samples)
    nu = np.array([effective_ridge(equal, m, 0.0) for m in n])
    left = equal.unlearned(nu)
    total, once, p = left.sum(axis=1), (left * (1 - left)).sum(axis=1), n / samples
    slope = samples / total - samples * once / total**2
    errors = p / (1 - (1 - p) * slope) * samples**2 / total**2
    errors = errors * (left**2 @ population.power.sum(axis=1))
    law = power_law([float(m) for m in n], errors[:, None], step=0.01)
    return Laws(-_slope(n, nu / (samples - n)), 1 + float(law.decay[0]))


def _slope(n: np.ndarray, values: np.ndarray) -> float:
    return float(np.polyfit(np.log(n), np.log(values), 1)[0])


def in_samples(laws: Laws) -> float:
    """Return c in E ~ n^(−c) for many features and no ridge."""
    return min(laws.b - 1, 2 * laws.a)


def in_width(laws: Laws) -> float:
    """Return c in E ~ k^(−c) for many samples."""
    return min(laws.b - 1, laws.a)


def in_steps(laws: Laws) -> float:
    """Return c in E ~ t^(−c) of one pass of stochastic gradient descent with many features."""
    learned = (laws.b - 1) / laws.a
    return learned if laws.a <= _NOISY else min(learned, 2 - 1 / laws.a)


def in_compute(laws: Laws) -> Compute:
    """Return exponents in C = kt at the best k."""
    a, b = laws
    if b <= 1:  # targets of infinite power
        return Compute(np.nan, np.nan, "none")
    eta = min(a - 1, 0.0)  # η ~ k^eta; r = ηt ~ C^(1 − x + eta x) with k = C^x
    along = np.array([1.0, eta - 1])  # r: constant and factor of x
    terms = [np.array([0.0, in_width(laws)]), (b - 1) / a * along]
    if a > _NOISY:
        terms.append((2 - 1 / a) * along + [0.0, -eta])
    if a > 1 and b - a > 1:
        terms.append((1 - 1 / a) * along + [0.0, 1.0])
    points = [0.0, 1.0]
    for first, second in combinations(terms, 2):
        (constant, factor) = first - second
        if factor and 0 < -constant / factor < 1:
            points.append(-constant / factor)
    lowest = [min(float(c + f * x) for c, f in terms) for x in points]
    best = int(np.argmax(lowest))
    return Compute(lowest[best], points[best], _phase(a, b - a))


def _phase(a: float, rest: float) -> str:
    """Return the name of the phase of Paquette et al. (2024), with 2α = a and 2β = b − a."""
    if a > 1:
        return "Ia" if rest < 1 else ("II" if rest < a else "III")
    if rest < 1:
        return "Ib"
    if a <= _NOISY:
        return "Ic"
    return "IVa" if a > 2 - np.sqrt(2) else "IVb"
