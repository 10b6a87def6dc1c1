"""Pair moments of any activation over large arrays of pairs, differentiable: tiles and gradients.

The series of ``hermite`` is evaluated tile by tile, so that memory stays near that of the result
and each tile takes as many terms as its largest correlation needs. Derivatives are expectations
of the same kind (Price's theorem), with C_ij = E[φ⁽ⁱ⁾(u) φ⁽ʲ⁾(v)]:

    dC_ij = C_{i+1,j+1} dq12 + ½ C_{i+2,j} dq1 + ½ C_{i,j+2} dq2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from largen.expectations.activations import ActivationFunction
from largen.expectations.hermite import (
    BLOCK,
    Coefficients,
    Correlation,
    coefficients,
    correlation_of,
    gap_and_derivative,
)
from largen.expectations.quadrature import gaussian_mean

TILE = 1 << 16  # pairs in a tile


@lru_cache
def parts_of(phi: ActivationFunction, dtype: np.dtype) -> tuple[int, ...]:
    """Return (0,) for an even function, (1,) for an odd one, (0, 1) for any other."""
    x = np.linspace(0.01, 8, 400).astype(dtype)
    try:
        with jax.ensure_compile_time_eval():
            plus, minus = np.asarray(phi(x)), np.asarray(phi(-x))
    except jax.errors.JAXTypeError:  # φ holds traced values: nothing is known before it runs
        return (0, 1)
    small = 4 * np.finfo(dtype).eps * np.max(np.abs(plus) + np.abs(minus))
    parts = (np.abs(plus + minus) > small).any(), (np.abs(plus - minus) > small).any()
    return tuple(parity for parity, there in enumerate(parts) if there)


def _over_tiles(function: Callable[..., Any], trees: tuple[Any, ...], shape: tuple[int, ...]):
    """Evaluate ``function(*trees)`` by slices of the first long axis of the pairs.

    Leaves have the axes of the pairs first, of full length or 1, and may have more behind.
    """
    axis = next((i for i, length in enumerate(shape) if length > 1), 0)
    length = shape[axis] if shape else 1
    rows = max(1, TILE * length // max(1, int(np.prod(shape))))
    if rows >= length:
        return function(*trees)

    def slice_of(start):
        def cut(leaf):
            if leaf.ndim <= axis or leaf.shape[axis] == 1:
                return leaf
            return lax.dynamic_slice_in_dim(leaf, start, rows, axis=axis)

        return jax.tree.map(cut, trees)

    outs = jax.eval_shape(lambda: function(*slice_of(0)))
    results = jax.tree.map(lambda out: jnp.zeros(shape, out.dtype), outs)

    def fill(i, results):
        start = jnp.minimum(i * rows, length - rows)
        piece = function(*slice_of(start))
        return jax.tree.map(
            lambda whole, part: lax.dynamic_update_slice_in_dim(whole, part, start, axis=axis),
            results,
            piece,
        )

    return lax.fori_loop(0, -(-length // rows), fill, results)


def _prepared(phi, q1, q2, gap):
    """Return variances and gap with the same number of axes, and the largest |c|."""
    ndim = max(q1.ndim, q2.ndim, gap.ndim)
    q1, q2, gap = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (q1, q2, gap))
    shape = jnp.broadcast_shapes(q1.shape, q2.shape, gap.shape)
    largest = jnp.sqrt(1 - jnp.min(correlation_of(q1, q2, gap).one_minus_square, initial=1.0))
    return q1, q2, gap, shape, largest


def _shape(*arrays: Array) -> tuple[int, ...]:
    return jnp.broadcast_shapes(*(x.shape for x in arrays))


def _evaluate(phi: ActivationFunction, with_error: bool, q1: Array, q2: Array, gap: Array):
    out_shape = _shape(q1, q2, gap)
    q1, q2, gap, shape, largest = _prepared(phi, q1, q2, gap)
    parts = parts_of(phi, q1.dtype)
    tables = [tuple(coefficients(phi, p, q, largest) for q in (q1, q2)) for p in parts]
    blocks = [tuple(table.blocks for table in pair) for pair in tables]

    def tile(q1, q2, gap, arrays):
        correlation = Correlation(*jnp.broadcast_arrays(*correlation_of(q1, q2, gap)))
        sums = [jnp.zeros(correlation.c.shape, gap.dtype)] * 4
        for parity, pair, done in zip(parts, arrays, blocks, strict=True):
            first, second = (Coefficients(*a, blocks=n) for a, n in zip(pair, done, strict=True))
            added = gap_and_derivative(parity, first, second, correlation)
            sums = [s + a for s, a in zip(sums, added, strict=True)]
        return tuple(sums) if with_error else tuple(sums[:2])

    arrays = [tuple(tuple(table[:3]) for table in pair) for pair in tables]
    results = _over_tiles(tile, (q1, q2, gap, arrays), shape)
    return tuple(x.reshape(out_shape) for x in results)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def series_pair(phi: ActivationFunction, q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """Return the gap of (φ(u), φ(v)) and E[φ'(u)φ'(v)] by the Hermite series."""
    return _evaluate(phi, False, q1, q2, gap)


@series_pair.defjvp
def _series_pair_jvp(phi, primals, tangents):
    q1, q2, gap = primals
    dq1, dq2, dgap = tangents
    dq12 = (dq1 + dq2) / 2 - dgap
    gap_out, derivative = series_pair(phi, q1, q2, gap)

    def gap_rate(i, j, q):
        own = second_moment_slope(phi, q)
        return (own - cross_moment(phi, i, j, q1, q2, gap) - derivative) / 2

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
    """Return C_ij = E[φ⁽ⁱ⁾(u) φ⁽ʲ⁾(v)], from coefficients of φ and φ' alone."""
    out_shape = _shape(q1, q2, gap)
    q1, q2, gap, shape, largest = _prepared(phi, q1, q2, gap)
    floor = 1e-10 if gap.dtype == np.float64 else 1e-4
    tables = []
    for p in parts_of(phi, q1.dtype):
        pair = []
        for q, order in ((q1, i), (q2, j)):
            q = jnp.maximum(q, floor) if order > 1 else q
            found = coefficients(phi, p, q, largest)
            pair.append((_shifted(found, p, order, q), found.blocks))
        (first, n1), (second, n2) = pair
        tables.append(((first, second), (p + i) % 2, jnp.minimum(n1, n2)))

    def tile(q1, q2, gap, arrays):
        c, _, one_minus_square = jnp.broadcast_arrays(*correlation_of(q1, q2, gap))
        y = 1 - one_minus_square
        result = jnp.zeros(c.shape, c.dtype)
        for (first, second), (_, parity, blocks) in zip(arrays, tables, strict=True):
            part = _horner(first, second, y, blocks)
            result = result + (c * part if parity else part)
        return result

    arrays = [table[0] for table in tables]
    return _over_tiles(tile, (q1, q2, gap, arrays), shape).reshape(out_shape)


