"""Learning curves of pools that are too large for the eigendecomposition of their kernel.

Random n of M samples are random n of a random part of them, so that the curve of the pool is the
mean of those of parts, exactly in the mean, at numbers of samples below theirs. Larger parts and
all samples have their leave-one-out error, by Cholesky's factorisation K + δ = LLᵀ:

    E(M − 1) ≈ mean of (By)_i²/B_ii²,   By = L⁻ᵀL⁻¹y,   B_ii = Σ_k (L⁻¹)_ki².

Between these the curve is interpolated in log n, log E, and from M on it is a power law as that of
smaller pools. The leading modes of all samples are those of K between the vectors of a Krylov space
of random columns KG, K²G, …; an eigenvalue is within ‖Ku − wu‖ of w. The other modes have what
is left of the trace.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, get_blas_funcs, get_lapack_funcs

from largen.interrupts import check
from largen.memory import available_bytes
from largen.regression.learning_curves.blocks import ratios
from largen.regression.learning_curves.extrapolation import anchors, power_law
from largen.regression.learning_curves.inputs import Entries
from largen.regression.learning_curves.pool import pool_of
from largen.regression.learning_curves.predicted import PARTS, Predicted, of_pool

LARGE = 6000  # samples from which a pool is one of these
_PART, _MOST_PARTS = 4000, 10  # samples of a part, and parts that are taken at most
_WHOLE, _COPIES = 30_000, 1.3  # samples whose kernel is factorised at most, with this memory
_NEAR = 3.0  # ratio of numbers of samples between which another one is not needed
_BLOCK, _BLOCKS = 200, 5  # columns of a block, and blocks
_EXACT = 0.01  # relative error of an eigenvalue up to which modes are taken
_NOISES = 8  # draws of additional noise
_SINGULAR = 16  # times rounding: the smallest squared pivot


class LargePool(NamedTuple):
    """A curve, and what else is known of all samples."""

    curve: Predicted
    reach: int  # number of samples from which on it is extrapolated at some time
    alone: dict[str, np.ndarray]


class _Alone(NamedTuple):
    """Leave-one-out errors, (output,), with standard errors, on training, and generalised."""

    test: np.ndarray
    error: np.ndarray
    train: np.ndarray
    generalised: np.ndarray


def predict_large(
    entries: Entries,
    y: np.ndarray,
    noise: float,
    sizes: list[int],
    times: np.ndarray,
    ridge: float,
    rng: np.random.Generator,
) -> LargePool:
    """Return the curve of all samples (sample, output) by parts, (time, size, output)."""
    M = len(y)
    order = np.array_split(rng.permutation(M), max(PARTS, -(-M // _PART)))[:_MOST_PARTS]
    m = min(len(rows) for rows in order)
    at = np.array(anchors(m))
    wanted = sorted({*sizes, *at.tolist()})
    curves, trains = [], []
    for rows in order:
        kernel = entries.within(rows)
        pool = pool_of(kernel, y[rows], noise)
        (own,) = rng.spawn(1)
        factors = ratios(pool, kernel, y[rows], wanted, times, ridge, own, len(order))
        test, train = of_pool(pool, wanted, times, ridge, factors)
        curves.append(test)
        trains.append(train)
    each, train = np.array(curves), np.mean(trains, axis=0)
    test, error = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))
    n = np.array(wanted)
    alone: dict[str, np.ndarray] = {}
    ends = [m] * len(times)
    if available_bytes() > _COPIES * 8 * M**2 and M <= _WHOLE:
        whole = entries.lower_triangle()
        alone = _leading(whole, y, rng)
        points = _regressions(whole, y, noise, ridge, m, rng)
        if points:
            last = points[M]
            alone |= {"leave_one_out": last.test, "cross_validation": last.generalised}
            for i in np.flatnonzero(np.isinf(times)):
                ends[i] = M
                _interpolate((test[i], error[i], train[i]), n, m, points)
    for i in range(len(times)):
        _continue(test[i], error[i], n, n < ends[i])
    keep = np.searchsorted(n, sizes)
    return LargePool(Predicted(test[:, keep], error[:, keep], train[:, keep]), min(ends), alone)


def _interpolate(curve: Any, n: np.ndarray, m: int, points: dict[int, _Alone]) -> None:
    """Set a curve (test, error, train), each (size, output), between parts and all samples."""
    test, error, train = curve
    last = int(np.flatnonzero(n < m)[-1])
    logs = np.log([n[last], *(k - 1 for k in points)])
    between = (n >= m) & (n < max(points))
    for o in range(test.shape[1]):
        found, seen = [test[last, o]], [train[last, o]]
        relative = [error[last, o] / max(found[0], np.finfo(float).tiny)]
        for point in points.values():
            found.append(point.test[o])
            seen.append(point.train[o])
            relative.append(point.error[o] / max(point.test[o], np.finfo(float).tiny))
        at = np.log(n[between])
        test[between, o] = _between(at, logs, found)
        error[between, o] = test[between, o] * np.interp(at, logs, relative)
        train[between, o] = _between(at, logs, seen)


def _between(at: np.ndarray, logs: np.ndarray, values: list[float]) -> np.ndarray:
    if min(values) <= 0:
        return np.interp(at, logs, values)
    return np.exp(np.interp(at, logs, np.log(values)))


def _continue(test: np.ndarray, error: np.ndarray, n: np.ndarray, known: np.ndarray) -> None:
    """Set a curve (size, output) beyond what is known, by a power law of its last factor of 4.

    Its standard error includes the distance of parts' own power laws, which are there.
    """
    if known.all():
        return
    most = n[known][-1]
    fitted = known & (n >= most / 4)
    law = power_law(n[fitted].tolist(), test[fitted])
    for i in np.flatnonzero(~known):
        there = law.at(int(n[i]))
        error[i] = np.hypot(error[i], there - test[i])
        test[i] = there


def _regressions(
    whole: np.ndarray, y: np.ndarray, noise: float, ridge: float, m: int, rng: np.random.Generator
) -> dict[int, _Alone]:
    """Return leave-one-out errors of larger parts and of all samples; none of singular kernels.

    ``whole``: the lower triangle of the kernel, which is overwritten.
    """
    M, points = len(y), {}
    middle = int(np.sqrt(m * M))
    if _NEAR * m < M:
        parts = []
        for rows in np.array_split(rng.permutation(M), M // middle):
            rows = np.sort(rows)
            part = np.asfortranarray(whole[np.ix_(rows, rows)])
            parts.append(_alone(part, y[rows], noise, ridge, rng))
            if parts[-1] is None:
                return {}
        error = np.sqrt(np.sum([p.error**2 for p in parts], axis=0)) / len(parts)
        means = _Alone(*(np.mean(values, axis=0) for values in zip(*parts, strict=True)))
        points[M // len(parts)] = means._replace(error=error)
    last = _alone(whole, y, noise, ridge, rng)
    return {} if last is None else {**points, M: last}


def _alone(
    lower: np.ndarray, y: np.ndarray, noise: float, ridge: float, rng: np.random.Generator
) -> _Alone | None:
    """Return the leave-one-out errors of a kernel's lower triangle; None if it is singular."""
    n, outputs = y.shape
    lower[np.diag_indices(n)] += ridge
    largest = float(lower.diagonal().max())
    check()
    try:
        factor, _ = cho_factor(lower, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    if float(factor.diagonal().min()) ** 2 < _SINGULAR * n * np.finfo(float).eps * largest:
        return None
    draws = _NOISES if noise else 1
    targets = np.tile(y, (1, draws))
    targets = targets + np.sqrt(noise) * rng.standard_normal(targets.shape) if noise else targets
    missed = cho_solve((factor, True), targets, check_finite=False).reshape(n, draws, outputs)
    check()
    (trtri,) = get_lapack_funcs(("trtri",), (factor,))
    inverse, _ = trtri(factor, lower=1, overwrite_c=1)
    weight = np.array([column @ column for column in inverse.T])[:, None]
    squares = np.mean(missed**2, axis=1)
    outside = squares / weight**2
    return _Alone(
        test=outside.mean(axis=0),
        error=outside.std(axis=0) / np.sqrt(n),
        train=ridge**2 * squares.mean(axis=0),
        generalised=n * squares.sum(axis=0) / weight.sum() ** 2,
    )


def _leading(lower: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the leading modes of a kernel's lower triangle, in the blocks of a Krylov space."""
    M = len(y)
    (symm,) = get_blas_funcs(("symm",), (lower, y))
    block, blocks = rng.standard_normal((M, min(_BLOCK, M // _BLOCKS))), []
    for _ in range(_BLOCKS):
        check()
        block = np.linalg.qr(symm(1.0, lower, block, lower=1))[0]
        blocks.append(block)
    basis = np.linalg.qr(np.concatenate(blocks, axis=1))[0]
    image = symm(1.0, lower, basis, lower=1)
    values, turns = np.linalg.eigh(basis.T @ image)
    values, turns = values[::-1], turns[:, ::-1]
    modes = basis @ turns
    errors = np.linalg.norm(image @ turns - modes * values, axis=0)
    count = max(int(np.argmin(np.append(errors < _EXACT * values, False))), 1)
    return {
        "eigenvalue": values[:count] / M,
        "eigenvalue_error": errors[:count] / M,
        "eigenvalue_rest": np.asarray((np.trace(lower) - values[:count].sum()) / M),
        "power": (modes[:, :count].T @ y) ** 2 / M,
    }
