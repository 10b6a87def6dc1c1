"""Piecewise linear activations: hard tanh, relu6, a hard sigmoid, a leaky relu with a shift.

With w_i the jumps of φ' at the kinks κ_i, heights h_i = κ_i/√q1 and k_j = κ_j/√q2, and θ the
angle between u and v, Price's theorem gives E[φ'φ'] as an integral from angle 0 (Plackett 1954):

    E[φ'(u)φ'(v)] = D₀ − Σ_ij w_i w_j/(2π) ∫₀^θ e^(−E_ij(t)) dt,
    E_ij(t) = (h_i² − 2 h_i k_j cos t + k_j²)/(2 sin² t),

with D₀ its value at angle 0, and once more for the gap:

    gap' = gap₀ + √(q1 q2) [(1 − cos θ) D₀ − Σ_ij w_i w_j/(2π) ∫₀^θ (cos t − cos θ) e^(−E_ij) dt].

In x = log(tan(θ/2)/tan(t/2)) the integrands are smooth at any distance of h_i and k_j; composite
Gauss–Legendre quadrature resolves them to 1e-13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from largen.expectations.closed_form import ClosedForm, determinant_of, normal_density, smooth_pair
from largen.expectations.homogeneous import angle_of
from largen.expectations.panels import panels

_HIGHEST = 60.0  # the probability of larger heights is negligible
_REACH = (-10.0, -5.0, -2.5, 0.0, 2.5, 5.0, 10.0)  # edges of panels for a Gaussian
_DEPTH = 32.0  # the truncation error of the integral is e^(−32)
_RULES = {
    np.dtype(np.float64): panels(np.linspace(0, 1, 41), 12),
    np.dtype(np.float32): panels(np.linspace(0, 1, 21), 8),
}
_UNIT, _UNIT_WEIGHTS = panels(np.array([0.0, 1.0]), 16)


class Kink(NamedTuple):
    """A kink of a piecewise linear function, described from 0 outwards."""

    place: float  # κ, of either sign
    # inner, outer: slopes on the side facing 0 and on the far side.
    inner: float
    outer: float
    value: float  # φ(κ)

    @property
    def side(self) -> float:
        """+1 for a kink at κ ≥ 0, −1 below."""
        return 1.0 if self.place >= 0 else -1.0

    @property
    def bend(self) -> float:
        """The jump outer − inner; side · bend is the jump of φ' in the direction of x."""
        return self.outer - self.inner


def piecewise_linear(
    slope: float, offset: float, kinks: tuple[Kink, ...], slope_at_zero: float
) -> ClosedForm:
    """Return the integrals of φ(x) = slope·x + offset around 0, with kinks further out.

    ``slope_at_zero`` is φ'(0) as in a finite network, used if there is a kink at 0.
    """

    def value(x):
        bends = (k.side * k.bend * jnp.maximum(k.side * x - abs(k.place), 0) for k in kinks)
        return slope * x + offset + sum(bends)

    def mean_at(m, sd):
        """E[φ] under N(m, sd²)."""
        sd = jnp.maximum(sd, jnp.finfo(sd.dtype).tiny ** 0.5)
        total = slope * m + offset
        for k in kinks:
            height = jnp.clip((abs(k.place) - k.side * m) / sd, -_HIGHEST, _HIGHEST)
            inside = jnp.abs(height) < _HIGHEST
            smooth = sd * (normal_density(height) - height * _above(height))
            sharp = jnp.maximum(k.side * m - abs(k.place), 0)
            total = total + k.side * k.bend * jnp.where(inside, smooth, sharp)
        return total

    def second_moment(q):
        root, total = jnp.sqrt(q), slope**2 * q + offset**2
        for k in kinks:
            h = _height(abs(k.place), q)
            first = root * (normal_density(h) - h * _above(h))
            second = q * ((1 + h * h) * _above(h) - h * normal_density(h))
            total = total + 2 * k.side * k.bend * k.value * first
            total = total + (k.outer**2 - k.inner**2) * second
        return total

    def derivative_second_moment(q):
        total = slope**2 + jnp.zeros_like(q)
        for k in kinks:
            total = total + (k.outer**2 - k.inner**2) * _above(_height(abs(k.place), q))
        return jnp.where(q > 0, total, slope_at_zero**2)

    def mean_slope(q):
        total = slope + jnp.zeros_like(q)
        for k in kinks:
            total = total + k.bend * _above(_height(abs(k.place), q))
        return jnp.where(q > 0, total, slope_at_zero)

    def both(q1, q2, gap):
        for_gap, for_derivative, one_minus_cosine = _lost(kinks, q1, q2, gap)
        start = _at_angle_zero(slope, kinks, q1, q2)
        grown = jnp.sqrt(q1) * jnp.sqrt(q2) * (one_minus_cosine * start - for_gap)
        inside = start - for_derivative
        derivative = jnp.where((q1 > 0) & (q2 > 0), inside, mean_slope(q1) * mean_slope(q2))
        return _collinear_gap(value, kinks, q1, q2) + grown, derivative

    def cross_slope(q1, q2, q12):
        """∂E[φ(u)φ(v)]/∂q1 = ½E[φ''(u)φ(v)], by conditioning v on u at each kink."""
        safe = jnp.where(q1 > 0, q1, 1)
        determinant = determinant_of(q1, q2, (q1 + q2) / 2 - q12)
        sd = jnp.sqrt(jnp.maximum(determinant / safe, jnp.finfo(q12.dtype).tiny))
        total = jnp.zeros_like(sd)
        for k in kinks:
            density = k.side * k.bend * normal_density(_height(k.place, q1)) / jnp.sqrt(safe)
            total = total + density * mean_at(k.place * q12 / safe, sd) / 2
        return jnp.where(q1 > 0, total, 0)

    return ClosedForm(
        pair=smooth_pair(
            lambda *p: both(*p)[0], lambda *p: both(*p)[1], cross_slope, second_moment, both
        ),
        second_moment=second_moment,
        derivative_second_moment=derivative_second_moment,
        mean=lambda q: mean_at(jnp.zeros_like(q), jnp.sqrt(q)),
    )


