"""Activations of degree one, φ(x) = a x + b |x|: linear, absolute value, relu, leaky relu.

The odd and the even part contribute separately under a centred Gaussian, so that

    E[φ(u)φ(v)] = a² q12 + b² E|u||v|,   E|u||v| = (2/π) √(q1 q2) (sin θ + (π/2 − θ) cos θ),

with θ the angle between u and v (Cho & Saul 2009, arc-cosine kernel of order one, for relu).
In terms of gaps there is no cancellation. For opposite u and v this needs the gap of |u| and |v|,
which follows from the gap g and the angle θ' ≤ π/2 of the nearer of the pairs (u, v) and (u, −v):

    gap' = a² gap + b² (g − (2/π) √(q1 q2) (sin θ' − θ' cos θ')),
    E[φ'(u)φ'(v)] = a² + b² (1 − 2θ/π).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.expectations.angles import horner, series
from largen.expectations.closed_form import ClosedForm, divide, of_one_rank, safe_sqrt

# With h = sin²(θ/2) ≤ ½: θ = 2√h A(h) and sin θ − θ cos θ = √h h F(h), with polynomials A and F
# interpolated at Chebyshev points, highest degree first. Their errors are 4e-17 in float64 and 3e-9
# in float32.
_ARCSINE = {
    np.dtype(np.float64): (
        0.8892904367638688,
        -3.278933156739812,
        5.7579408313146985,
        -6.229299875397985,
        4.6420689099888435,
        -2.4908808126226116,
        1.0082016650534187,
        -0.2968705430689824,
        0.07871611357002127,
        -0.002601537848299688,
        0.013191002571753903,
        0.01380344589589198,
        0.017364281439103527,
        0.022371584779320355,
        0.030381963396751827,
        0.044642856762615,
        0.07500000000401816,
        0.16666666666664987,
        1.0,
    ),
    np.dtype(np.float32): (
        0.12391349490512975,
        -0.13591627123984387,
        0.10740002130174647,
        -0.0070205791522944755,
        0.03581423928401177,
        0.04409161673371687,
        0.07502757316352404,
        0.16666614237824284,
        1.0000000016226234,
    ),
}
_FOLDING = {
    np.dtype(np.float64): (
        0.11366132592446036,
        -0.38489219072557274,
        0.6269979801368656,
        -0.6245889328726089,
        0.42909747522187885,
        -0.20794244601856987,
        0.07840039475553413,
        -0.017704735518716593,
        0.007915306613725855,
        0.004226242976164667,
        0.006643093513241805,
        0.009249048024860408,
        0.013767805682029654,
        0.022095947639427637,
        0.03968253995077448,
        0.0857142857111221,
        0.26666666666668143,
        2.6666666666666665,
    ),
    np.dtype(np.float32): (
        0.04061521876440821,
        -0.027997588411071684,
        0.03197484780780656,
        0.01745561194438718,
        0.04030446149980953,
        0.08567418180822117,
        0.26666763703183927,
        2.666666662864241,
    ),
}

# The same polynomials to 2e-13, for repeated evaluation of both.
_SHORT_ARCSINE = (
    0.2956509569163965,
    -0.7127528085707677,
    0.8424403983992896,
    -0.5721105493581207,
    0.27445946586331854,
    -0.0708319373870842,
    0.03169780947232744,
    0.014727565858530361,
    0.022633339925345473,
    0.030365242469217603,
    0.04464349276515904,
    0.07499998744836052,
    0.16666666676379507,
    0.999999999999876,
)
_SHORT_FOLDING = (
    0.054511560552658635,
    -0.11355544318965799,
    0.12299453435422392,
    -0.07019069652600655,
    0.034294524064443305,
    -0.0012691585676476251,
    0.010660206932322341,
    0.013600756608197666,
    0.02210853666544849,
    0.039681979293178904,
    0.08571429860494875,
    0.2666666665508186,
    2.6666666666668384,
)

_ROUNDINGS = 4  # of a gap, up to which u and v count as parallel


@lru_cache
def homogeneous(odd: float, even: float, slope_at_zero: float) -> ClosedForm:
    """Return the Gaussian integrals of φ(x) = odd·x + even·|x|; ``slope_at_zero`` is φ'(0)."""
    a2, b2 = odd**2, even**2

    def pair(q1, q2, gap):
        q1, q2, gap = of_one_rank(q1, q2, gap)
        gap_out, derivative = (a2 + b2) * gap, jnp.full_like(gap, a2 + b2)
        if b2:
            theta = angle_of(q1, q2, gap)
            gap_out = a2 * gap + b2 * _gap_of_sizes(q1, q2, gap)
            derivative = derivative - 2 * b2 / np.pi * theta
            alone: Any = 0
            if slope_at_zero:
                slope1, slope2 = (jnp.where(q > 0, odd, slope_at_zero) for q in (q1, q2))
                alone = slope1 * slope2
            derivative = jnp.where(jnp.minimum(q1, q2) > 0, derivative, alone)
        return gap_out, derivative

    return ClosedForm(
        pair=pair,
        second_moment=lambda q: (a2 + b2) * q,
        derivative_second_moment=lambda q: jnp.where(q > 0, a2 + b2, slope_at_zero**2).astype(
            q.dtype
        ),
        mean=lambda q: even * safe_sqrt(2 * q / np.pi),
        slopes=(odd, even, slope_at_zero),
    )


