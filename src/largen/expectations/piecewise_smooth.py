"""Functions that are smooth except at a few kinks: hard swish, a shifted relu squared, and others.

With u = s₁x and v = s₂(x cos θ + y sin θ) for independent normal x and y,

    gap' = ½ E[(φ(u) − φ(v))²],     D = E[φ'(u)φ'(v)],

are nested integrals over x and y, computed by composite Gauss–Legendre quadrature. The inner panels
end where v is at a kink, and the outer panels where u is. The inner integral smooths a kink of v
over a width tan θ in x, so that outer panels of this size are added there. The integrand of the gap
is nowhere negative and vanishes where u and v coincide.

Derivatives of the gap follow from Price's theorem; those of D from differentiating the quadrature,
whose panels move with the variances and with θ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from largen.expectations.closed_form import ClosedForm, normal_density, safe_sqrt, smooth_pair
from largen.expectations.homogeneous import angle_of
from largen.expectations.panels import panels

Elementwise = Callable[[Array], Array]

_REACH = 8.5  # standard deviations, exceeded by a Gaussian with probability 2e-17
_SAFETY = 4.0
_ARRAYS = (121, 9)  # over the pairs that XLA holds at a time, plus those for each kink; measured


class PanelRule(NamedTuple):
    """The resolution of the integrals."""

    order: int  # number of nodes in each panel
    whole: tuple[float, ...]  # edges of the panels for a Gaussian, in standard deviations
    # Edges of the panels around a kink that the inner integral has smoothed, in units of its width.
    layer: tuple[float, ...]


_COARSE = PanelRule(12, (-_REACH, -5.5, -2.75, 0.0, 2.75, 5.5, _REACH), (-7.0, -3.5, 0.0, 3.5, 7.0))
_FINE = PanelRule(16, tuple(np.linspace(-_REACH, _REACH, 11)), tuple(np.linspace(-8.0, 8.0, 9)))


def _insert(edges: list[Array], extra: list[Array]) -> list[Array]:
    """Return ascending edges after inserting further ones in order, elementwise."""
    for new in extra:
        merged = []
        for edge in edges:
            merged.append(jnp.minimum(edge, new))
            new = jnp.maximum(edge, new)
        edges = [*merged, new]
    return edges


def _clip(place: Array) -> Array:
    return jnp.clip(place, -_REACH, _REACH)


def _height(place: float, std: Array) -> Array:
    """Return κ/s, clipped to the range of non-negligible probability."""
    safe = jnp.where(std > 0, std, 1)
    return jnp.where(std > 0, _clip(place / safe), np.sign(place) * _REACH)


def _on_panels(integrand, edges: Array, order: int, at_once: bool = False):
    """Return the integral of integrand(z), a tuple, over all panels of a Gaussian.

    With ``at_once`` the nodes of a panel are evaluated together along a new first axis.
    """
    nodes, weights = (jnp.asarray(x, edges.dtype) for x in panels(np.array([0.0, 1.0]), order))
    if at_once:
        nodes, weights = (x.reshape(1, -1, *(1,) * (edges.ndim - 1)) for x in (nodes, weights))
    steps = nodes.shape[0]

    def add(n, totals):
        panel, node = n // steps, n % steps
        width = edges[panel + 1] - edges[panel]
        z = edges[panel] + width * nodes[node]
        terms = (weights[node] * width * normal_density(z) * f for f in integrand(z))
        return tuple(
            t + (jnp.sum(f, axis=0) if at_once else f) for t, f in zip(totals, terms, strict=True)
        )

    start = tuple(jnp.zeros_like(f) for f in integrand(edges[0]))
    return lax.fori_loop(0, (len(edges) - 1) * steps, add, start)


def over_plane(integrand, kinks, q1: Array, q2: Array, gap: Array, rule: PanelRule = _COARSE):
    """Return E[f(u, v)] for each f in integrand(u)(v); ``kinks`` are those in u and in v."""
    kinks_of_u, kinks_of_v = kinks
    q1, q2, gap = jnp.broadcast_arrays(q1, q2, gap)
    s1, s2 = safe_sqrt(q1), safe_sqrt(q2)
    theta = angle_of(*(jnp.where(jnp.minimum(q1, q2) > 0, x, 1) for x in (q1, q2, gap)))
    sine, cosine = jnp.sin(theta), jnp.cos(theta)
    # For a small cosine the smoothed kinks are wider than the Gaussian, anywhere on its axis.
    slow = jnp.where(jnp.abs(cosine) > 1e-3, cosine, 1e-3)
    steep = jnp.where(sine > 0, sine, 1)
    heights = [_height(kink, s2) for kink in kinks_of_v]
    whole = [jnp.full_like(theta, z) for z in rule.whole]
    outer = whole + [_height(kink, s1) for kink in kinks_of_u]
    outer += [_clip((height + d * sine) / slow) for height in heights for d in rule.layer]

    def at(x):
        u, mean = s1 * x, cosine * x
        ends = [
            jnp.where(sine > 0, _clip((height - mean) / steep), jnp.sign(height) * _REACH)
            for height in heights
        ]
        inner = jnp.stack(_insert(whole, ends))
        of_v = integrand(u)
        return _on_panels(lambda y: of_v(s2 * (mean + sine * y)), inner, rule.order, at_once=True)

    return _on_panels(at, jnp.sort(jnp.stack(outer), axis=0), rule.order)


def _alone(integrand, kinks, rule: PanelRule, q: Array) -> Array:
    """Return E[f(√q z)]."""
    s = safe_sqrt(q)
    edges = [jnp.full_like(s, z) for z in rule.whole] + [_height(kink, s) for kink in kinks]
    edges = jnp.sort(jnp.stack(edges), axis=0)
    return _on_panels(lambda z: (integrand(s * z),), edges, rule.order)[0]


@lru_cache(maxsize=64)
def piecewise_smooth(
    function: Elementwise, derivative: Elementwise, kinks: tuple[float, ...], jumps: bool = False
) -> ClosedForm:
    """Return the integrals of φ, given φ' and all points where φ or a derivative jumps.

    A missing point increases the ``error`` of the result; if φ itself jumps, D diverges.
    """

    def of_pair(u):
        value, slope = function(u), derivative(u)
        return lambda v: ((value - function(v)) ** 2 / 2, slope * derivative(v))

    def of_slope(u):
        slope = derivative(u)
        return lambda v: (u * slope * function(v), slope * derivative(v))

    def both_by(rule, q1, q2, gap):
        grown, slope = over_plane(of_pair, (kinks, kinks), q1, q2, gap, rule)
        return grown, jnp.full_like(slope, jnp.inf) if jumps else slope

    both = partial(both_by, _COARSE)

    def cross_slope(q1, q2, q12):
        """∂V/∂q1 = ½E[φ''(u)φ(v)] = (E[u φ'(u)φ(v)] − q12 D)/2q1, by parts."""
        moment, slope = over_plane(of_slope, (kinks, kinks), q1, q2, (q1 + q2) / 2 - q12)
        return jnp.where(q1 > 0, (moment - q12 * slope) / (2 * jnp.where(q1 > 0, q1, 1)), 0)

    second = partial(_alone, lambda x: function(x) ** 2, kinks, _COARSE)

    def slopes(q):
        moment = _alone(lambda x: derivative(x) ** 2, kinks, _COARSE, q)
        return jnp.full_like(moment, jnp.inf) if jumps else moment

    def error(q1, q2, gap):
        coarse, fine = (both_by(rule, q1, q2, gap) for rule in (_COARSE, _FINE))
        if jumps:
            coarse, fine = (coarse[0], jnp.zeros_like(gap)), (fine[0], jnp.zeros_like(gap))

        def change(a, b):
            off = _SAFETY * jnp.abs(a - b)
            return jnp.where(jnp.isnan(off), jnp.inf, off)

        return change(coarse[0], fine[0]), change(coarse[1], fine[1])

    @jax.custom_jvp
    def derivative_moment(q1, q2, gap):
        return both(q1, q2, gap)[1]

    @derivative_moment.defjvp
    def rates(primals, tangents):
        # The derivative in each variable is computed first, so that reverse-mode differentiation
        # stores no intermediates of the loops.
        shape = jnp.broadcast_shapes(*(x.shape for x in primals))
        primals = tuple(jnp.broadcast_to(x, shape) for x in primals)

        def rate(direction):
            seeds = tuple(jnp.full_like(x, d) for x, d in zip(primals, direction, strict=True))
            return jax.jvp(lambda *p: both(*p)[1], primals, seeds)

        moment, along = jax.vmap(rate)(jnp.eye(3, dtype=primals[0].dtype))
        return moment[0], sum(r * t for r, t in zip(along, tangents, strict=True))

    return ClosedForm(
        pair=smooth_pair(lambda *p: both(*p)[0], derivative_moment, cross_slope, second, both),
        second_moment=second,
        derivative_second_moment=slopes,
        mean=partial(_alone, function, kinks, _COARSE),
        jumps=jumps,
        error=error,
        arrays=_ARRAYS[0] + _ARRAYS[1] * len(kinks),
    )
