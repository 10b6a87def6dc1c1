"""Differentiable pair moments of any activation over large arrays of pairs.

The Hermite series is evaluated tile by tile, so that memory stays near that of the result and each
tile sums only the terms that its largest correlation requires. By Price's theorem derivatives are
expectations of the same kind, with C_ij = E[φ⁽ⁱ⁾(u) φ⁽ʲ⁾(v)]:

    dC_ij = C_{i+1,j+1} dq12 + ½ C_{i+2,j} dq1 + ½ C_{i,j+2} dq2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from largen.expectations.activations import ActivationFunction
from largen.expectations.hermite_series import (
    BLOCK,
    Coefficients,
    Correlation,
    coefficients_of_both,
    correlation_of,
    gap_and_derivative,
)
from largen.expectations.quadrature import gaussian_mean
from largen.expectations.tiles import Tile, over_tiles


@lru_cache
def parts_of(phi: ActivationFunction, dtype: np.dtype) -> tuple[int, ...]:
    """Return (0,) for an even function, (1,) for an odd one, (0, 1) for any other."""
    x = np.linspace(0.01, 8, 400).astype(dtype)
    try:
        with jax.ensure_compile_time_eval():
            plus, minus = np.asarray(phi(x)), np.asarray(phi(-x))
    except jax.errors.JAXTypeError:  # φ holds traced values, and its parity is unknown
        return (0, 1)
    small = 4 * np.finfo(dtype).eps * np.max(np.abs(plus) + np.abs(minus))
    parts = (np.abs(plus + minus) > small).any(), (np.abs(plus - minus) > small).any()
    return tuple(parity for parity, there in enumerate(parts) if there)


def _prepare(q1: Array, q2: Array, gap: Array):
    """Return variances and gap with the same number of axes, and the largest |c|."""
    ndim = max(q1.ndim, q2.ndim, gap.ndim)
    q1, q2, gap = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (q1, q2, gap))
    shape = _shape(q1, q2, gap)
    largest = jnp.sqrt(1 - jnp.min(correlation_of(q1, q2, gap).one_minus_square))
    return q1, q2, gap, shape, largest


def _shape(*arrays: Array) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape for x in arrays))


def evaluate(
    phi: ActivationFunction, with_error: bool, q1: Array, q2: Array, gap: Array
) -> tuple[Array, ...]:
    """Return gap', E[φ'φ'] and, if requested, bounds on the truncation errors of both."""
    out_shape = _shape(q1, q2, gap)
    if 0 in out_shape:
        return (jnp.zeros(out_shape, gap.dtype),) * (4 if with_error else 2)
    q1, q2, gap, shape, largest = _prepare(q1, q2, gap)
    pairs_of = of_tiles(phi, with_error, q1, q2, gap, largest)
    return tuple(x.reshape(out_shape) for x in over_tiles(pairs_of, shape))


