"""Pair expectations by the angle, for functions with a bend at 0 or at large variance.

The Hermite series converges slowly if φ is analytic on either side of 0 only (elu, selu, softsign,
x²sign x), or if φ is smooth on a scale far below the standard deviation of its argument. With
standard deviations s = √q and the angle θ between u and v, in polar coordinates of the plane,

    D(s₁, s₂, θ) = E[φ'(u)φ'(v)] = ∫∫ φ'(s₁ r cos ψ) φ'(s₂ r cos(ψ − θ)) r e^(−r²/2)/2π dr dψ,

the bends lie at fixed angles ψ. Gauss–Legendre quadrature on the sectors between them is then exact
up to rounding, and D is a smooth function of s₁, s₂ and θ, tabulated in Chebyshev polynomials of
all three. The quantities needed by a layer follow from Price's theorem, ∂V/∂q₁₂ = D:

    gap' = (s₁ − s₂)² h(s₁, s₂) + s₁s₂ (1 − cos θ) S(s₁, s₂, θ),
    S = ∫₀^θ D sin t dt/(1 − cos θ),   h = ½E[((φ(s₁z) − φ(s₂z))/(s₁ − s₂))²],

which is free of cancellation where the inputs coincide.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from largen.expectations.activations import ActivationFunction
from largen.expectations.closed_form import safe_sqrt
from largen.expectations.panels import graded_nodes, graded_unit

_USUAL = 8.0  # reach of functions for which none is given
_ORDER_ALONE = 24  # nodes in each panel of integrals over one Gaussian


class Resolution(NamedTuple):
    """The resolution of integrals and tables."""

    reach: float  # the largest standard deviation √q of the arguments
    order: int  # Gauss–Legendre nodes in each panel
    # stds, angles: numbers of Chebyshev polynomials in the standard deviations and in the angle.
    stds: int
    angles: int


def reach_of(phi: ActivationFunction) -> float:
    """Return the largest standard deviation for which integrals of φ are computed."""
    return _USUAL if phi.reach is None else phi.reach


def reach_for(std: float) -> float:
    """Return the reach that covers a standard deviation."""
    return _USUAL * 2.0 ** max(0.0, np.ceil(np.log2(max(std / _USUAL, 1.0))))


def resolution(reach: float) -> Resolution:
    """Return the resolution for standard deviations up to ``reach``."""
    if reach <= _USUAL:
        return Resolution(reach, order=12, stds=20, angles=64)
    if reach <= 128:
        return Resolution(reach, order=12, stds=32, angles=96)
    if reach <= 1024:
        return Resolution(reach, order=12, stds=40, angles=128)
    return Resolution(reach, order=12, stds=48, angles=160)


class Table(NamedTuple):
    """Coefficients of h, S and D in functions of s₁ and s₂ and in Chebyshev polynomials of θ."""

    collinear: Float[Array, "i j"]  # h, (function of s₁, function of s₂)
    # secant, slope: S and D, (degree in θ, function of s₁, function of s₂).
    secant: Float[Array, "k i j"]
    slope: Float[Array, "k i j"]
    # κ in the variable asinh(κ sin θ/2) − asinh(κ cos θ/2), which stretches θ near 0 and π.
    sharpness: Float[Array, ""]


class Span(NamedTuple):
    """Centre and half width of a range of asinh s, in which Chebyshev polynomials are taken."""

    centre: Float[Array, ""]
    half: Float[Array, ""]


@lru_cache
def chebyshev(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Chebyshev nodes in [−1, 1] and the matrix from values at them to coefficients."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    matrix = 2 / count * np.cos(np.arange(count)[:, None] * angles)
    matrix[0] /= 2
    return np.cos(angles), matrix


def polynomials(count: int, x: Array) -> Array:
    """Return T_0 … T_{count−1} at x, along a new first axis."""

    def step(last_two, _):
        before, last = last_two
        return (last, 2 * x * last - before), before

    return lax.scan(step, (jnp.ones_like(x), x), length=count)[1]


def _stretch(sharpness: Array, theta: Array) -> Array:
    """Return the stretched variable of the angle, scaled to [−1, 1]."""
    a, b = sharpness * jnp.sin(theta / 2), sharpness * jnp.cos(theta / 2)
    return (jnp.arcsinh(a) - jnp.arcsinh(b)) / jnp.arcsinh(sharpness)


def _angles_at(sharpness: Array, places: Array) -> Array:
    """Return the angles at given values of the stretched variable, by bisection."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        below = _stretch(sharpness, middle) < places
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    start = jnp.zeros_like(places), jnp.full_like(places, np.pi)
    return lax.fori_loop(0, 60, halve, start)[0]


def derivative_moments(
    phi: ActivationFunction, fine: Resolution, s: Float[Array, " i"], theta: Float[Array, ""]
) -> Float[Array, "i i"]:
    """Return D(s_i, s_j, θ) for all i and j, as products of matrices of φ' at the nodes.

    There are two sectors, in which u and v have equal or opposite signs, and their mirror images.
    The reflection that swaps u and v also swaps the ends of each sector, so that one set of values
    of φ' serves for both arguments.
    """
    unit, unit_weights = graded_unit(fine.reach, fine.order)
    radius, radial_weights = graded_nodes(fine.reach, fine.order)
    # The half-line rule has the weights of E[f(|z|)]; the weight here is r e^(−r²/2)/2π.
    radial_weights = radial_weights * radius / np.sqrt(8 * np.pi)
    total = jnp.zeros((s.size, s.size), s.dtype)
    for length, opposite in ((np.pi - theta, False), (theta, True)):
        height = jnp.sin(length * unit.astype(s.dtype))
        u = jnp.outer(radius.astype(s.dtype), height)
        weights = length * np.outer(radial_weights, unit_weights).astype(s.dtype)
        plus, minus = (phi.derivative(sign * s[:, None, None] * u) for sign in (1, -1))
        pairs = ((plus, minus),) * 2 if opposite else ((plus, plus), (minus, minus))
        for of_u, of_v in pairs:
            flat = (of_u * weights).reshape(s.size, -1), of_v[..., ::-1].reshape(s.size, -1)
            total = total + flat[0] @ flat[1].T
    return (total + total.T) / 2


