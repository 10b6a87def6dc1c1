"""The effective medium of n samples of a pool and k features, in which samples differ.

R = P (PSP + δ)⁻¹ P is the resolvent on n of M samples, which the projector P chooses at random. In
an effective medium Q = (S + diag μ_i)⁻¹ single samples scatter nothing on average (the coherent
potential; p = n/M):

    E R = Q,   μ_i = δ + (1 − p)/Q_ii,

and e_i, the mean square error of predicting sample i from n others, satisfies

    Q_ii² e_i − (1 − p) Σ_j Q_ij² e_j = p (Qy)_i²,

which for p = 1 is the leave-one-out error, exactly. Here the μ_i are replaced by one μ and the e_j
of other samples by their mean, so that one eigendecomposition serves all n and δ:

    μ = δ + (1 − p) h(μ),   h = mean of 1/Q_ii,   mean of e = p dμ/dδ · mean of (Qy)_i²/Q_ii²:

the leave-one-out error at the ridge μ, times p dμ/dδ; what differences between samples change is in
:mod:`largen.regression.learning_curves.blocks`. If all Q_ii are equal it is the equation of
Bordelon, Canatar and Pehlevan (2020) for M → ∞. The mean square of the residual on the n samples is
that of δ² Q_ii² e_i/p².

S is the kernel K itself, or that of k random features, K^½GGᵀK^½/k with Gaussian G (M × k). With
R_ν = (K + ν)⁻¹, df = tr KR_ν, a = 1 − df/k, μ = aν, γ_i = (R_ν)_ii and g = mean of 1/γ_i, the mean
over G of Q is R_ν/a, so that h = ag, and for a matrix D between two ridges (1, 2)

    E Q₁DQ₂ = [R₁DR₂ + R₁KR₂ tr(KR₁DR₂)/(k − df₁₂)]/(a₁a₂),   df₁₂ = tr KR₁KR₂,

(a Wishart matrix between two resolvents). With D = diag 1/(γ_i₁γ_i₂) the mean of products of
(Qy)_i/Q_ii is

    mean of (R₁y)_i(R₂y)_i/(γ_i₁γ_i₂) + (yᵀR₁KR₂y/M)(g₁ − ν₁g₁₂) M/(k − df₁₂),

where g₁₂ = (g₁ − g₂)/(ν₁ − ν₂), and h′ in dμ/dδ = 1/(1 − (1 − p)h′) is the divided difference of h,

    h₁₂ = (a₁₂g₁ + a₂g₁₂)/(1 − df₁₂/k),   a₁₂ = tr(KR₁R₂)/k.

For M → ∞ these are the equations of Simon et al. (2023), as in
:mod:`largen.regression.learning_curves.population`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.regression.learning_curves.effective_ridge import (
    effective_ridge,
    effective_ridges,
    not_solved,
)
from largen.regression.learning_curves.pool import Pool

_EQUAL = 1e-3  # relative difference below which a divided difference is a mean of derivatives
_CLOSE = 1e-11  # relative size of the last step
_STEPS = 30  # of Newton's method
_ROUNDS = 100  # of ν ← δ/a + (1 − p)g(ν), which stays in the half-plane, where Newton's fails
_HALVINGS = 100  # of a bracket, if need be


@dataclass(frozen=True)
class Medium:
    """What errors depend on at pairs of effective ridges; the same shape for all, outputs last."""

    size: int  # M
    noise: float  # σ²
    first: np.ndarray  # ν₁
    second: np.ndarray  # ν₂
    learned: tuple[np.ndarray, np.ndarray]  # df₁, df₂
    inverse: tuple[np.ndarray, np.ndarray]  # g₁/ν₁, g₂/ν₂: means of 1/(νγ_i)
    slope: np.ndarray  # g₁₂
    once: np.ndarray  # tr KR₁R₂
    twice: np.ndarray  # df₁₂
    missed: np.ndarray  # mean of (R₁y)_i(R₂y)_i/(γ_i₁γ_i₂), (..., output)
    kept: np.ndarray  # yᵀR₁KR₂y/M, (..., output)
    left: np.ndarray  # ν₁ν₂yᵀR₁R₂y/M, (..., output)
    diagonal: np.ndarray  # mean of ν₁γ_i₁ν₂γ_i₂

    def factors(self, width: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a₁ and a₂ for k features."""
        first, second = (1 - df * (1 / width) for df in self.learned)
        return first, second

    def ridge(self, n: Any, width: Any) -> np.ndarray:
        """Return the δ of ν₁."""
        return self.factors(width)[0] * self.first * (1 - (1 - n / self.size) * self.inverse[0])

    def errors(
        self, n: Any, width: Any, rest: tuple[Any, Any] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return products of residuals outside of n samples and on them, (..., output).

        ``rest``: δ/μ of both ridges where they are known; they are computed by default.
        """
        p, share, (_, a) = n / self.size, 1 / width, self.factors(width)
        if rest is None:
            rest = (1 - (1 - p) * self.inverse[0], 1 - (1 - p) * self.inverse[1])
        g = self.first * self.inverse[0]
        whole = 1 - self.twice * share  # (μ₁ − μ₂)/(ν₁ − ν₂)
        spread = (self.once * share * g + a * self.slope) / whole  # h₁₂
        scattered = self.kept * (share / whole)[..., None]
        missed = self.missed + scattered * (self.size * (g - self.first * self.slope))[..., None]
        missed = missed + spread[..., None] * self.noise
        outside = (p / (1 - (1 - p) * spread))[..., None] * missed
        total = self.size - self.learned[1]
        mixed = (total - a * self.second * self.once / whole) / self.size
        seen = self.left + scattered * (self.first * self.second * self.once)[..., None]
        seen = seen + mixed[..., None] * self.noise
        seen = seen + ((1 - p) / p * (mixed - self.diagonal))[..., None] * outside
        return outside, (rest[0] * rest[1] / p**2)[..., None] * seen


def densities(
    pool: Pool, n: float, ridges: np.ndarray, width: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Return products of residuals outside of n samples and on them, (ridge, ridge, output).

    Complex ridges are those of the upper half-plane; the second axis has their conjugates as well.
    """
    if np.iscomplexobj(ridges):
        nu = _complex_ridges(pool, n, ridges, width)
    else:
        same = np.ones(len(ridges))
        nu = real_ridges(pool, n * same, width * same, ridges)
    medium = at_pairs(pool, nu)
    rest = _rest(medium.inverse[0][:, 0], n / pool.size, ridges, nu, medium.factors(width)[0][:, 0])
    return medium.errors(n, width, (rest[:, None], mirrored(rest)))


def of_regression(pool: Pool, n: np.ndarray, ridges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of real ridges, each with its own number of samples, (point, output)."""
    features = np.full(len(n), np.inf)
    nu = real_ridges(pool, n, features, ridges)
    medium = at_points(pool, nu)
    rest = _rest(medium.inverse[0], n / pool.size, ridges, nu, medium.factors(features)[0])
    return medium.errors(n, features, (rest, rest))


def _rest(inverse: np.ndarray, p: Any, ridges: np.ndarray, nu: Any, a: Any) -> np.ndarray:
    """Return δ/μ, which rounding makes inaccurate where it is small."""
    rest, known = 1 - (1 - p) * inverse, (ridges != 0) & (nu != 0)
    return np.where(known, ridges / np.where(known, nu * a, 1), np.where(rest < _CLOSE, 0, rest))


def at_pairs(pool: Pool, nu: np.ndarray) -> Medium:
    """Return the medium at all pairs of effective ridges and, of complex ones, conjugates."""
    M = pool.size
    left, on_diagonal, slope = _medium(pool, nu)
    residuals = _residuals(pool, left)  # νRy
    weighted = pool.shares(nu)
    df, inverse = M - left.sum(axis=1), np.mean(1 / on_diagonal, axis=1)
    scaled = residuals / on_diagonal[:, None]
    amplitudes = left[:, None] * pool.amplitudes.T
    kept = weighted[:, None] * pool.amplitudes.T
    return Medium(
        size=M,
        noise=pool.noise,
        first=nu[:, None],
        second=mirrored(nu),
        learned=(df[:, None], mirrored(df)),
        inverse=(inverse[:, None], mirrored(inverse)),
        slope=_divided(nu, nu * inverse, slope),
        once=weighted @ mirrored(weighted).T,
        twice=(1 - left) @ mirrored(1 - left).T,
        missed=_pairs(scaled),
        kept=_pairs(kept),
        left=_pairs(amplitudes),
        diagonal=on_diagonal @ mirrored(on_diagonal).T / M,
    )


def at_points(pool: Pool, nu: np.ndarray) -> Medium:
    """Return the medium at single real effective ridges, paired with themselves."""
    M = pool.size
    left, on_diagonal, slope = _medium(pool, nu)
    weighted = pool.shares(nu)
    df, inverse = M - left.sum(axis=1), np.mean(1 / on_diagonal, axis=1)
    power = pool.amplitudes**2 / M
    residuals = _residuals(pool, left) / on_diagonal[:, None]
    return Medium(
        size=M,
        noise=pool.noise,
        first=nu,
        second=nu,
        learned=(df, df),
        inverse=(inverse, inverse),
        slope=slope,
        once=(weighted**2).sum(axis=1),
        twice=((1 - left) ** 2).sum(axis=1),
        missed=np.mean(residuals**2, axis=-1),
        kept=weighted**2 @ power,
        left=left**2 @ power,
        diagonal=np.mean(on_diagonal**2, axis=1),
    )


def mirrored(values: np.ndarray) -> np.ndarray:
    """Return values at ridges and at their conjugates, (2 ridge, ...); at real ones as they are."""
    return np.concatenate([values, values.conj()]) if np.iscomplexobj(values) else values


def real_ridges(pool: Pool, n: np.ndarray, width: np.ndarray, ridges: np.ndarray) -> np.ndarray:
    """Return ν ≥ 0 of real ridges, all (point,); 0 where nothing limits the modes.

    Newton's method in log ν inside of a bracket, from the solution for equal samples, which is
    below, as a mean of 1/γ_i is above 1/mean.
    """
    cases = list(zip(n, width, ridges, strict=True))
    low = np.array([effective_ridge(pool, a, d, np.inf if d == 0 else k) for a, k, d in cases])
    least = np.array([effective_ridge(pool, k, d) if d == 0 else 0 for _, k, d in cases])
    null = pool.squares @ (pool.values == 0) if (low == 0).any() else np.ones(1)
    done = (low == 0) & ((1 - n / pool.size) * np.mean(1 / np.maximum(null, 1e-300)) <= 1)
    nu = np.where(done, 0.0, np.where(low == 0, 1e-12 * pool.values[0], low))
    bracket = np.stack([np.log(np.where(done, 1, nu)) - 1e-9, np.full(len(nu), np.inf)])
    log, open_ = bracket[0] + 1e-9, np.flatnonzero(~done)
    for _ in range(_STEPS + _HALVINGS):
        if not len(open_):
            break
        at, a, k, d = log[open_], n[open_], width[open_], ridges[open_]
        k = np.where(d == 0, np.inf, k)
        left, on_diagonal, slope = _medium(pool, np.exp(at))
        inverse, rest = np.mean(1 / on_diagonal, axis=1), 1 - a / pool.size
        factor = 1 - (pool.size - left.sum(axis=1)) / k
        excess = factor * (1 - rest * inverse) - d / np.exp(at)
        change = (left * (1 - left)).sum(axis=1) / k * (1 - rest * inverse)
        change = change - factor * rest * (slope - inverse) + d / np.exp(at)
        bracket[0, open_] = np.where(excess < 0, at, bracket[0, open_])
        bracket[1, open_] = np.where(excess < 0, bracket[1, open_], at)
        low_, high = bracket[:, open_]
        step = at - np.clip(excess / np.where(change > 0, change, 1e-300), -1, 1)
        inside = (step > low_) & (step < high)
        middle = np.where(
            np.isfinite(high), (low_ + np.where(high < np.inf, high, low_)) / 2, at + 1
        )
        log[open_] = np.where(inside, step, middle)
        open_ = open_[(np.abs(log[open_] - at) > _CLOSE) & (high - low_ > _CLOSE)]
    return np.maximum(np.where(done, 0.0, np.exp(log)), least)


def _medium(pool: Pool, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ν/(w + ν) (ridge, mode), νγ_i (ridge, sample), and g′, the mean of (R²)_ii/γ_i²."""
    left = pool.unlearned(nu)
    on_diagonal, squares = np.split(_product(pool.squares, np.concatenate([left, left**2])), 2)
    return left, on_diagonal, np.mean(squares / on_diagonal**2, axis=1)


def _residuals(pool: Pool, left: np.ndarray) -> np.ndarray:
    """Return νRy, (ridge, output, sample)."""
    M, outputs = pool.amplitudes.shape
    amplitudes = (left[:, None, :] * pool.amplitudes.T).reshape(-1, M)
    return _product(pool.vectors, amplitudes).reshape(-1, outputs, M)


def _complex_ridges(pool: Pool, n: float, ridges: np.ndarray, width: float) -> np.ndarray:
    """Return ν in the upper half-plane, by Newton's method from that of equal samples."""
    rest, start = 1 - n / pool.size, effective_ridges(pool, n, ridges, width)

    def factor(nu: np.ndarray) -> np.ndarray:
        return 1 - (pool.size - pool.unlearned(nu).sum(axis=1)) * (1 / width)

    for rounds in (0, _ROUNDS):
        nu = start
        for _ in range(rounds):
            inverse = np.mean(1 / _medium(pool, nu)[1], axis=1)
            nu = ridges / factor(nu) + rest * nu * inverse
        for _ in range(_STEPS):
            left, on_diagonal, slope = _medium(pool, nu)
            a = factor(nu)
            change = ridges / a**2 * (left * (1 - left)).sum(axis=1) * (1 / width) / nu
            step = (nu - ridges / a - rest * nu * np.mean(1 / on_diagonal, axis=1)) / (
                1 + change - rest * slope
            )
            step = step / nu
            if not np.isfinite(step).all():
                break
            nu = nu * np.exp(-step / np.maximum(1, np.abs(step)))
            if np.abs(step).max() < _CLOSE and (nu.imag > 0).all():
                return nu
    raise not_solved(n)


def _divided(nu: np.ndarray, values: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return (g₁ − g₂)/(ν₁ − ν₂), (ridge, ridge): the mean of (R₁R₂)_ii/(γ_i₁γ_i₂)."""
    first, second = nu[:, None], mirrored(nu)
    apart = first - second
    equal = np.abs(apart) <= _EQUAL * np.abs(first)
    quotient = (values[:, None] - mirrored(values)) / np.where(equal, 1, apart)
    return np.where(equal, (slope[:, None] + mirrored(slope)) / 2, quotient)


def _product(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the matrix times rows that may be complex, as rows, without a complex matrix."""
    columns = np.ascontiguousarray(rows.T)
    return (matrix @ columns.view(float)).view(columns.dtype).T


def _pairs(rows: np.ndarray) -> np.ndarray:
    """Return means over samples of products, (ridge, ridge, output), of (ridge, output, sample)."""
    return np.einsum("jos,kos->jko", rows, mirrored(rows), optimize=True) / rows.shape[-1]
