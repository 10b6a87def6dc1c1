"""The effective ridge ν of n of M samples and k features if all are alike, real or complex.

With df(ν) = Σ w_m/(w_m + ν) of the kernel of all M samples and a = 1 − df(ν)/k,

    δ = ν a (n − df(ν))/(M − df(ν)),   df(ν) ≤ min(n, k),

whose right side increases in ν. For k → ∞, M → ∞ and κ = ν/M it is n = df + δ/κ (Bordelon, Canatar
and Pehlevan 2020), and δ = κ(n − df)(k − df)/k for k features (Simon et al. 2023); M − df instead
of M is due to the choice without replacement (the S-transform of a projection), so that ν = δ for
n = M, k → ∞. For complex δ, ν is the solution in the same half-plane.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from largen.errors import NumericalFailure
from largen.regression.learning_curves.modes import Modes

_CLOSE = 1e-12  # relative size of the last step
_STEPS = 60  # of Newton's method
_FINEST = 64  # parts into which a step between two ridges is divided at most


def effective_ridge(modes: Modes, n: float, ridge: float, width: float = np.inf) -> float:
    """Return ν for a real ridge δ ≥ 0; 0 where no ridge and nothing else limits the modes."""
    fewest = min(n, width)
    if ridge == 0 and fewest >= modes.rank:
        return 0.0
    count, trace = len(modes.values), float(modes.values.sum())

    def learned(log: float) -> float:
        return count - float(modes.unlearned(np.exp(log)).sum())

    most = np.log(2 * trace / fewest + 4 * ridge * float(modes.spare(count)) / n)
    if fewest < modes.rank:  # df ≥ rank w/(w + ν) for the smallest w
        smallest = float(modes.values[modes.rank - 1])
        least = np.log(smallest * (modes.rank - fewest) / fewest) - 1e-3
        least = _root(lambda log: fewest - learned(log), least, most)
        if ridge == 0:
            return float(np.exp(least))
    else:
        least = np.log(ridge) - np.log(2.0 + n)

    def excess(log: float) -> float:
        df = learned(log)
        rest = ridge * float(modes.spare(count - df)) / np.exp(log)
        return max(1 - df / width, 0.0) * (n - df) - rest

    while excess(least) > 0:
        least -= 1.0
    return float(np.exp(_root(excess, least, most)))


def _root(function: Any, low: float, high: float) -> float:
    root: Any = brentq(function, low, high, xtol=1e-14)
    return root


def effective_ridges(
    modes: Modes, n: float, ridges: np.ndarray, width: float = np.inf
) -> np.ndarray:
    """Return ν along a path of ridges in the upper half-plane, by Newton's method.

    The path begins at the real ridge of the same modulus as the first one. Where a step does not
    converge in the upper half-plane it is divided.
    """
    before = complex(abs(ridges[0]))
    nu = complex(effective_ridge(modes, n, before.real, width))
    solutions = np.empty(len(ridges), complex)
    for i, ridge in enumerate(ridges):
        nu = solutions[i] = _follow(modes, n, width, before, complex(ridge), nu)
        before = complex(ridge)
    return solutions


def not_solved(n: float) -> NumericalFailure:
    """Return the error for a path that cannot be followed."""
    return NumericalFailure(
        f"time: the effective ridge of {n:g} samples did not converge; leave out the longest "
        "times, or pass a ridge."
    )


def _follow(
    modes: Modes, n: float, width: float, start: complex, end: complex, nu: complex
) -> complex:
    parts = 1
    while parts <= _FINEST:
        reached: complex | None = nu
        for k in range(1, parts + 1):
            reached = _newton(modes, n, width, start * (end / start) ** (k / parts), reached)
            if reached is None:
                break
        if reached is not None:
            return reached
        parts *= 4
    raise not_solved(n)


def _newton(modes: Modes, n: float, width: float, ridge: complex, nu: complex) -> complex | None:
    """Return ν from a start nearby, by Newton's method in log ν; None if it fails."""
    count = len(modes.values)
    for _ in range(_STEPS):
        left = modes.unlearned(nu)
        total, slope = left.sum(), (left * (1 - left)).sum()  # dT/dlog ν = T(1 − T)
        a, rest = 1 - (count - total) * (1 / width), ridge / nu * modes.spare(total)
        change = ridge / nu * modes.spare_slope(slope) - rest * (1 + slope * (1 / width) / a)
        step = (count - total + rest / a - n) / (-slope + change / a)
        size = abs(step)
        if not np.isfinite(size):
            return None
        nu = nu * np.exp(-step / max(1.0, size))
        if size < _CLOSE:
            return nu if nu.imag > 0 else None
    return None