def build(phi: ActivationFunction, fine: Resolution, low: Array, high: Array) -> tuple[Table, Span]:
    """Return the table for standard deviations between ``low`` and ``high``, and their range."""
    dtype = high.dtype
    ends = jnp.arcsinh(low), jnp.arcsinh(high)
    centre = (ends[0] + ends[1]) / 2
    # The range is kept wide enough that the differences in h do not cancel.
    half = jnp.maximum((ends[1] - ends[0]) / 2, jnp.maximum(0.05 * centre, 1e-3))
    centre = jnp.maximum(centre, half)
    places, to_stds = (x.astype(dtype) for x in chebyshev(fine.stds))
    at_nodes = tabulate(phi, fine, jnp.sinh(centre + half * places), 3 * jnp.sinh(centre + half))

    def coefficients(values: Array) -> Array:
        return jnp.asarray(to_stds @ values @ to_stds.T)

    parts = [*map(coefficients, at_nodes[:3]), at_nodes.sharpness]
    return Table(*parts), Span(centre, half)


def tabulate(phi: ActivationFunction, fine: Resolution, s: Array, sharpness: Array) -> Table:
    """Return the table of values at given standard deviations, polynomials in the angle only."""
    dtype = s.dtype
    spots, to_angles = (x.astype(dtype) for x in chebyshev(fine.angles))
    theta = _angles_at(sharpness, jnp.asarray(spots))
    slopes = lax.map(partial(derivative_moments, phi, fine, s), theta)
    averages = _averages(fine, sharpness, theta, jnp.asarray(to_angles))
    by_angle = jnp.einsum("km,mij->kij", to_angles, slopes)
    secants = jnp.einsum("km,mij->kij", to_angles @ averages, by_angle)
    return Table(collinear(phi, fine, s), secants, by_angle, sharpness)


def _averages(fine: Resolution, sharpness: Array, theta: Array, to_angles: Array) -> Array:
    """Return the matrix from coefficients of D to S at the angles, the means of D over cos t."""
    nodes, weights = (x.astype(theta.dtype) for x in graded_unit(fine.reach, fine.order))
    t = theta[:, None] * nodes
    density = theta[:, None] * jnp.sin(t) / (2 * jnp.sin(theta[:, None] / 2) ** 2) * weights
    there = polynomials(len(to_angles), _stretch(sharpness, t))
    return jnp.einsum("kmx,mx->mk", there, density)


def collinear(phi: ActivationFunction, fine: Resolution, s: Array) -> Array:
    """Return h at all pairs of standard deviations."""
    z, weights = (x.astype(s.dtype) for x in graded_nodes(fine.reach, _ORDER_ALONE))
    same = np.eye(len(s), dtype=bool)
    apart = jnp.where(same, 1, s[:, None] - s[None, :])
    total = jnp.zeros_like(apart)
    for side in (1, -1):
        value = phi(side * s[:, None] * z)
        slope = phi.derivative(side * s[:, None] * z) * z
        square = ((value[:, None] - value[None, :]) / apart[..., None]) ** 2
        total = total + jnp.where(same[..., None], slope[:, None] ** 2, square) @ weights / 4
    return total


class Entries(NamedTuple):
    """h, S and D of pairs, evaluated from a table."""

    collinear: Array
    secant: Array
    slope: Array


def range_of(q1: Array, q2: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest standard deviation, with derivatives stopped."""
    both = lax.stop_gradient(safe_sqrt(jnp.concatenate([q1.ravel(), q2.ravel()])))
    return jnp.min(both, initial=jnp.inf), jnp.max(both, initial=0)


def std_basis(count: int, span: Span, s: Array) -> Array:
    """Return the polynomials in s at given standard deviations, along a new first axis."""
    return polynomials(count, (jnp.arcsinh(s) - span.centre) / span.half)


def look_up(table: Table, first: Array, second: Array, theta: Array) -> Entries:
    """Return h, S and D of pairs at angles θ, from the polynomials at their s₁ and s₂."""
    # For rows against columns the sum is a matrix product.
    outer = first.ndim > 2 and first.shape[-1] == 1 and second.shape[-2] == 1
    place = _stretch(table.sharpness, theta)

    def in_stds(coefficients):
        right = jnp.tensordot(coefficients, second, 1)
        if outer:
            left, right = jnp.moveaxis(first, 0, -1)[..., 0, :], jnp.moveaxis(right, 0, -2)
            return left @ right[..., 0, :, :]
        return jnp.sum(first * right, axis=0)

    def add(sums, coefficients):
        # Clenshaw's recurrence, b_k = c_k + 2x b_{k+1} − b_{k+2}.
        return tuple(
            (in_stds(c) + 2 * place * one - two, one)
            for (one, two), c in zip(sums, coefficients, strict=True)
        ), None

    start = ((jnp.zeros_like(place),) * 2,) * 2
    sums, _ = lax.scan(add, start, (table.secant, table.slope), reverse=True)
    # Σ c_k T_k = b_0 − x b_1.
    return Entries(in_stds(table.collinear), *(one - place * two for one, two in sums))
