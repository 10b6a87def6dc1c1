"""Errors in the effective medium whose samples have effective ridges of their own.

The equations of :mod:`largen.regression.learning_curves.medium`, without a common μ:

    μ_i = δ + (1 − p)/Q_ii,   Q = (K + diag μ_i)⁻¹,   A e = p (Qy)²,   A = diag Q_ii² − (1 − p) Q∘Q,

at M³ for one n and δ. 1/Q_ii is an increasing, concave function of all μ (a Schur complement), so
that Newton's steps −A⁻¹Q²(μ − δ − (1 − p)/Q_ii) from above the solution decrease towards it, and
A, which is symmetric, is positive definite there. Solutions of larger ridges and of fewer samples
are above.

Where samples differ much, as in standardised tables of measurements, errors are up to twice those
of a common μ. Curves are multiplied by the ratio, which is computed at real ridges: of a flow at
δ + n/(2t), with which they were within 6 % of regression done in fact (with δ + n/t within 10 %).
It is 1 within 1 % for Gaussian features.
Random sets of n of M samples are random sets of n of a random part of them, so that the curve of a
large pool is the mean over parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, get_lapack_funcs

from largen.interrupts import check
from largen.regression.learning_curves.mean_squares import MeanSquares, at_sizes
from largen.regression.learning_curves.pool import Pool

_MOST = 600  # samples of a part
_REACH = 0.75  # of these, up to which errors of parts are computed if there are several
_STEPS, _CLOSE = 60, 1e-4  # of Newton's method; a step of this relative size is the last but one


@dataclass(frozen=True)
class Ratios:
    """Logarithms of errors of samples that differ over those of a common μ."""

    sizes: np.ndarray  # increasing; the last is M
    test: np.ndarray  # (time, size, output)
    train: np.ndarray

    def at(self, sizes: list[int], time: int) -> MeanSquares:
        """Return the factors of errors outside of n samples and on them, (size, output)."""
        logs, wanted = np.log(self.sizes), np.log(sizes)
        tables = (self.test[time], self.train[time])
        return MeanSquares(
            *(
                np.exp(np.stack([np.interp(wanted, logs, column) for column in table.T], axis=1))
                for table in tables
            )
        )


def ratios(
    pool: Pool,
    kernel: np.ndarray,  # (sample, sample)
    y: np.ndarray,  # (sample, output)
    sizes: list[int],
    times: np.ndarray,
    ridge: float,
    rng: np.random.Generator,
) -> Ratios:
    """Return ratios at numbers of samples up to those that parts reach, between them, and to M."""
    M, trace = pool.size, float(np.trace(kernel))
    rounding = np.finfo(float).eps * trace / M  # of n² of it, the kernel of n samples is singular
    count = -(-M // _MOST)
    parts = np.array_split(rng.permutation(M), count) if count > 1 else [np.arange(M)]
    reach = M if count == 1 else int(_REACH * len(parts[-1])) + 1
    within = sorted({*(n for n in sizes if n < reach), reach - 1})
    ridges = [[max(ridge + n / (2 * t), n**2 * rounding) for n in within] for t in times]
    whole = np.zeros((2, len(times), len(within), y.shape[1]))
    for rows in parts:
        own = kernel[np.ix_(rows, rows)]
        whole += _errors(own, y[rows], pool.noise, within, ridges) * len(rows) / M
    found = np.zeros((2, len(times), len(within) + 1, y.shape[1]))
    for i, row in enumerate(ridges):
        common = np.array(at_sizes(pool, within, row))
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(whole[:, i] / common)
        found[:, i, :-1] = np.where(np.isfinite(logs), logs, 0)
    return Ratios(np.array([*within, M]), *found)


def _errors(
    kernel: np.ndarray, y: np.ndarray, noise: float, sizes: list[int], ridges: list[list[float]]
) -> np.ndarray:
    """Return errors of ridges (time, size), decreasing in time: (2, time, size, output)."""
    M, above = len(kernel), [np.full(len(kernel), np.inf)] * len(ridges)
    found = np.full((2, len(ridges), len(sizes), y.shape[1]), np.nan)
    for j, n in enumerate(sizes):
        p, before = n / M, np.full(M, np.inf)
        for i, row in enumerate(ridges):
            check()
            largest = (row[j] + (1 - p) * np.diag(kernel)) / p
            mu = np.minimum(np.minimum(before, above[i]), largest)
            try:
                before = above[i] = mu = _solution(kernel, p, row[j], mu)
                Q, diagonal, matrix = _matrix(kernel, p, mu)
                squares = (Q @ y) ** 2 + noise * (Q**2).sum(axis=1)[:, None]
                e = p * cho_solve(cho_factor(matrix, lower=True), squares)
            except LinAlgError:  # a kernel that is singular, whose ridges are all but zero
                continue
            found[0, i, j] = e.mean(axis=0)
            found[1, i, j] = (row[j] / p) ** 2 * np.mean(diagonal[:, None] ** 2 * e, axis=0)
    return found


def _solution(kernel: np.ndarray, p: float, ridge: float, mu: np.ndarray) -> np.ndarray:
    """Return the effective ridges, by Newton's method from above them."""
    for _ in range(_STEPS):
        _, diagonal, matrix = _matrix(kernel, p, mu)
        excess = diagonal**2 * (mu - ridge) - (1 - p) * diagonal
        step = cho_solve(cho_factor(matrix, lower=True, overwrite_a=True), excess)
        mu = np.maximum(mu - step, 1e-6 * mu)
        if np.abs(step / mu).max() < _CLOSE:
            break
    return mu


def _matrix(
    kernel: np.ndarray, p: float, mu: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, its diagonal, and A."""
    on = np.diag_indices(len(mu))
    system = kernel.copy()
    system[on] += mu
    factor, _ = cho_factor(system, lower=True, overwrite_a=True)
    (potri,) = get_lapack_funcs(("potri",), (factor,))
    lower, _ = potri(factor, lower=1)
    Q = np.tril(lower)
    Q += np.tril(Q, -1).T
    diagonal = Q[on]
    matrix = (p - 1) * Q**2
    matrix[on] += diagonal**2
    return Q, diagonal, matrix