def _collinear_gap(value: Callable[[Any], Any], kinks: tuple[Kink, ...], q1, q2):
    """½E[(φ(√q1 z) − φ(√q2 z))²], on panels between the kinks of both terms."""
    q1, q2 = jnp.broadcast_arrays(q1, q2)
    edges = [jnp.full_like(q1, z) for z in _REACH]
    edges += [jnp.clip(_height(k.place, q), _REACH[0], _REACH[-1]) for q in (q1, q2) for k in kinks]
    edges = jnp.sort(jnp.stack(edges), axis=0)
    root1, root2 = jnp.sqrt(q1), jnp.sqrt(q2)
    nodes, weights = (jnp.asarray(x, q1.dtype) for x in (_UNIT, _UNIT_WEIGHTS))

    def add(n, total):
        low, width = edges[n], edges[n + 1] - edges[n]
        for i in range(len(_UNIT)):
            z = low + width * nodes[i]
            step = value(root1 * z) - value(root2 * z)
            total = total + weights[i] * width * normal_density(z) * step**2 / 2
        return total

    total = lax.fori_loop(0, len(edges) - 1, add, jnp.zeros_like(q1))
    return jnp.where(q1 == q2, 0, total)


def _at_angle_zero(slope: float, kinks: tuple[Kink, ...], q1, q2):
    """Return D₀ = E[φ'(u)φ'(v)] for parallel u and v."""
    total = slope**2 + jnp.zeros_like(q1 + q2)
    above = [[_above(_height(abs(k.place), q)) for k in kinks] for q in (q1, q2)]
    for k, p1, p2 in zip(kinks, *above, strict=True):
        total = total + slope * k.bend * (p1 + p2)
    for k, p1 in zip(kinks, above[0], strict=True):
        for other, p2 in zip(kinks, above[1], strict=True):
            if k.side == other.side:
                total = total + k.bend * other.bend * jnp.minimum(p1, p2)
    return total


def _lost(kinks: tuple[Kink, ...], q1, q2, gap):
    """Return the sums over i and j of the integrals for the gap and for E[φ'φ'], and 1 − cos θ."""
    theta = angle_of(*jnp.broadcast_arrays(q1, q2, gap))
    sine2, cosine2 = jnp.sin(theta / 2) ** 2, jnp.cos(theta / 2) ** 2
    pairs = [
        (k.side * k.bend * o.side * o.bend, _height(k.place, q1), _height(o.place, q2))
        for k in kinks
        for o in kinks
    ]
    rule = _RULES.get(theta.dtype, _RULES[np.dtype(np.float32)])
    nodes, weights = (jnp.asarray(x, theta.dtype) for x in rule)
    # For obtuse θ the integration range in x also covers the angles between π/2 and θ.
    flat = jnp.log(jnp.maximum(sine2, 1e-30) / jnp.maximum(cosine2, 1e-30)) / 2
    depth = _DEPTH + jnp.clip(lax.stop_gradient(flat), 0, _DEPTH)

    def add(n, total):
        # With a = sin(θ/2) e^(−x) and b = cos(θ/2), tan(t/2) = a/b.
        ratio = jnp.exp(-2 * depth * nodes[n])
        a2, b2 = sine2 * ratio, cosine2
        length, product = a2 + b2, a2 * b2
        there = product > 0
        safe_product, safe_length = (jnp.where(there, p, 1) for p in (product, length))
        inverse = safe_length**2 / (8 * safe_product)  # 1/(2 sin² t)
        acute = b2 >= a2
        rest = safe_length / (2 * jnp.where(there, jnp.maximum(a2, b2), 1))
        lost = jnp.zeros_like(theta)
        for weight, h, k in pairs:
            apart = jnp.where(acute, h - k, h + k)
            exponent = apart**2 * inverse + jnp.where(acute, h * k, -h * k) * rest
            lost = lost + weight * jnp.exp(-exponent)
        lost = lost * 2 * jnp.sqrt(safe_product) / safe_length
        lost = weights[n] * jnp.where(there, lost, 0)
        nearer = 2 * sine2 * cosine2 * (1 - ratio) / safe_length  # cos t − cos θ
        return total[0] + nearer * lost, total[1] + lost

    start = jnp.zeros_like(theta), jnp.zeros_like(theta)
    for_gap, for_derivative = lax.fori_loop(0, len(nodes), add, start)
    scale = depth / (2 * np.pi)
    return for_gap * scale, for_derivative * scale, 2 * sine2


def _height(place: float, q: Array) -> Array:
    root = jnp.sqrt(jnp.where(q > 0, q, 1))
    return jnp.where(q > 0, jnp.clip(place / root, -_HIGHEST, _HIGHEST), np.sign(place) * _HIGHEST)


def _above(x: Array) -> Array:
    return jax.scipy.special.erfc(x / np.sqrt(2)) / 2