class _Nearer(NamedTuple):
    """The pair (u, v), or (u, −v) where that is nearer, at the angle θ' = θ or π − θ."""

    gap: Array
    half_sine: Array  # sin(θ'/2); arbitrary where a variance is 0
    obtuse: Array  # whether it is (u, −v)


def _nearer(q1: Array, q2: Array, gap: Array) -> _Nearer:
    """Return the nearer of the pairs (u, v) and (u, −v).

    2 sin²(θ'/2) is half the mean squared distance of u/√q1 and ±v/√q2. For parallel and opposite u
    and v it is a difference of equal numbers, whose rounding error δ would become an angle √δ;
    angles of that size are 0.
    """
    tiny, rounding = jnp.finfo(gap.dtype).tiny, _ROUNDINGS * jnp.finfo(gap.dtype).eps
    # XLA evaluates the roots once for each variance, and all other operations for every pair.
    inverse1, inverse2 = (1 / jnp.sqrt(jnp.maximum(2 * q, tiny)) for q in (q1, q2))
    uneven = _uneven(q1 - q2, jnp.sqrt(q1) + jnp.sqrt(q2) + tiny)
    opposite = q1 + q2 - gap
    nearer = jnp.minimum(gap, opposite)
    lost = rounding * (jnp.abs(q1 - q2) + gap)  # gap is q1 + q2 where opposite is 0
    parallel = nearer - uneven <= lost
    h = jnp.where(parallel, 0, jnp.minimum((nearer - uneven) * inverse1 * inverse2, 0.5))
    return _Nearer(jnp.where(parallel, uneven, nearer), jnp.sqrt(h), gap > opposite)