def of_tiles(
    phi: ActivationFunction, with_error: bool, q1: Array, q2: Array, gap: Array, largest: Array
) -> Callable[[Tile], tuple[Array, ...]]:
    """As :func:`evaluate` on a tile, with |c| ≤ ``largest``; axes are as many."""
    parts = parts_of(phi, q1.dtype)
    alone = len(parts) == 1
    tables = [coefficients_of_both(phi, p, alone, q1, q2, largest) for p in parts]

    def pairs_of(tile: Tile):
        correlation = correlation_of(tile.of(q1), tile.of(q2), tile.of(gap))
        correlation = Correlation(*jnp.broadcast_arrays(*correlation))
        sums = [jnp.zeros(correlation.c.shape, gap.dtype)] * 4
        for parity, (first, second) in zip(parts, tables, strict=True):
            added = gap_and_derivative(parity, first, second, correlation, tile)
            sums = [s + a for s, a in zip(sums, added, strict=True)]
        return tuple(sums) if with_error else tuple(sums[:2])

    return pairs_of


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def series_pair(phi: ActivationFunction, q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """Return the gap of (φ(u), φ(v)) and E[φ'(u)φ'(v)] by the Hermite series."""
    gap_out, derivative = evaluate(phi, False, q1, q2, gap)
    return gap_out, derivative


@series_pair.defjvp
def _series_pair_jvp(phi, primals, tangents):
    q1, q2, gap = primals
    dq1, dq2, dgap = tangents
    dq12 = (dq1 + dq2) / 2 - dgap
    gap_out, derivative = series_pair(phi, q1, q2, gap)

    def gap_rate(i, j, q):
        variance_slope = second_moment_slope(phi, q)
        return (variance_slope - cross_moment(phi, i, j, q1, q2, gap) - derivative) / 2

    dgap_out = derivative * dgap + gap_rate(2, 0, q1) * dq1 + gap_rate(0, 2, q2) * dq2
    return (gap_out, derivative), (dgap_out, _cross_tangent(phi, 1, 1, primals, dq1, dq2, dq12))


def _cross_tangent(phi, i, j, pair, dq1, dq2, dq12):
    return (
        cross_moment(phi, i + 1, j + 1, *pair) * dq12
        + cross_moment(phi, i + 2, j, *pair) / 2 * dq1
        + cross_moment(phi, i, j + 2, *pair) / 2 * dq2
    )


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def cross_moment(
    phi: ActivationFunction, i: int, j: int, q1: Array, q2: Array, gap: Array
) -> Array:
    """Return C_ij = E[φ⁽ⁱ⁾(u) φ⁽ʲ⁾(v)], computed from the coefficients of φ and φ' alone."""
    out_shape = _shape(q1, q2, gap)
    if 0 in out_shape:
        return jnp.zeros(out_shape, gap.dtype)
    q1, q2, gap, shape, largest = _prepare(q1, q2, gap)
    floor = 1e-10 if gap.dtype == np.float64 else 1e-4
    raised1, raised2 = (jnp.maximum(q, floor) if max(i, j) > 1 else q for q in (q1, q2))
    tables, parts = [], parts_of(phi, q1.dtype)
    for p in parts:
        series = coefficients_of_both(phi, p, len(parts) == 1, raised1, raised2, largest)
        first, second = (
            _shift(table, p, order, q)
            for table, order, q in zip(series, (i, j), (raised1, raised2), strict=True)
        )
        tables.append((first, second, (p + i) % 2, series[0].blocks))

    def pairs_of(tile: Tile):
        correlation = correlation_of(tile.of(q1), tile.of(q2), tile.of(gap))
        c, _, one_minus_square = jnp.broadcast_arrays(*correlation)
        result = jnp.zeros(c.shape, c.dtype)
        for first, second, parity, blocks in tables:
            part = _horner(first, second, 1 - one_minus_square, blocks, tile)
            result = result + (c * part if parity else part)
        return result

    return over_tiles(pairs_of, shape).reshape(out_shape)


@cross_moment.defjvp
def _cross_moment_jvp(phi, i, j, primals, tangents):
    dq1, dq2, dgap = tangents
    dq12 = (dq1 + dq2) / 2 - dgap
    value = cross_moment(phi, i, j, *primals)
    return value, _cross_tangent(phi, i, j, primals, dq1, dq2, dq12)


def _horner(first: Array, second: Array, y: Array, blocks: Array, tile: Tile) -> Array:
    def add_block(n, total):
        start = (blocks - 1 - n) * BLOCK
        a, b = (tile.of(table, start, BLOCK) for table in (first, second))
        for m in reversed(range(BLOCK)):
            total = total * y + a[m] * b[m]
        return total

    return lax.fori_loop(0, blocks, add_block, jnp.zeros(y.shape, y.dtype))


def _shift(series: Coefficients, parity: int, order: int, q: Array) -> Array:
    """Return the coefficients of φ⁽ᵒʳᵈᵉʳ⁾: those of f' are √(k + 1) a_{k+1}(f)/√q."""
    if order == 0:
        return series.values
    table, degree = series.slopes, 1 - parity  # the lowest degree in the table
    for _ in range(order - 1):
        k = degree + 2 * jnp.arange(len(table)).reshape(-1, *[1] * q.ndim)
        table = jnp.sqrt(k.astype(q.dtype)) * table / jnp.sqrt(q)
        if degree == 0:
            table = jnp.concatenate([table[1:], jnp.zeros_like(table[:1])])
        degree = 1 - degree
    return table


def second_moment_slope(phi: ActivationFunction, q: Array) -> Array:
    """Return ∂E[φ(√q z)²]/∂q."""
    return jax.jvp(lambda v: gaussian_mean(square(phi), v), (q,), (jnp.ones_like(q),))[1]


@lru_cache
def square(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return x -> f(x)², the same function for the same f."""
    return lambda x: function(x) ** 2
