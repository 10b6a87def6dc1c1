"""The angle of a vector in the upper half plane, in vectorised arithmetic.

Library arctangents are evaluated one number at a time; over n² pairs they would dominate the cost
of the kernels of relu and erf.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# Minimax polynomials in u² for atan(u)/u, |u| ≤ tan(π/8), highest degree first; the errors are
# 1.3e-18 and 6e-10.
_DOUBLE = (
    -0.017803896394812564,
    0.03796390316111083,
    -0.05035049795312439,
    0.05846866752275139,
    -0.06662950246036792,
    0.07692045194561481,
    -0.09090896801472813,
    0.11111110744657099,
    -0.14285714279244968,
    0.19999999999940837,
    -0.3333333333333312,
    1.0,
)
_SINGLE = (
    -0.06026070970504976,
    0.10569738024915738,
    -0.14239520496655997,
    0.19998182384330435,
    -0.33333306880874064,
    0.9999999993708759,
)
_EIGHTH = np.tan(np.pi / 8)

# Polynomials in u² for atan(u)/u, |u| ≤ 1, interpolated at Chebyshev points; the errors are 1e-16
# and 3e-9.
_LONG = {
    np.dtype(np.float64): (
        1.2631178430477426e-05,
        -0.00014617088163625013,
        0.0008033604181626027,
        -0.0028047655531701315,
        0.007038646202989813,
        -0.013674139288399478,
        0.021740213830758134,
        -0.02970071773623423,
        0.03651081352721035,
        -0.042125723963855326,
        0.04719723992321112,
        -0.052527255573225747,
        0.05880342002401543,
        -0.06666371187721098,
        0.0769227555520563,
        -0.09090906605656898,
        0.11111110982087126,
        -0.14285714281592693,
        0.19999999999929946,
        -0.3333333333333286,
        1.0,
    ),
    np.dtype(np.float32): (
        -0.0017011700640685973,
        0.010487649254949306,
        -0.030351864785781172,
        0.05708955593030619,
        -0.08349724968301601,
        0.10932341501303093,
        -0.14260016082820906,
        0.19998075281148714,
        -0.3333327629198255,
        0.9999999971605454,
    ),
}


def series(coefficients: dict[np.dtype, tuple[float, ...]], x: Array) -> Array:
    """Return a polynomial in x with the coefficients for its precision, highest degree first."""
    return horner(coefficients.get(x.dtype, coefficients[np.dtype(np.float32)]), x)


def horner(coefficients: tuple[float, ...], x: Array) -> Array:
    """Return a polynomial in x, coefficients of the highest degree first."""
    total, *lower = coefficients
    for coefficient in lower:
        total = total * x + coefficient
    return jnp.asarray(total)


def angle_of_unit(sine: Array, over: Array, cosine: Array) -> Array:
    """Return the angle in [0, π] with sine ``sine``/``over`` ≥ 0 and this cosine.

    By one quotient, the half angle's tangent; it is not differentiable at 0 and π.
    """
    tangent = sine / (over * (1 + jnp.abs(cosine)))
    acute = 2 * tangent * series(_LONG, tangent * tangent)
    return jnp.where(cosine < 0, np.pi - acute, acute).astype(acute.dtype)


@jax.custom_jvp
def angle(y: Array, x: Array) -> Array:
    """Return the angle in [0, π] of (x, y), y ≥ 0, to a few roundings, 0 at the origin."""
    # The angle is computed from one quotient p in [0, 2] that increases with it: y/(x + y) for
    # x ≥ 0, and 2 minus its mirror image for x < 0. XLA then evaluates y and x only once.
    size = jnp.abs(x)
    total = size + y
    p = jnp.where(x < 0, total + size, y) / jnp.where(total > 0, total, 1)
    acute = jnp.where(p > 1, 2 - p, p)
    # The nearest of the directions 0, π/4 and π/2 is subtracted; u is the tangent of the rest.
    rest = 1 - acute
    flat, steep = acute <= _EIGHTH * rest, rest < _EIGHTH * acute
    above = jnp.where(flat, acute, jnp.where(steep, -rest, acute - rest))
    u = above / jnp.where(flat, rest, jnp.where(steep, acute, 1))
    square, series = u * u, jnp.zeros_like(u)
    for coefficient in _DOUBLE if u.dtype == np.float64 else _SINGLE:
        series = series * square + coefficient
    split = jnp.where(flat, 0, jnp.where(steep, np.pi / 2, np.pi / 4)).astype(u.dtype)
    acute = split + u * series
    return jnp.where(p > 1, np.pi - acute, acute).astype(u.dtype)


@angle.defjvp
def _angle_jvp(primals, tangents):
    (y, x), (dy, dx) = primals, tangents
    square = x * x + y * y
    rate = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)
    return angle(y, x), rate * (x * dy - y * dx)


def signed_angle(y: Array, x: Array) -> Array:
    """Return the angle in (−π, π] of the vectors (x, y)."""
    below = y < 0
    unsigned = angle(jnp.where(below, -y, y), x)
    return jnp.where(below, -unsigned, unsigned)