@jax.custom_jvp
def angle_and_folding(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """Return θ and √(q1 q2) (sin θ − θ cos θ) to 2e-13, for variances of one rank with the gap.

    In fewer operations than either at full precision, relative near θ = 0; arbitrary at variance 0.
    """
    (r1, inverse1), (r2, inverse2) = (
        (root, 1 / jnp.maximum(root, jnp.finfo(root.dtype).tiny ** 0.5))
        for root in map(jnp.sqrt, (q1, q2))
    )
    h = (gap - (r1 - r2) ** 2 / 2) * (inverse1 * inverse2 / 2)  # sin²(θ/2)
    square = jnp.maximum(jnp.minimum(h, 1 - h), 0)
    half_sine, obtuse = jnp.sqrt(square), h > 0.5
    theta = 2 * half_sine * horner(_SHORT_ARCSINE, square)
    folded = half_sine * square * horner(_SHORT_FOLDING, square)
    # sin θ − θ cos θ = sin θ' − θ' cos θ' + π cos θ' for θ = π − θ'.
    theta = jnp.where(obtuse, np.pi - theta, theta)
    folded = folded + jnp.where(obtuse, np.pi * (1 - 2 * square), 0)
    return theta, r1 * r2 * folded


@angle_and_folding.defjvp
def _angle_and_folding_jvp(primals, tangents):
    theta, d_theta = jax.jvp(angle_of, primals, tangents)
    folded = angle_and_folding(*primals)[1]
    return (theta, folded), (d_theta, _folding_rate(primals, tangents))


def _uneven(difference: Array, roots: Array) -> Array:
    """Return (√q1 − √q2)²/2, the gap of parallel u and v, from q1 − q2 and √q1 + √q2."""
    step = difference / roots
    return step * step / 2


def _root_of_determinant(q1: Array, q2: Array, gap: Array) -> Array:
    """Return √(q1 q2) sin θ."""
    roots = safe_sqrt(q1) + safe_sqrt(q2)
    uneven = _uneven(q1 - q2, jnp.where(roots > 0, roots, 1))
    return safe_sqrt(gap - uneven) * safe_sqrt(q1 + q2 - gap - uneven)


@jax.custom_jvp
def angle_of(q1: Array, q2: Array, gap: Array) -> Array:
    """Return the angle θ in [0, π] between u and v, to relative precision near 0."""
    _, half_sine, obtuse = _nearer(q1, q2, gap)
    theta = 2 * half_sine * series(_ARCSINE, half_sine * half_sine)
    return jnp.where(obtuse, np.pi - theta, theta).astype(theta.dtype)


@angle_of.defjvp
def _angle_jvp(primals, tangents):
    # θ has a kink |u − v| where u and v coincide; its derivative there is set to 0, the derivative
    # along the diagonal.
    q1, q2, gap = primals
    dq1, dq2, dgap = tangents
    rate = divide(jnp.ones_like(gap), _root_of_determinant(q1, q2, gap))
    tangent = rate * (
        dgap - divide(gap + (q1 - q2) / 2, 2 * q1) * dq1 - divide(gap + (q2 - q1) / 2, 2 * q2) * dq2
    )
    return angle_of(q1, q2, gap), tangent


@jax.custom_jvp
def _gap_of_sizes(q1: Array, q2: Array, gap: Array) -> Array:
    """Return the gap of |u| and |v|, to relative precision near θ' = 0.

    That of the nearer pair less (2/π) √(q1 q2) (sin θ' − θ' cos θ').
    """
    nearer, half_sine, _ = _nearer(q1, q2, gap)
    square = half_sine * half_sine
    folded = half_sine * square * series(_FOLDING, square)
    return nearer - 2 / np.pi * jnp.sqrt(q1) * jnp.sqrt(q2) * folded


@_gap_of_sizes.defjvp
def _gap_of_sizes_jvp(primals, tangents):
    return _gap_of_sizes(*primals), tangents[2] - 2 / np.pi * _folding_rate(primals, tangents)


def _folding_rate(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """Return the derivative of F = √(q1 q2) (sin θ − θ cos θ)."""
    # With F = √det − θ q12: dF = θ (dgap − (dq1 + dq2)/2) + √det (dq1/q1 + dq2/q2)/2.
    q1, q2, gap = primals
    dq1, dq2, dgap = tangents
    root, theta = _root_of_determinant(q1, q2, gap), angle_of(q1, q2, gap)
    return (
        theta * dgap + (divide(root, q1) - theta) / 2 * dq1 + (divide(root, q2) - theta) / 2 * dq2
    )
