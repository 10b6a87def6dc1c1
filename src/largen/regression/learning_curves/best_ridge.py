"""Errors at many numbers of samples and features at once, the best ridges, and where peaks are.

Errors depend on the effective ridge ν alone, and the ridge δ is given by ν in closed form, so that
one set of ν serves all numbers of samples and features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from largen.interrupts import check
from largen.regression.learning_curves import medium, population
from largen.regression.learning_curves.effective_ridge import effective_ridge
from largen.regression.learning_curves.pool import Pool
from largen.regression.learning_curves.population import Population

_POINTS = 96  # effective ridges
_LEAST, _MOST = 1e-10, 30.0  # of them, relative to the largest eigenvalue and to the trace
_AROUND, _AT_PEAK, _ROUNDS = 4.0, 13, 3  # where peaks are sought, n/4 … 4n, and how finely
_ZERO = 1e-8  # of the smallest eigenvalue: an effective ridge that is none
_AT_ONCE = 128  # points whose arrays are held together


class Best(NamedTuple):
    """The best ridges (size, width), errors with them (size, width, output), peaks (size,)."""

    ridge: np.ndarray
    error: np.ndarray
    peak: np.ndarray


def points(
    modes: Pool | Population, n: np.ndarray, width: np.ndarray, ridges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return errors of ridge regression on new samples and on training ones, (point, output)."""
    found = []
    for i in range(0, len(n), _AT_ONCE):
        check()
        a, k, d = n[i : i + _AT_ONCE], width[i : i + _AT_ONCE], ridges[i : i + _AT_ONCE]
        if isinstance(modes, Pool):
            nu = medium.real_ridges(modes, a, k, d)
        else:
            cases = zip(a, d, k, strict=True)
            nu = np.array([effective_ridge(modes, *case) for case in cases])
        at = _at(modes, np.maximum(nu, _ZERO * modes.values[modes.rank - 1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            test, train = at.errors(a, k)
        whole = (d == 0) & (a == k) & (a < modes.rank)
        found.append((np.where(whole[:, None], np.inf, test), np.where(whole[:, None], 0, train)))
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def best(modes: Pool | Population, sizes: list[int], widths: list[int], ridge: float) -> Best:
    """Return the best ridges for sizes and widths, and peaks in the width for one ridge."""
    values = modes.values
    nu = np.geomspace(_LEAST * values[0], _MOST * values.sum(), _POINTS)
    at = _at(modes, nu)
    n, k = (a.ravel().astype(float) for a in np.meshgrid(sizes, widths, indexing="ij"))
    start = np.empty(len(n))
    for i in range(len(n)):
        lowest = np.exp(_lowest(np.log(nu), _allowed_errors(at, n[i], k[i])))
        step = nu[1] / nu[0]
        near = np.geomspace(lowest / step, lowest * step, _AT_PEAK)
        start[i] = _lowest(np.log(near), _allowed_errors(_at(modes, near), n[i], k[i]))
    fine = _at(modes, np.exp(start))
    ridges, errors = fine.ridge(n, k), fine.errors(n, k)[0]
    without, _ = points(modes, n, k, np.zeros(len(n)))
    none = (without.mean(axis=-1) <= errors.mean(axis=-1)) | (ridges <= 0)
    ridges, errors = np.where(none, 0, ridges), np.where(none[:, None], without, errors)
    shape = len(sizes), len(widths)
    peaks = np.array([_peak(modes, size, ridge) for size in sizes])
    return Best(ridges.reshape(shape), errors.reshape(*shape, -1), peaks)


def _allowed_errors(at: Any, n: float, k: float) -> np.ndarray:
    """Return errors at n and k, infinite where no ridge has these points."""
    allowed = (at.learned[0] < min(n, k)) & (at.ridge(n, k) > 0)
    return np.where(allowed, at.errors(n, k)[0].mean(axis=-1), np.inf)


def _at(modes: Pool | Population, nu: np.ndarray) -> Any:
    return (
        medium.at_points(modes, nu) if isinstance(modes, Pool) else population.at_points(modes, nu)
    )


def _lowest(x: np.ndarray, values: np.ndarray) -> float:
    """Return where values over equal distances are lowest, by the parabola through three."""
    i = int(np.argmin(values))
    if not 0 < i < len(x) - 1 or not np.isfinite(values[i - 1 : i + 2]).all():
        return float(x[i])
    before, here, after = values[i - 1 : i + 2]
    bend = before - 2 * here + after
    return float(x[i] + (before - after) / (2 * bend) * (x[1] - x[0])) if bend > 0 else float(x[i])


def _peak(modes: Pool | Population, n: float, ridge: float) -> float:
    """Return the k at which the error with a ridge is largest; NaN if no maximum is near n."""
    if n >= modes.rank:
        return np.nan
    if ridge == 0:
        return float(n)
    k = np.geomspace(n / _AROUND, n * _AROUND, _AT_PEAK)
    for left in range(_ROUNDS, 0, -1):
        same = np.full(len(k), float(n))
        errors = points(modes, same, k, np.full(len(k), ridge))[0].mean(axis=-1)
        i = int(np.argmax(errors))
        if not 0 < i < len(k) - 1:
            return np.nan
        if left == 1:
            return float(np.exp(_lowest(np.log(k), -errors)))
        k = np.geomspace(k[i - 1], k[i + 1], _AT_PEAK)
    return np.nan
