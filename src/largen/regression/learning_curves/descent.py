"""One pass of stochastic gradient descent over a population, by its generating function.

In coordinates whose features have variance x, gradients of B Gaussian samples at a rate η change
the mean squares C of missing weights, and the error E = Σ xC + σ², as

    C ← [(1 − ηx)² + η²x²/B] C + (η²/B) x E,

so that E_t = F_t + σ² + (η²/B) Σ_{s<t} K_{t−1−s}E_s with F_t = Σ v² d(x)ᵗ, K_t = Σ x² d(x)ᵗ and
d = 1 − 2ηx + (1 + 1/B)η²x². With sums over t times ζᵗ,

    Ê(ζ) = [F̂ + σ²/(1 − ζ)]/(1 − (η²/B) ζK̂).

1 − ζd(x) has two roots in x, so that F̂ and K̂ are resolvents there: of the eigenvalues λ_i, or of
those of k random features, Σ v²/(x + s) = (1/s) Σ v_i²κ/(λ_i + κ) and Σ x/(x + s) = z(κ) with
κ(1 − z/k) = s (as in :mod:`largen.regression.learning_curves.population` for n → ∞). What no
feature has is noise: of Gaussian samples it is independent of the features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from largen.interrupts import check
from largen.regression.learning_curves.effective_ridge import effective_ridges
from largen.regression.learning_curves.mean_squares import NODES, contour
from largen.regression.learning_curves.population import Population

_FIRST = 2 * NODES  # steps up to which errors are coefficients, by a circle
_CIRCLE, _RADIUS = 128, np.exp(-0.25)
_MANY = 1e18  # samples that are as good as infinitely many


def errors_in_steps(
    population: Population, steps: np.ndarray, rate: float, batch: float, width: float = np.inf
) -> np.ndarray:
    """Return errors on new samples after numbers of steps, (step, output)."""
    found = np.empty((len(steps), population.power.shape[1]))
    early = steps <= _FIRST
    if early.any():
        angles = (np.arange(_CIRCLE // 2) + 0.5) * 2 * np.pi / _CIRCLE
        zeta = _RADIUS * np.exp(1j * angles)
        powers = zeta[None] ** -steps[early, None].astype(float)
        of_circle = _generating(population, zeta, rate, batch, width)
        found[early] = 2 / _CIRCLE * np.real(powers @ of_circle)
    for i in np.flatnonzero(~early):
        check()
        at, weights = contour(float(steps[i]))
        transform = _generating(population, np.exp(-at), rate, batch, width)
        found[i] = 2 * np.real((weights * at) @ transform)
    return found


def _generating(
    population: Population, zeta: np.ndarray, rate: float, batch: float, width: float
) -> np.ndarray:
    """Return Ê(ζ), (node, output)."""
    bend = (1 + 1 / batch) * rate**2
    root = np.sqrt(rate**2 - bend * (1 - 1 / zeta))
    large, small = (rate + root) / bend, (rate - root) / bend
    below = -zeta * bend * (large - small)
    (missed, share), (missed_small, share_small) = (
        _resolvents(population, x, width) for x in (large, small)
    )
    forced = (missed - missed_small) / below[:, None]
    kernel = zeta * (large * share - small * share_small) / below
    noise = population.noise / (1 - zeta)[:, None]
    return (forced + noise) / (1 - rate**2 / batch * kernel)[:, None]


def _resolvents(
    population: Population, x: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of v²/(x′ − x), (node, output), and of x′/(x′ − x), over eigenvalues x′."""
    s, above = -x, np.imag(x) <= 0
    upper = np.where(above, s, s.conj())
    kappa = upper
    if np.isfinite(width):
        kappa = effective_ridges(population, _MANY, _MANY * upper, width)
    left = population.unlearned(kappa)
    missed, share = left @ population.power / upper[:, None], (1 - left).sum(axis=1)
    return np.where(above[:, None], missed, missed.conj()), np.where(above, share, share.conj())


def largest_rate(values: np.ndarray, batch: float, width: float = np.inf) -> float:
    """Return the largest rate at which errors stay finite.

    Errors grow if (η²/B) Σ_t K_t ≥ 1, which is Σ x/(X − x) ≥ B + 1 with X = 2B/((B + 1)η), or if X
    is an eigenvalue. With X = c(1 + z/k) beyond the eigenvalues of k features it is
    Σ λ_i/(c − λ_i) = B + 1, and the edge of these is where Σ λ_i²/(c − λ_i)² = k.
    """
    top, trace, below = float(values[0]), float(values.sum()), values[0] - values

    def share(gap: float) -> float:
        return float((values / (gap + below)).sum())

    def bend(gap: float) -> float:
        return float((values**2 / (gap + below) ** 2).sum())

    wanted, most = batch + 1, trace / (batch + 1) * (1 + 1e-9)
    gap: Any = top / wanted  # c − λ₁, at least
    if share(gap) > wanted:
        gap = brentq(lambda g: share(g) - wanted, gap, most, xtol=1e-15 * top)
    if bend(gap) > width:
        most = np.sqrt(float((values**2).sum()) / width) * (1 + 1e-9)
        gap = brentq(lambda g: bend(g) - width, gap, most, xtol=1e-15 * top)
    return 2 * batch / (wanted * (top + gap) * (1 + share(gap) / width))
