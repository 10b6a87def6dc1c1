"""Activations of degree one, φ(x) = a x + b |x|: linear, absolute value, relu, leaky relu.

The odd and the even part do not mix under a centred Gaussian, so that

    E[φ(u)φ(v)] = a² q12 + b² E|u||v|,   E|u||v| = (2/π) √(q1 q2) (sin θ + (π/2 − θ) cos θ),

with θ the angle between u and v (Cho & Saul 2009, arc-cosine kernel of order one, for relu).
In terms of the gap nothing cancels:

    gap' = (a² + b²) gap − (2 b²/π) √(q1 q2) (sin θ − θ cos θ),
    E[φ'(u)φ'(v)] = a² + b² (1 − 2θ/π).
"""

from __future__ import annotations

from functools import lru_cache
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.expectations.angles import angle
from largen.expectations.closed_form import (
    ClosedForm,
    covariance_of,
    determinant_of,
    divide,
    safe_sqrt,
)

# 1 − θ cot θ = Σ_n |B_2n| (2θ)^(2n) / (2n)!; at θ = 1/2 ten terms give 1e-16, five 1e-8.
_SMALL_ANGLE = 0.5
_BERNOULLI = [1 / 6, 1 / 30, 1 / 42, 1 / 30, 5 / 66]
_BERNOULLI += [691 / 2730, 7 / 6, 3617 / 510, 43867 / 798, 174611 / 330]
_ONE_MINUS_THETA_COT = [b * 4**n / factorial(2 * n) for n, b in enumerate(_BERNOULLI, start=1)]


@lru_cache
def homogeneous(odd: float, even: float, slope_at_zero: float) -> ClosedForm:
    """Return the Gaussian integrals of φ(x) = odd·x + even·|x|.

    Parameters
    ----------
    odd, even
        Slopes a and b; relu has a = b = ½, the linear function b = 0.
    slope_at_zero
        φ'(0) as a finite network takes it, 0 for relu; it matters where a variance is 0.
    """
    a2, b2 = odd**2, even**2

    def pair(q1, q2, gap):
        q1, q2, gap = jnp.broadcast_arrays(q1, q2, gap)
        gap_out, derivative = (a2 + b2) * gap, jnp.full_like(gap, a2 + b2)
        if b2:
            theta = angle_of(q1, q2, gap)
            gap_out = gap_out - 2 * b2 / np.pi * _folding(q1, q2, gap)
            derivative = derivative - 2 * b2 / np.pi * theta
            slope1, slope2 = (jnp.where(q > 0, odd, slope_at_zero) for q in (q1, q2))
            derivative = jnp.where((q1 > 0) & (q2 > 0), derivative, slope1 * slope2)
        return gap_out, derivative

    return ClosedForm(
        pair=pair,
        second_moment=lambda q: (a2 + b2) * q,
        derivative_second_moment=lambda q: jnp.where(q > 0, a2 + b2, slope_at_zero**2).astype(
            q.dtype
        ),
        mean=lambda q: even * safe_sqrt(2 * q / np.pi),
    )


def _scaled(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array, Array]:
    """Return h = (q1 + q2)/2, √(q1 q2) sin θ / h and √(q1 q2) cos θ / h, safe from overflow."""
    half = (q1 + q2) / 2
    half = jnp.where(half > 0, half, 1)
    inverse = 1 / half
    x1, x2, g = q1 * inverse, q2 * inverse, gap * inverse
    return half, safe_sqrt(determinant_of(x1, x2, g)), covariance_of(x1, x2, g)


@jax.custom_jvp
def angle_of(q1: Array, q2: Array, gap: Array) -> Array:
    """Return the angle θ in [0, π] between u and v, to relative precision near 0."""
    _, sine, cosine = _scaled(q1, q2, gap)
    return angle(sine, cosine)


@angle_of.defjvp
def _angle_jvp(primals, tangents):
    # θ has a kink |u − v| where u and v coincide: rate 0, the derivative along the diagonal.
    q1, q2, gap = primals
    dq1, dq2, dgap = tangents
    half, sine, _ = _scaled(q1, q2, gap)
    rate = divide(jnp.ones_like(gap), half * sine)
    tangent = rate * (
        dgap - divide(gap + (q1 - q2) / 2, 2 * q1) * dq1 - divide(gap + (q2 - q1) / 2, 2 * q2) * dq2
    )
    return angle_of(q1, q2, gap), tangent


@jax.custom_jvp
def _folding(q1: Array, q2: Array, gap: Array) -> Array:
    """Return √(q1 q2) (sin θ − θ cos θ), to relative precision near θ = 0, where it is θ³/3."""
    half, sine, cosine = _scaled(q1, q2, gap)
    theta = angle(sine, cosine)
    square = jnp.minimum(theta, _SMALL_ANGLE) ** 2
    series = jnp.zeros_like(square)
    terms = len(_ONE_MINUS_THETA_COT) if theta.dtype == np.float64 else 5
    for coefficient in reversed(_ONE_MINUS_THETA_COT[:terms]):
        series = (series + coefficient) * square
    return half * jnp.where(theta < _SMALL_ANGLE, sine * series, sine - theta * cosine)


@_folding.defjvp
def _folding_jvp(primals, tangents):
    # With F = √det − θ q12: dF = θ (dgap − (dq1 + dq2)/2) + √det (dq1/q1 + dq2/q2)/2.
    q1, q2, gap = primals
    dq1, dq2, dgap = tangents
    half, sine, _ = _scaled(q1, q2, gap)
    root, theta = half * sine, angle_of(q1, q2, gap)
    tangent = (
        theta * dgap + (divide(root, q1) - theta) / 2 * dq1 + (divide(root, q2) - theta) / 2 * dq2
    )
    return _folding(q1, q2, gap), tangent
