"""Gaussian integrals of e^(−x²/2w²), and of √2 sin(√(2γ)x + π/4), whose kernel is a Gaussian.

In units of w, with Δ = (1 + q1)(1 + q2) − q12²,

    E[e^(−u²/2) e^(−v²/2)] = Δ^(−½),   E[φ'(u)φ'(v)] = q12 Δ^(−3/2),

and for the wave E[φ(u)φ(v)] = e^(−2γ gap): the kernel of radial basis functions.
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
from jax import Array

from largen.expectations.closed_form import (
    ClosedForm,
    covariance_of,
    determinant_of,
    slope_of,
    smooth_pair,
)


@lru_cache
def gaussian_integrals(width: float) -> ClosedForm:
    """Return the Gaussian integrals of φ(x) = e^(−x²/2w²)."""
    scale = width**-2

    def determinant(q1: Array, q2: Array, gap: Array) -> Array:
        return jnp.maximum(determinant_of(q1, q2, gap), 0)

    def gap_formula(q1, q2, gap):
        q1, q2, gap = scale * q1, scale * q2, scale * gap
        apart = determinant(q1, q2, gap)
        r, part = jnp.sqrt(1 + q1 + q2), jnp.sqrt(1 + q1 + q2 + apart)
        turned = apart / (r * part * (r + part))  # 1/r − 1/part
        # ½(1/√A + 1/√B) − 1/√((A + B)/2) with A = 1 + 2q1, B = 1 + 2q2.
        a, b = jnp.sqrt(1 + 2 * q1), jnp.sqrt(1 + 2 * q2)
        unequal = (q1 - q2) ** 2 * (1 + r / (a + b)) / (r * a * b * (a + r) * (b + r))
        return unequal + turned

    def derivative_formula(q1, q2, gap):
        q1, q2, gap = scale * q1, scale * q2, scale * gap
        delta = 1 + q1 + q2 + determinant(q1, q2, gap)
        return scale * covariance_of(q1, q2, gap) * delta**-1.5

    def covariance(q1, q2, q12):
        return ((1 + scale * q1) * (1 + scale * q2) - (scale * q12) ** 2) ** -0.5

    def second_moment(q):
        return (1 + 2 * scale * q) ** -0.5

    return ClosedForm(
        pair=smooth_pair(gap_formula, derivative_formula, slope_of(covariance), second_moment),
        second_moment=second_moment,
        derivative_second_moment=lambda q: scale**2 * q * (1 + 2 * scale * q) ** -1.5,
        mean=lambda q: (1 + scale * q) ** -0.5,
    )


@lru_cache
def rbf_integrals(gamma: float) -> ClosedForm:
    """Return the Gaussian integrals of φ(x) = √2 sin(√(2γ) x + π/4)."""

    def pair(q1, q2, gap):
        gap = jnp.broadcast_arrays(gap, q1 + q2)[0]
        return -jnp.expm1(-2 * gamma * gap), 2 * gamma * jnp.exp(-2 * gamma * gap)

    return ClosedForm(
        pair=pair,
        second_moment=jnp.ones_like,
        derivative_second_moment=lambda q: jnp.full_like(q, 2 * gamma),
        mean=lambda q: jnp.exp(-gamma * q),
    )
