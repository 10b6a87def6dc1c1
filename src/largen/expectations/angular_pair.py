"""Pair expectations by the angle, from a kept table or from one made for the data, with bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from largen.expectations.activations import ActivationFunction
from largen.expectations.angular import (
    Table,
    build,
    look_up,
    range_of,
    reach_of,
    resolution,
    std_basis,
)
from largen.expectations.angular_error import LEAST, errors_at
from largen.expectations.closed_form import safe_sqrt
from largen.expectations.homogeneous import angle_of
from largen.expectations.kept_tables import Kept, kept
from largen.expectations.quadrature import gaussian_mean
from largen.expectations.series_pair import of_tiles
from largen.expectations.tiles import Tile, over_tiles

_PROBES = 6


def evaluate(
    phi: ActivationFunction,
    table: Table,
    bases: tuple[Array, ...],
    q1: Array,
    q2: Array,
    gap: Array,
) -> tuple[Array, Array]:
    """Return gap' and E[φ'φ'] of pairs from a table and its functions of s₁ and s₂, by tiles."""
    shape = jnp.broadcast_shapes(q1.shape, q2.shape, gap.shape)
    first, second = bases

    def by_table(tile: Tile):
        v1, v2, apart = tile.of(q1), tile.of(q2), tile.of(gap)
        positive = (v1 > 0) & (v2 > 0)
        safe1, safe2, safe_gap = (
            jnp.where(positive, x, 1) for x in jnp.broadcast_arrays(v1, v2, apart)
        )
        theta = angle_of(safe1, safe2, safe_gap)
        values = look_up(table, tile.of(first), tile.of(second), theta)
        s1, s2 = safe_sqrt(v1), safe_sqrt(v2)
        step = jnp.where(positive, (v1 - v2) / jnp.where(positive, s1 + s2, 1), s1 - s2)
        # s₁s₂ (1 − cos θ) = gap − (s₁ − s₂)²/2
        grown = step**2 * (values.collinear - values.secant / 2) + apart * values.secant
        return grown, values.slope

    grown, slope = over_tiles(_by_series_where_enough(phi, by_table, q1, q2, gap), shape)
    alone = phi.derivative(jnp.zeros((), gap.dtype))
    return grown, _at_zero_variance(phi, alone, q1, q2, slope)


def _by_series_where_enough(phi, by_table, q1, q2, gap):
    """Return the function of tiles that leaves those of small variances only to the series."""
    if not phi.series_below:
        return by_table
    small1, small2 = (jnp.minimum(q, phi.series_below) for q in (q1, q2))
    by_series = of_tiles(phi, False, small1, small2, gap, jnp.ones((), gap.dtype))

    def pairs_of(tile: Tile):
        largest = jnp.maximum(jnp.max(tile.of(q1)), jnp.max(tile.of(q2)))
        small = largest <= phi.series_below
        return lax.cond(small, lambda: by_series(tile), lambda: by_table(tile))

    return pairs_of


def _at_zero_variance(phi, alone, q1, q2, slope):
    """Return D, or φ'(0)E[φ'] where a variance is 0, with φ'(0) as in a finite network."""
    fine = reach_of(phi)
    means = [
        jnp.where(q > 0, gaussian_mean(phi.derivative, q, reach=fine), alone) for q in (q1, q2)
    ]
    return jnp.where((q1 > 0) & (q2 > 0), slope, means[0] * means[1])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def angular_pair(phi: ActivationFunction, q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """Return the gap of (φ(u), φ(v)) and E[φ'(u)φ'(v)] from tables in s₁, s₂ and θ."""
    if not (phi.series_below and gap.shape == (q1.size, q2.size) == (len(q1), q2.shape[-1])):
        return _tabulate(phi, q1, q2, gap)
    # Rows and columns in order of their variances: few tiles then have large ones.
    rows, columns = jnp.argsort(q1.ravel()), jnp.argsort(q2.ravel())
    ordered = _tabulate(phi, q1[rows], q2[..., columns], gap[rows][:, columns])
    back = jnp.argsort(rows), jnp.argsort(columns)
    grown, slope = (found[back[0]][:, back[1]] for found in ordered)
    return grown, slope


def _tabulate(phi, q1, q2, gap):
    shape = jnp.broadcast_shapes(q1.shape, q2.shape, gap.shape)
    if 0 in shape:
        return jnp.zeros(shape, gap.dtype), jnp.zeros(shape, gap.dtype)
    q1, q2, gap = (x.reshape((1,) * (len(shape) - x.ndim) + x.shape) for x in (q1, q2, gap))
    low, high = range_of(q1, q2)
    both = safe_sqrt(q1), safe_sqrt(q2)

    def made():
        table, span = build(phi, resolution(reach_of(phi)), low, high)
        return table, tuple(std_basis(len(table.collinear), span, s) for s in both)

    known = kept(phi)
    if known is None:
        table, bases = made()
    else:
        computed: Any = lax.cond(known.covers(low, high), partial(_from, known, both), made)
        table, bases = computed
    return evaluate(phi, table, bases, q1, q2, gap)


def _from(known: Kept, stds: tuple[Array, Array]) -> tuple[Table, tuple[Array, ...]]:
    """Return a kept table in the precision of standard deviations, and its functions of them."""
    table = Table(*(jnp.asarray(part, stds[0].dtype) for part in known.table))
    return table, tuple(map(known.basis, stds))


@angular_pair.defjvp
def _angular_pair_jvp(phi, primals, tangents):
    # The derivatives of both results in each variable are computed first, so that reverse-mode
    # differentiation stores no intermediates of the loops over tiles and angles.
    shape = jnp.broadcast_shapes(*(x.shape for x in primals))
    smooth = replace(phi, series_below=0.0)

    def rates(direction):
        seeds = tuple(jnp.full_like(x, d) for x, d in zip(primals, direction, strict=True))
        return jax.jvp(partial(_tabulate, smooth), primals, seeds)[1]

    along = jax.vmap(rates)(jnp.eye(3, dtype=primals[0].dtype))
    spread = jnp.stack([jnp.broadcast_to(tangent, shape) for tangent in tangents])
    grown, slope = (jnp.sum(rate * spread, axis=0) for rate in along)
    return angular_pair(phi, *primals), (grown, slope)


@partial(jax.jit, static_argnums=0)
def angular_error(phi: ActivationFunction, q1: Array, q2: Array) -> tuple[Array, ...]:
    """Return bounds on the errors of ``angular_pair`` relative to E[φ²] and E[φ'²], at six √q."""
    low, high = range_of(q1, q2)

    def made():
        table, span = build(phi, resolution(reach_of(phi)), low, high)
        # The points are irregularly spaced, so that they do not coincide with the nodes.
        places = jnp.asarray(np.linspace(0, 1, _PROBES) ** 1.3, high.dtype)
        s = jnp.sinh(jnp.arcsinh(low) * (1 - places) + jnp.arcsinh(high) * places)
        # A variance of 0 has a formula of its own and does not use the table.
        s = jnp.maximum(s, LEAST * jnp.sinh(span.centre + span.half))
        basis = std_basis(len(table.collinear), span, s)
        return tuple(map(jnp.max, errors_at(phi, table, basis, s)))

    known = kept(phi)
    if known is None:
        return made()
    bounds = tuple(jnp.asarray(bound, high.dtype) for bound in known.errors)
    return lax.cond(known.covers(low, high), lambda: bounds, made)
