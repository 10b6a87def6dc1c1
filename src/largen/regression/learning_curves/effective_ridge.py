"""The effective ridge μ of n of M samples if all are alike, real or on a path of complex ridges.

With df(μ) = Σ w_k/(w_k + μ) of the kernel of all M samples,

    n = df(μ) + (δ/μ)(M − df(μ)),

whose right side decreases in μ. For M → ∞ and κ = μ/M it is n = df + δ/κ (Bordelon, Canatar and
Pehlevan 2020); M − df instead of M is due to the choice without replacement (the S-transform of a
projection), so that μ = δ for n = M. For complex δ, μ is the solution in the same half-plane.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from largen.errors import NumericalFailure
from largen.regression.learning_curves.pool import Pool

_CLOSE = 1e-12  # relative size of the last step
_STEPS = 60  # of Newton's method
_FINEST = 64  # parts into which a step between two ridges is divided at most


def effective_ridge(pool: Pool, n: int, ridge: float) -> float:
    """Return μ for a real ridge δ ≥ 0; 0 where n samples without a ridge determine all modes."""
    if ridge == 0 and n >= pool.rank:
        return 0.0

    def excess(log: float) -> float:
        mu = np.exp(log)
        left = pool.unlearned(mu).sum()
        return pool.size - left + ridge / mu * left - n

    most = (float(pool.values.sum()) + ridge * pool.size) / n
    least = ridge
    if n < pool.rank:  # df ≥ rank w/(w + μ) for the smallest w
        smallest = float(pool.values[pool.rank - 1])
        least = max(least, smallest * (pool.rank - n) / n)
    ends = np.log(least) - 1e-3, np.log(most) + 1e-3
    root: Any = brentq(excess, *ends, xtol=1e-14)
    return float(np.exp(root))


def effective_ridges(pool: Pool, n: int, ridges: np.ndarray) -> np.ndarray:
    """Return μ along a path of ridges in the upper half-plane, by Newton's method.

    The path begins at the real ridge of the same modulus as the first one. Where a step does not
    converge in the upper half-plane it is divided.
    """
    before = complex(abs(ridges[0]))
    mu = complex(effective_ridge(pool, n, before.real))
    solutions = np.empty(len(ridges), complex)
    for i, ridge in enumerate(ridges):
        mu = solutions[i] = _follow(pool, n, before, complex(ridge), mu)
        before = complex(ridge)
    return solutions


def not_solved(n: int, M: int) -> NumericalFailure:
    """Return the error for a path that cannot be followed."""
    return NumericalFailure(
        f"time: the effective ridge of {n} of {M} samples did not converge; leave out the longest "
        "times, or pass a ridge."
    )


def _follow(pool: Pool, n: int, start: complex, end: complex, mu: complex) -> complex:
    parts = 1
    while parts <= _FINEST:
        reached: complex | None = mu
        for k in range(1, parts + 1):
            reached = _newton(pool, n, start * (end / start) ** (k / parts), reached)
            if reached is None:
                break
        if reached is not None:
            return reached
        parts *= 4
    raise not_solved(n, pool.size)


def _newton(pool: Pool, n: int, ridge: complex, mu: complex) -> complex | None:
    """Return μ from a start nearby, by Newton's method in log μ; None if it fails."""
    for _ in range(_STEPS):
        left = pool.unlearned(mu)
        total, slope = left.sum(), (left * (1 - left)).sum()  # dT/dlog μ = T(1 − T)
        step = (pool.size - total + ridge / mu * total - n) / (
            -slope + ridge / mu * (slope - total)
        )
        size = abs(step)
        if not np.isfinite(size):
            return None
        mu = mu * np.exp(-step / max(1.0, size))
        if size < _CLOSE:
            return mu if mu.imag > 0 else None
    return None