@cross_moment.defjvp
def _cross_moment_jvp(phi, i, j, primals, tangents):
    dq1, dq2, dgap = tangents
    dq12 = (dq1 + dq2) / 2 - dgap
    value = cross_moment(phi, i, j, *primals)
    return value, _cross_tangent(phi, i, j, primals, dq1, dq2, dq12)


def _horner(first: Array, second: Array, y: Array, blocks: Array) -> Array:
    def add_block(n, total):
        start = (blocks - 1 - n) * BLOCK
        a, b = (lax.dynamic_slice_in_dim(x, start, BLOCK, axis=x.ndim - 1) for x in (first, second))
        for m in reversed(range(BLOCK)):
            total = total * y + a[..., m] * b[..., m]
        return total

    return lax.fori_loop(0, blocks, add_block, jnp.zeros(y.shape, y.dtype))


def _shifted(found: Coefficients, parity: int, order: int, q: Array) -> Array:
    """Return the coefficients of φ⁽ᵒʳᵈᵉʳ⁾: those of f' are √(k + 1) a_{k+1}(f)/√q."""
    if order == 0:
        return found.values
    table, degree = found.slopes, 1 - parity  # the lowest degree in the table
    for _ in range(order - 1):
        k = degree + 2 * jnp.arange(table.shape[-1])
        table = jnp.sqrt(k.astype(q.dtype)) * table / jnp.sqrt(q)[..., None]
        if degree == 0:
            table = jnp.concatenate([table[..., 1:], jnp.zeros_like(table[..., :1])], axis=-1)
        degree = 1 - degree
    return table


def second_moment_slope(phi: ActivationFunction, q: Array) -> Array:
    """Return ∂E[φ(√q z)²]/∂q."""
    return jax.jvp(lambda v: gaussian_mean(square(phi), v), (q,), (jnp.ones_like(q),))[1]


@lru_cache
def square(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return x -> f(x)², the same function for the same f."""
    return lambda x: function(x) ** 2


def series_error(phi: ActivationFunction, q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """Return bounds on the errors of both results of ``series_pair``.

    They add what the series leaves out, the quadrature's own error (seen by refining it at eight
    variances between the smallest and the largest) and rounding.
    """
    _, _, gap_left, slope_left = _evaluate(phi, True, q1, q2, gap)
    values = [gaussian_mean(square(phi), q) for q in (q1, q2)]
    slopes = [gaussian_mean(square(phi.derivative), q) for q in (q1, q2)]
    value_error = _quadrature_error(square(phi), q1, q2)
    slope_error = _quadrature_error(square(phi.derivative), q1, q2)
    return (
        gap_left + value_error * (values[0] + values[1]),
        slope_left + slope_error * jnp.sqrt(slopes[0] * slopes[1]),
    )


def _quadrature_error(function: Callable[[Array], Array], q1: Array, q2: Array) -> Array:
    both = jnp.concatenate([q1.ravel(), q2.ravel()])
    low, high = jnp.min(both), jnp.max(both)
    probes = low + (high - low) * 2.0 ** -jnp.arange(8.0, dtype=both.dtype)
    coarse, fine = (gaussian_mean(function, probes, refinement=r) for r in (1, 3))
    difference = jnp.abs(coarse - fine) / jnp.where(fine > 0, fine, 1)
    return 2 * jnp.max(difference) + 32 * jnp.finfo(both.dtype).eps
