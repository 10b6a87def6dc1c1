"""Gaussian integrals of polynomials.

With B_k(q) = E[φ⁽ᵏ⁾(√q z)], itself a polynomial in q, Price's theorem at covariance 0 gives

    E[φ(u)φ(v)] = Σ_k B_k(q1) B_k(q2) q12ᵏ/k!,
    E[φ'(u)φ'(v)] = Σ_k B_{k+1}(q1) B_{k+1}(q2) q12ᵏ/k!.

For the orthonormal Hermite polynomial h_n at variance 1 only one term is nonzero, and the kernel is
cⁿ.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import factorial
from typing import Any

import jax.numpy as jnp
from jax import Array

from largen.expectations.closed_form import (
    ClosedForm,
    covariance_of,
    covariance_shortfall,
    safe_sqrt,
    slope_of,
    smooth_pair,
)

Series = list  # coefficients, floats or arrays, from the lowest power up


@lru_cache
def polynomial_integrals(coefficients: tuple[float, ...]) -> ClosedForm:
    """Return the Gaussian integrals of φ(x) = Σ_j coefficients[j] xʲ."""
    degree = len(coefficients) - 1
    means = [_mean_of_derivative(coefficients, k) for k in range(degree + 1)]

    def products(q1: Array, q2: Array, order: int) -> Series:
        """B_{k+order}(q1) B_{k+order}(q2)/k! for every k."""
        return [
            horner(b, q1) * horner(b, q2) / factorial(k) for k, b in enumerate(means[order:])
        ] or [jnp.zeros_like(q1 + q2)]

    def covariance(q1, q2, q12, order=0):
        return horner(products(q1, q2, order), q12)

    def second_moment(q):
        return covariance(q, q, q)

    def gap_formula(q1, q2, gap):
        # Σ_k ½(B_k s₁ᵏ − B_k s₂ᵏ)²/k! for parallel u and v, plus the increase with the angle.
        s1, s2 = safe_sqrt(q1), safe_sqrt(q2)
        root, q12, shortfall, _ = covariance_shortfall(q1, q2, gap)
        unequal = jnp.zeros_like(gap)
        for k, b in enumerate(means):
            spread = [0.0] * (k + 2 * len(b) - 1)
            spread[k::2] = b
            unequal = unequal + _divided_difference(spread, s1, s2) ** 2 / (2 * factorial(k))
        total = s1 + s2
        step = (q1 - q2) / jnp.where(total > 0, total, 1)
        return unequal * step**2 + shortfall * _divided_difference(products(q1, q2, 0), root, q12)

    def derivative_formula(q1, q2, gap):
        return covariance(q1, q2, covariance_of(q1, q2, gap), order=1)

    return ClosedForm(
        pair=smooth_pair(gap_formula, derivative_formula, slope_of(covariance), second_moment),
        second_moment=second_moment,
        derivative_second_moment=lambda q: covariance(q, q, q, order=1),
        mean=lambda q: horner(means[0], q) + jnp.zeros_like(q),
    )


def _mean_of_derivative(coefficients: tuple[float, ...], k: int) -> Series:
    """Return B_k as coefficients of powers of q: E[zᵐ] = m!/((m/2)! 2^(m/2)) for even m."""
    return [
        c * factorial(k + 2 * i) / (factorial(i) * 2.0**i) for i, c in enumerate(coefficients[k::2])
    ]


def horner(series: Sequence[Any], x: Array) -> Array:
    """Return Σ_j series[j] xʲ."""
    total = jnp.zeros_like(x)
    for c in reversed(series):
        total = total * x + c
    return total


def _divided_difference(series: Series, x: Array, y: Array) -> Array:
    """Return (p(x) − p(y))/(x − y) without cancellation, by Horner's rule."""
    value, difference = jnp.zeros_like(y), jnp.zeros_like(x + y)
    for c in reversed(series):
        difference = difference * x + value
        value = value * y + c
    return difference
