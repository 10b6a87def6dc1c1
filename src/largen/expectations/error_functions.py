"""Activations made of the Gaussian distribution function Φ: erf and gelu.

Everything follows from E[Φ(u)Φ(v)] = ¼ + asin(q12/√(AB))/2π with A = 1 + q1, B = 1 + q2
(Williams 1997) and from Gaussian integration by parts. erf(x) = 2Φ(√2 x) − 1, so that

    E[erf(u)erf(v)] = (2/π) asin(2 q12/√((1 + 2q1)(1 + 2q2))),

and gelu(x) = x Φ(x) = x/2 + x (Φ(x) − ½), whose odd and even part contribute separately:

    E[gelu(u)gelu(v)] = q12/4 + [q12 asin(q12/√(AB)) + T]/2π,
    T = (q1 q2 + q12² (1 − q1 q2)/(AB)) / √(AB − q12²).

The gaps are written as a part that vanishes at correlation 1, plus a part of second order in
q1 − q2 that remains there, each without cancellation.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.expectations.angles import angle, angle_of_unit, signed_angle
from largen.expectations.closed_form import (
    ClosedForm,
    covariance_of,
    covariance_shortfall,
    determinant_of,
    slope_of,
    smooth_pair,
)


def _arc_shortfall(q1: Array, q2: Array, gap: Array) -> Array:
    """Return asin(√(q1 q2)/√(AB)) − asin(q12/√(AB)), the arc at correlation 1 minus the arc."""
    root, q12, _, determinant = covariance_shortfall(q1, q2, gap)
    cos_full = jnp.sqrt(1 + q1 + q2)
    cos_part = jnp.sqrt(1 + q1 + q2 + determinant)
    same_side, mixed = q12 > 0, root * cos_part + cos_full * q12
    product = (1 + q1) * (1 + q2)
    sine = jnp.where(
        same_side,
        determinant / jnp.where(same_side, mixed, 1) * product,
        root * cos_part - cos_full * q12,
    )
    return angle(sine, cos_full * cos_part + root * q12)


def _half_arc(q: Array) -> tuple[Array, Array]:
    """Return sine and cosine of β/2, half the arc β = asin(q/(1 + q))."""
    cosine = jnp.sqrt((1 + jnp.sqrt(1 + 2 * q) / (1 + q)) / 2)
    return q / (1 + q) / (2 * cosine), cosine


def _half_arcs(q1: Array, q2: Array) -> tuple[Array, Array, Array]:
    """Return sin((β1 − β2)/2), and sine and cosine of the mean m = (β1 + β2)/2.

    sin² m = sin β1 sin β2 + sin²((β1 − β2)/2), where the first term is the squared sine of the arc
    at correlation 1.
    """
    (s1, c1), (s2, c2) = _half_arc(q1), _half_arc(q2)
    return s1 * c2 - c1 * s2, s1 * c2 + c1 * s2, c1 * c2 - s1 * s2


def _arc_spread(q1: Array, q2: Array) -> tuple[Array, Array]:
    """Return β1 − β2, and m − γ for the arc γ = asin(√(q1 q2)/√(AB)) at correlation 1.

    m − γ is of second order in q1 − q2.
    """
    a, b = 1 + q1, 1 + q2
    cos1, cos2 = jnp.sqrt(1 + 2 * q1), jnp.sqrt(1 + 2 * q2)  # times a, b
    sine_difference = (q1 - q2) * (q1 * b + q2 * a) / (q1 * cos2 + q2 * cos1 + _tiny(q1))
    cos_difference = cos1 * cos2 + q1 * q2  # times a b, as the sine
    difference = signed_angle(sine_difference, cos_difference)
    _, sin_mean, cos_mean = _half_arcs(q1, q2)
    sin_pair, cos_pair = jnp.sqrt(q1) * jnp.sqrt(q2), jnp.sqrt(1 + q1 + q2)  # times √(ab)
    # sin² of the half difference, from its sine, without cancellation
    length = a * b
    half_square = sine_difference**2 / (2 * length * (length + cos_difference))
    sine = half_square / (sin_mean * cos_pair + cos_mean * sin_pair + _tiny(q1)) * length
    return difference, angle(sine, cos_mean * cos_pair + sin_mean * sin_pair)


def _tiny(x: Array) -> Array:
    return jnp.asarray(jnp.finfo(x.dtype).tiny, x.dtype)


# --- erf -----------------------------------------------------------------------------------


def _erf_both(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    # gap' = (2/π)(m − asin x) with x = 2 q12/√((1 + 2q1)(1 + 2q2)), and D = (4/π)/√S with
    # S = (1 + 2q1)(1 + 2q2)(1 − x²). The sine of m − asin x is sin m √(1 − x²) − x cos m; where
    # the two terms would cancel it is sin² m − x² over their sum. One root of S serves both.
    apart, sin_mean, cos_mean = _half_arcs(2 * q1, 2 * q2)
    scale = 1 / jnp.sqrt(1 + 2 * q1) * (1 / jnp.sqrt(1 + 2 * q2))
    determinant = jnp.maximum(determinant_of(q1, q2, gap), 0)
    spread = 1 + 2 * (q1 + q2) + 4 * determinant  # S
    root = jnp.sqrt(spread)
    rest, x = root * scale, 2 * covariance_of(q1, q2, gap) * scale  # √(1 − x²)
    near, far = sin_mean * rest, x * cos_mean
    squares = apart**2 + 4 * determinant * scale**2  # sin² m − x²
    same_side = x > 0
    sine, over = jnp.where(same_side, squares, near - far), jnp.where(same_side, near + far, 1)
    arc = angle_of_unit(sine, over, cos_mean * rest + x * sin_mean)
    return 2 / np.pi * arc, 4 / np.pi / root


def _erf_derivative(q1: Array, q2: Array, gap: Array) -> Array:
    # As in _erf_both, but with the derivative of the determinant retained where it is 0.
    return 4 / np.pi / jnp.sqrt(1 + 2 * (q1 + q2) + 4 * determinant_of(q1, q2, gap))


def _erf_covariance(q1: Array, q2: Array, q12: Array) -> Array:
    return 2 / np.pi * jnp.arcsin(2 * q12 / jnp.sqrt((1 + 2 * q1) * (1 + 2 * q2)))


def _erf_second_moment(q: Array) -> Array:
    return 2 / np.pi * jnp.arctan2(2 * q, jnp.sqrt(1 + 4 * q))


ERF = ClosedForm(
    pair=smooth_pair(
        lambda *p: _erf_both(*p)[0],
        _erf_derivative,
        slope_of(_erf_covariance),
        _erf_second_moment,
        _erf_both,
    ),
    second_moment=_erf_second_moment,
    derivative_second_moment=lambda q: 4 / np.pi / jnp.sqrt(1 + 4 * q),
    mean=jnp.zeros_like,
)


# --- gelu ----------------------------------------------------------------------------------


def _gelu_covariance(q1: Array, q2: Array, q12: Array) -> Array:
    product = (1 + q1) * (1 + q2)
    rational = q1 * q2 - q12**2 + q12**2 * (2 + q1 + q2) / product
    arc = jnp.arcsin(q12 / jnp.sqrt(product))
    return q12 / 4 + (q12 * arc + rational / jnp.sqrt(product - q12**2)) / (2 * np.pi)


def _gelu_second_moment(q: Array) -> Array:
    root = jnp.sqrt(1 + 2 * q)
    arc = jnp.arctan2(q, root)
    return q / 4 + q * (arc + 2 * q / ((1 + q) * root)) / (2 * np.pi)


def _gelu_derivative(q1: Array, q2: Array, gap: Array) -> Array:
    q12, determinant = covariance_of(q1, q2, gap), determinant_of(q1, q2, gap)
    product, delta = (1 + q1) * (1 + q2), 1 + q1 + q2 + determinant
    density = 1 / (2 * np.pi * jnp.sqrt(delta))  # E[Φ'(u)Φ'(v)]
    mixing = (2 + q1 + q2) / product - 1
    rational = determinant + q12**2 * (2 + q1 + q2) / product
    arc = signed_angle(q12, jnp.sqrt(delta))
    return 1 / 4 + arc / (2 * np.pi) + density * q12 * (1 + 2 * mixing + rational / delta)


def _gelu_gap(q1: Array, q2: Array, gap: Array) -> Array:
    even = _gelu_collinear(q1, q2) + _gelu_shortfall(q1, q2, gap)
    return gap / 4 + even / (2 * np.pi)


def _gelu_shortfall(q1: Array, q2: Array, gap: Array) -> Array:
    """Return the value of q12 asin(q12/√(AB)) + T at correlation 1 minus that at q12."""
    root, q12, shortfall, w = covariance_shortfall(q1, q2, gap)
    product = (1 + q1) * (1 + q2)
    full = 1 + q1 + q2
    root_full, root_part = jnp.sqrt(full), jnp.sqrt(full + w)
    arcs = shortfall * angle(root, root_full) + q12 * _arc_shortfall(q1, q2, gap)
    at_one = q1 * q2 * (2 + q1 + q2) / product
    inverse_roots = w / (root_full * root_part * (root_full + root_part))
    return arcs + at_one * inverse_roots + (1 - q1 * q2) / product * w / root_part


def _gelu_collinear(q1: Array, q2: Array) -> Array:
    """Return π E[(ψ(√q1 z) − ψ(√q2 z))²] for the even part ψ, of second order in q1 − q2."""
    root1, root2 = jnp.sqrt(q1), jnp.sqrt(q2)
    arc2 = jnp.arctan2(q2, jnp.sqrt(1 + 2 * q2))
    difference, spread = _arc_spread(q1, q2)
    step = (q1 - q2) / (root1 + root2 + _tiny(q1))
    arcs = step * (root1 * difference + arc2 * step) / 2 + root1 * root2 * spread
    # T = y1 y2 k(A + B) with y = q/(1 + q), k(t) = t/√(t − 1), at correlation 1.
    y1, y2 = q1 / (1 + q1), q2 / (1 + q2)
    step_y = (q1 - q2) / ((1 + q1) * (1 + q2))
    rho0, rho1, rho2 = (jnp.sqrt(1 + t) for t in (q1 + q2, 2 * q1, 2 * q2))
    divided = (1 - 1 / (rho1 * rho0)) / (rho1 + rho0)  # (k(2A) − k(A + B))/(A − B)
    rho_step = 2 * (q1 - q2) / (rho1 + rho2)
    second = rho_step * ((rho0 + rho1 + rho2) / (rho0 * rho1 * rho2) - 1)
    second = second / ((rho1 + rho0) * (rho2 + rho0))
    k = rho0 + 1 / rho0
    rational = step_y**2 * k + (q1 - q2) * ((y1 + y2) * step_y * divided + y2**2 * second)
    return arcs + rational / 2


def _gelu_derivative_second_moment(q: Array) -> Array:
    return _gelu_derivative(q, q, jnp.zeros_like(q))


GELU = ClosedForm(
    pair=smooth_pair(_gelu_gap, _gelu_derivative, slope_of(_gelu_covariance), _gelu_second_moment),
    second_moment=_gelu_second_moment,
    derivative_second_moment=_gelu_derivative_second_moment,
    mean=lambda q: q / jnp.sqrt(2 * np.pi * (1 + q)),
)
