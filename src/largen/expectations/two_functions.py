"""Moments E[φ(u)ψ(v)] and E[φ'(u)ψ'(v)] of different functions of two correlated Gaussians.

If φ is the identity, they are q12 E[ψ'] and E[ψ']. If both are of degree one, they follow from
those of linear and absolute value. If one of them is smooth, they are the series

    E[φ(u)ψ(v)] = Σ_k a_k b_k cᵏ,   √(q1 q2) E[φ'(u)ψ'(v)] = Σ_k k a_k b_k cᵏ⁻¹,

with the Hermite coefficients a_k(q) = E[φ(√q z) h_k(z)], integrated on each side of the kinks;
those of the smooth function decrease fast. Two functions with kinks are integrated over the plane.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from largen.expectations.activations import ActivationFunction, as_activation
from largen.expectations.closed_form import safe_sqrt
from largen.expectations.composition import product
from largen.expectations.moments import _floats, mean, pair_moments, second_moment
from largen.expectations.nodes import kinks_of, values
from largen.expectations.panels import panels
from largen.expectations.piecewise_smooth import over_plane
from largen.expectations.watching import current_watch, pair_of_two

_IDENTITY = as_activation("linear")
_TERMS = 512  # of the series: tanh at variance 4 then leaves 1e-11
_REACH = 9.0  # standard deviations
_PANELS = 64  # between them, apart from those that end at kinks
_ORDER = 16  # nodes of a panel, which resolve Hermite polynomials of all degrees that are summed
_SMALL = 1e-10  # variance in place of smaller ones, in quotients whose limit is finite


class CrossMoments(NamedTuple):
    """Moments of two functions of two Gaussians."""

    # value, derivative: E[φ(u)ψ(v)] and E[φ'(u)ψ'(v)].
    value: Any
    derivative: Any


def cross_moments(
    phi: ActivationFunction, psi: ActivationFunction, q1: Any, q2: Any, q12: Any
) -> CrossMoments:
    """Return E[φ(u)ψ(v)] and E[φ'(u)ψ'(v)] for Gaussians of variances q1, q2 and covariance q12."""
    if (watching := current_watch()) is not None:
        return CrossMoments(*pair_of_two(watching, phi, psi, q1, q2, q12))
    q1, q2, q12 = _floats(q1, q2, q12)
    if phi == psi:
        gap = (q1 + q2) / 2 - q12
        gap = gap - lax.stop_gradient(jnp.minimum(gap, 0))
        apart, derivative = pair_moments(phi, q1, q2, gap)
        halves = (second_moment(phi, q1) + second_moment(phi, q2)) / 2
        return CrossMoments(halves - apart, derivative)
    if phi == _IDENTITY:
        slope = _mean_slope(psi, q2)
        return CrossMoments(q12 * slope, slope + 0 * q12)
    if psi == _IDENTITY:
        slope = _mean_slope(phi, q1)
        return CrossMoments(q12 * slope, slope + 0 * q12)
    return CrossMoments(*_different(phi, psi, q1, q2, q12))


def _mean_slope(phi: ActivationFunction, q: Array) -> Array:
    """Return E[φ'(b)] = E[b φ(b)]/q, in which no jump is integrated."""
    safe = jnp.maximum(q, _SMALL)
    return mean(product(_IDENTITY, phi), safe) / safe


@lru_cache(maxsize=256)
def _of_degree_one(phi: ActivationFunction) -> tuple[float, float] | None:
    """Return a and b of φ(x) = a x + b |x|, or None for other functions."""
    x = np.array([0.25, 1.0, 3.0, 8.0])
    right, left = (values(phi, s * x)[0] / (s * x) for s in (1, -1))
    for side in (right, left):
        if np.ptp(side) > 1e-14 * np.max(np.abs(side), initial=1e-300):
            return None
    return float(right[0] + left[0]) / 2, float(right[0] - left[0]) / 2


@partial(jax.jit, static_argnums=(0, 1))
def _different(phi: ActivationFunction, psi: ActivationFunction, q1: Array, q2: Array, q12: Array):
    one, two = _of_degree_one(phi), _of_degree_one(psi)
    if one is not None and two is not None:
        gap = (q1 + q2) / 2 - q12
        gap = gap - lax.stop_gradient(jnp.minimum(gap, 0))
        apart, derivative = pair_moments("abs", q1, q2, gap)
        odd, even = one[0] * two[0], one[1] * two[1]
        return odd * q12 + even * ((q1 + q2) / 2 - apart), odd + even * derivative
    kinks = kinks_of(phi), kinks_of(psi)
    if all(kinks):
        return _by_pieces(phi, psi, kinks, q1, q2, q12)
    return _by_series(phi, psi, kinks, q1, q2, q12)


def _by_pieces(phi, psi, kinks, q1, q2, q12):
    def integrand(u):
        value, slope = phi(u), phi.derivative(u)
        return lambda v: (value * psi(v), slope * psi.derivative(v))

    gap = jnp.maximum((q1 + q2) / 2 - q12, 0)
    return over_plane(integrand, kinks, q1, q2, gap)


def _by_series(phi, psi, kinks, q1, q2, q12):
    q1, q2 = (jnp.maximum(q, _SMALL) for q in (q1, q2))
    size = jnp.sqrt(q1) * jnp.sqrt(q2)
    c = jnp.clip(q12 / size, -1, 1)
    a, b = (_coefficients(*each) for each in ((phi, kinks[0], q1), (psi, kinks[1], q2)))

    def add(sums, terms):
        # Horner's rule from the highest degree down, for the series and for its derivative.
        value, slope = sums
        term = terms[0] * terms[1]
        return (value * c + term, slope * c + value), None

    zero = jnp.zeros(jnp.broadcast_shapes(q1.shape, q2.shape, c.shape), c.dtype)
    (value, slope), _ = lax.scan(add, (zero, zero), (a, b), reverse=True)
    return value, slope / size


def _nodes(places: list[Array], like: Array) -> tuple[Array, Array, Array]:
    """Return nodes between places in standard deviations, their lengths, and the density's root."""
    edges = [jnp.full_like(like, z) for z in np.linspace(-_REACH, _REACH, _PANELS + 1)]
    edges += [jnp.clip(place, -_REACH, _REACH) for place in places]
    edges = jnp.sort(jnp.stack(edges), axis=0)
    node, weight = panels(np.array([0.0, 1.0]), _ORDER)
    column = (1, -1, *(1,) * like.ndim)
    lengths = jnp.diff(edges, axis=0)[:, None]
    z = (edges[:-1, None] + lengths * node.reshape(column)).reshape(-1, *like.shape)
    weights = (lengths * weight.reshape(column)).reshape(-1, *like.shape)
    return z, weights, jnp.exp(-(z**2) / 4) * (2 * np.pi) ** -0.25


def _coefficients(phi: ActivationFunction, kinks: tuple[float, ...], q: Array) -> Array:
    """Return E[φ(√q z) h_k(z)] for all degrees k, (k, *q)."""
    s = safe_sqrt(q)
    z, weights, root = _nodes([kink / s for kink in kinks], s)
    value = weights * root * phi(s * z)

    def degree(rows, k):
        lower, here = rows
        above = (z * here - jnp.sqrt(k) * lower) / jnp.sqrt(k + 1)
        return (here, above), jnp.sum(here * value, axis=0)

    degrees = jnp.arange(_TERMS, dtype=q.dtype)
    return lax.scan(degree, (jnp.zeros_like(z), root), degrees)[1]


def cross_shortfall(
    phi: ActivationFunction,
    psi: ActivationFunction,
    # q1, q2: all variances of u and of v that occur.
    q1: np.ndarray,
    q2: np.ndarray,
    rtol: float,  # the accepted relative error
    derivative: bool,  # whether E[φ'ψ'] is needed as well
) -> str | None:
    """Return an error message if moments of two functions may miss ``rtol``, else None.

    The series converges slowest where u and v are one Gaussian, and is there compared with the
    integral over it, relative to √(E[φ²]E[ψ²]) and √(E[φ'²]E[ψ'²]).
    """
    alone = phi == psi or _IDENTITY in (phi, psi)
    if alone or (_of_degree_one(phi) and _of_degree_one(psi)):
        return None
    kinks = kinks_of(phi), kinks_of(psi)
    if all(kinks):
        return None
    with jax.enable_x64(True):
        ends = [jnp.asarray([np.min(q), np.max(q)], jnp.float64) for q in (q1, q2)]
        errors = _series_errors(phi, psi, ends[0][:, None], ends[1][None])
    worst = max(float(np.max(np.asarray(error))) for error in errors[: 1 + derivative])
    if worst <= rtol:
        return None
    return (
        f"E[φψ] of the activations {phi!r} and {psi!r} has an estimated relative error of "
        f"{worst:.1e} at variances up to {np.max(q1):.3g} and {np.max(q2):.3g}, above rtol = "
        f"{rtol:g}. Take smaller variances, or put a Dense() between the two."
    )


@partial(jax.jit, static_argnums=(0, 1))
def _series_errors(phi, psi, q1, q2):
    q1, q2 = (jnp.maximum(q, _SMALL) for q in (q1, q2))
    s1, s2 = jnp.sqrt(q1), jnp.sqrt(q2)
    kinks = kinks_of(phi), kinks_of(psi)
    values = _by_series(phi, psi, kinks, q1, q2, s1 * s2)
    like = jnp.zeros(jnp.broadcast_shapes(q1.shape, q2.shape))
    places = [like + kink / s for its, s in zip(kinks, (s1, s2), strict=True) for kink in its]
    z, weights, root = _nodes(places, like)
    weights = weights * root**2
    errors = []
    for series, (f, g) in zip(values, ((phi, psi), (phi.derivative, psi.derivative)), strict=True):
        one, two = f(s1 * z), g(s2 * z)
        exact, size1, size2 = (
            jnp.sum(weights * product, axis=0) for product in (one * two, one**2, two**2)
        )
        errors.append(jnp.abs(series - exact) / jnp.sqrt(size1 * size2))
    return errors
