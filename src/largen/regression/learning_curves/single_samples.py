"""The effective medium of n samples of a pool, in which samples differ from one another.

R = P (PKP + δ)⁻¹ P is the resolvent on n of M samples, which the projector P chooses at random. In
an effective medium G = (K + diag μ_i)⁻¹ single samples scatter nothing on average (the coherent
potential; p = n/M):

    E R = G,   μ_i = δ + (1 − p)/G_ii,

and e_i, the mean square error of predicting sample i from n others, satisfies

    G_ii² e_i − (1 − p) Σ_j G_ij² e_j = p (Gy)_i²,

which for p = 1 is the leave-one-out error, exactly. Here the μ_i are replaced by one μ and the e_j
of other samples by their mean, so that one eigendecomposition serves all n and δ:

    μ = δ + (1 − p) h(μ),   h = mean of 1/G_ii,   mean of e = p dμ/dδ · mean of (Gy)_i²/G_ii²:

the leave-one-out error at the ridge μ, times p dμ/dδ. If all G_ii are equal it is the equation of
Bordelon, Canatar and Pehlevan (2020) for M → ∞. The mean square of the residual on the n samples is
that of δ² G_ii² e_i/p². For two ridges all squares become products, and h′ in
dμ/dδ = 1/(1 − (1 − p)h′) the divided difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from largen.regression.learning_curves.effective_ridge import (
    effective_ridge,
    effective_ridges,
    not_solved,
)
from largen.regression.learning_curves.pool import Pool

_EQUAL = 1e-3  # relative difference below which a divided difference is a mean of derivatives
_CLOSE = 1e-11  # relative size of the last step
_STEPS = 30  # of Newton's method
_ROUNDS = 100  # of μ ← δ + (1 − p)h(μ), which stays in the half-plane, where Newton's method fails


def densities(pool: Pool, n: int, ridges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return products of residuals outside of n samples and on them, (ridge, ridge, output).

    Complex ridges are those of the upper half-plane; the second axis has their conjugates as well.
    """
    M, outputs = pool.amplitudes.shape
    p = n / M
    if np.iscomplexobj(ridges):
        mu = _complex_ridges(pool, n, ridges)
    else:
        mu = np.array([_real_ridge(pool, n, float(ridge)) for ridge in ridges])
    left, on_diagonal, slope = _medium(pool, mu)
    amplitudes = (left[:, None, :] * pool.amplitudes.T).reshape(-1, M)
    residuals = _product(pool.vectors, amplitudes).reshape(-1, outputs, M)  # μGy
    spread = _spread(mu, on_diagonal, slope)
    missed = _pairs(residuals / on_diagonal[:, None]) + spread[..., None] * pool.noise
    outside = p * missed / (1 - (1 - p) * spread)[..., None]
    mixed = left @ mirrored(left).T / M
    gained = mixed - on_diagonal @ mirrored(on_diagonal).T / M
    seen = _pairs(residuals) + mixed[..., None] * pool.noise
    seen = seen + (1 - p) / p * gained[..., None] * outside
    known = ridges != 0
    ratio = np.where(known, ridges, 1) / np.where(mu == 0, 1, mu)
    rest = np.where(known, ratio, 1 - (1 - p) * np.mean(1 / on_diagonal, axis=1)) / p  # δ/μ
    rest = np.where(known | (mu == 0), rest, 0)
    return outside, (rest[:, None] * mirrored(rest))[..., None] * seen


def mirrored(values: np.ndarray) -> np.ndarray:
    """Return values at ridges and at their conjugates, (2 ridge, ...); at real ones as they are."""
    return np.concatenate([values, values.conj()]) if np.iscomplexobj(values) else values


def _medium(pool: Pool, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return μ/(w + μ) (ridge, mode), μG_ii (ridge, sample), and the mean h′ of (G²)_ii/G_ii²."""
    left = pool.unlearned(mu)
    on_diagonal, squares = np.split(_product(pool.squares, np.concatenate([left, left**2])), 2)
    return left, on_diagonal, np.mean(squares / on_diagonal**2, axis=1)


def _real_ridge(pool: Pool, n: int, ridge: float) -> float:
    """Return μ ≥ 0; 0 where n samples without a ridge determine all modes."""
    start, left = effective_ridge(pool, n, ridge), 1 - n / pool.size

    def excess(log: float) -> float:
        mu = np.exp(log)
        on_diagonal = pool.squares @ pool.unlearned(mu)
        return 1 - ridge / mu - left * float(np.mean(1 / on_diagonal))

    if start == 0:
        null = pool.squares @ (pool.values == 0)
        if left * np.mean(1 / null) <= 1:
            return 0.0
        start = 1e-12 * pool.values[0]
    low = high = np.log(start) - 1e-9
    while excess(high) < 0:  # true at first, as a mean of 1/G_ii is above 1/mean
        low, high = high, high + 0.3
    if low == high:
        return float(start)
    root: Any = brentq(excess, low, high, xtol=1e-14)
    return float(np.exp(root))


def _complex_ridges(pool: Pool, n: int, ridges: np.ndarray) -> np.ndarray:
    """Return μ in the upper half-plane, by Newton's method from that of equal samples."""
    left, start = 1 - n / pool.size, effective_ridges(pool, n, ridges)
    for rounds in (0, _ROUNDS):
        mu = start
        for _ in range(rounds):
            mu = ridges + left * mu * np.mean(1 / _medium(pool, mu)[1], axis=1)
        for _ in range(_STEPS):
            _, on_diagonal, slope = _medium(pool, mu)
            step = (
                (mu - ridges - left * mu * np.mean(1 / on_diagonal, axis=1))
                / (1 - left * slope)
                / mu
            )
            if not np.isfinite(step).all():
                break
            mu = mu * np.exp(-step / np.maximum(1, np.abs(step)))
            if np.abs(step).max() < _CLOSE and (mu.imag > 0).all():
                return mu
    raise not_solved(n, pool.size)


def _spread(mu: np.ndarray, on_diagonal: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the mean over i of (G₁G₂)_ii/(G₁_ii G₂_ii), (ridge, ridge).

    As G₁G₂ = (G₂ − G₁)/(μ₁ − μ₂), it is the divided difference of h.
    """
    inverse = mu * np.mean(1 / on_diagonal, axis=1)
    first, second = mu[:, None], mirrored(mu)
    apart = first - second
    equal = np.abs(apart) <= _EQUAL * np.abs(first)
    quotient = (inverse[:, None] - mirrored(inverse)) / np.where(equal, 1, apart)
    return np.where(equal, (slope[:, None] + mirrored(slope)) / 2, quotient)


def _product(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the matrix times rows that may be complex, as rows, without a complex matrix."""
    columns = np.ascontiguousarray(rows.T)
    return (matrix @ columns.view(float)).view(columns.dtype).T


def _pairs(rows: np.ndarray) -> np.ndarray:
    """Return means over samples of products, (ridge, ridge, output), of (ridge, output, sample)."""
    return np.einsum("jos,kos->jko", rows, mirrored(rows), optimize=True) / rows.shape[-1]
