"""Pair expectations of any activation by its Hermite series, with a bound on the error.

With h_k the orthonormal Hermite polynomials and a_k(q) = E[φ(√q z) h_k(z)] (Mehler's formula),

    E[φ(u)φ(v)] = Σ_k a_k(q1) a_k(q2) cᵏ,   c = q12/√(q1 q2),

so that n² pairs cost n² K multiply-adds. Parseval's identity bounds the error of truncation after K
terms:

    |Σ_{k≥K} a_k b_k cᵏ| ≤ |c|ᴷ √(t(q1) t(q2)),   t(q) = E[φ²] − Σ_{k<K} a_k² ≥ 0.

The number of terms is determined from t at run time, so that it adapts to the activation and to the
variances under ``jit`` as well. The even and the odd part of φ contribute separately and are summed
as two series in c²; an odd φ costs half. The gap is a sum of non-negative terms,

    gap' = Σ_k [(a_k − b_k)²/2 + a_k b_k (1 − cᵏ)],

and 1 − c is computed from the gap of the inputs, so that nothing cancels where the inputs coincide.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from largen.expectations.activations import ActivationFunction
from largen.expectations.closed_form import covariance_of, determinant_of
from largen.expectations.quadrature import half_nodes
from largen.expectations.tiles import Tile

BLOCK = 32  # terms that are fused into one pass over the pairs
CAPACITY = 32 * BLOCK  # terms of each parity, i.e. degrees below 2048


class Coefficients(NamedTuple):
    """Hermite coefficients of the even (parity 0) or the odd (parity 1) part of φ."""

    # a_k of this part of φ, (CAPACITY, *batch): degrees 0, 2, … or 1, 3, …
    values: Float[Array, "terms *batch"]
    # a_k of the derivative of this part: degrees 1, 3, … or 0, 2, …
    slopes: Float[Array, "terms *batch"]
    # √t of both after the first j blocks, (CAPACITY // BLOCK + 1, 2, *batch).
    tails: Float[Array, "cuts 2 *batch"]
    worst: Float[Array, "cuts 2"]  # the largest tails of the batch, (CAPACITY // BLOCK + 1, 2)
    blocks: Int[Array, ""]  # number of blocks that have been computed, ()


def tolerance(dtype: np.dtype) -> float:
    """Return the allowed truncation error of E[φ²] where the inputs coincide."""
    return 1e-12 if dtype == np.float64 else 1e-6


@lru_cache
def basis(dtype: np.dtype, refined: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return √w_j h_k(z_j) for even and for odd k < 2 CAPACITY, (CAPACITY, nodes)."""
    z, weights = (x.astype(np.float64) for x in half_nodes(dtype, refined))
    rows = np.empty((2 * CAPACITY, len(z)))
    rows[0] = np.sqrt(weights)
    rows[1] = z * rows[0]
    for k in range(1, 2 * CAPACITY - 1):
        rows[k + 1] = (z * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1)
    return rows[0::2].astype(dtype), rows[1::2].astype(dtype)


def part_on_nodes(
    phi: ActivationFunction,
    parity: int,
    alone: bool,
    q: Float[Array, " batch"],
    refined: bool = False,
) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
    """Return the even or odd part of φ(√q z), and that of φ', times √weight at the nodes."""
    z, weights = half_nodes(q.dtype, refined)
    x = z[:, None] * jnp.sqrt(q)
    value, slope = phi(x), phi.derivative(x)
    if not alone:
        sign = 1 - 2 * parity
        value = (value + sign * phi(-x)) / 2
        slope = (slope - sign * phi.derivative(-x)) / 2
    root = np.sqrt(weights)[:, None]
    return value * root, slope * root


def coefficients(
    phi: ActivationFunction,
    parity: int,  # 0 for the even part, 1 for the odd part
    alone: bool,  # whether the other part of φ is zero
    q: Float[Array, " batch"],
    # The largest |c| that occurs; only |c| near 1 requires nearly all terms.
    correlation: Float[Array, ""],
) -> Coefficients:
    """Return the coefficients of the even or odd part of φ that the tolerance requires."""
    value, slope = part_on_nodes(phi, parity, alone, q)
    even, odd = basis(q.dtype)
    bases = [jnp.asarray(b) for b in ((odd, even) if parity else (even, odd))]
    limit, rounding = tolerance(q.dtype), 16 * jnp.finfo(q.dtype).eps
    totals = jnp.stack([jnp.sum(f**2, axis=0) for f in (value, slope)])

    def unfinished(state):
        j, _, _, tails = state
        damping = correlation ** (2 * BLOCK * j)
        return (j < CAPACITY // BLOCK) & jnp.any(damping * tails[j] ** 2 > limit * totals)

    def add_block(state):
        j, captured, tables, tails = state
        blocks = [
            lax.dynamic_slice_in_dim(basis, j * BLOCK, BLOCK) @ f
            for f, basis in zip((value, slope), bases, strict=True)
        ]
        captured = captured + jnp.stack([jnp.sum(block**2, axis=0) for block in blocks])
        left = jnp.sqrt(jnp.maximum(totals - captured - rounding * totals, 0))
        tables = tuple(
            lax.dynamic_update_slice_in_dim(table, block, j * BLOCK, axis=0)
            for table, block in zip(tables, blocks, strict=True)
        )
        return j + 1, captured, tables, lax.dynamic_update_index_in_dim(tails, left, j + 1, 0)

    empty = jnp.zeros((CAPACITY, q.size), q.dtype)
    tails = jnp.zeros((CAPACITY // BLOCK + 1, 2, q.size), q.dtype).at[0].set(jnp.sqrt(totals))
    start = (jnp.asarray(0), jnp.zeros_like(totals), (empty, empty), tails)
    blocks, _, tables, tails = lax.while_loop(unfinished, add_block, start)
    values, slopes = tables
    return Coefficients(values, slopes, tails, jnp.max(tails, axis=-1, initial=0.0), blocks)


def coefficients_of_both(
    phi: ActivationFunction, parity: int, alone: bool, q1: Array, q2: Array, correlation: Array
) -> tuple[Coefficients, Coefficients]:
    """Return the coefficients at two arrays of variances, computed together."""
    both = coefficients(phi, parity, alone, jnp.concatenate([q1.ravel(), q2.ravel()]), correlation)

    def part(of_one, q):
        values, slopes, tails = (x[..., of_one].reshape(*x.shape[:-1], *q.shape) for x in both[:3])
        return both._replace(values=values, slopes=slopes, tails=tails)

    return part(slice(0, q1.size), q1), part(slice(q1.size, None), q2)


class Correlation(NamedTuple):
    """Correlation c of a pair, and 1 − c and 1 − c² without cancellation; (*shape) each."""

    c: Array
    one_minus_c: Array
    one_minus_square: Array


def correlation_of(q1: Array, q2: Array, gap: Array) -> Correlation:
    """Return the correlation of pairs; 0 where a variance is 0."""
    half = (q1 + q2) / 2
    half = jnp.where(half > 0, half, 1)
    x1, x2, g = q1 / half, q2 / half, gap / half
    root = jnp.sqrt(x1) * jnp.sqrt(x2)
    positive = root > 0
    root = jnp.where(positive, root, 1)
    c = jnp.where(positive, jnp.clip(covariance_of(x1, x2, g) / root, -1, 1), 0)
    one_minus_square = jnp.clip(determinant_of(x1, x2, g) / root**2, 0, 1)
    one_minus_square = jnp.where(positive, one_minus_square, 1)
    one_minus_c = jnp.where(c > 0, one_minus_square / (1 + jnp.maximum(c, 0)), 1 - c)
    return Correlation(c, one_minus_c, one_minus_square)


def blocks_needed(first: Coefficients, second: Coefficients, correlation: Correlation) -> Array:
    """Return the number of blocks that a tile of pairs requires."""
    size = jnp.sqrt(1 - jnp.min(correlation.one_minus_square))
    damping = size ** (2 * BLOCK * jnp.arange(CAPACITY // BLOCK + 1))
    bound = damping[:, None] * first.worst * second.worst
    allowed = tolerance(size.dtype) * bound[0]
    count = jnp.max(jnp.sum(bound > allowed, axis=0))
    return jnp.minimum(count, jnp.minimum(first.blocks, second.blocks))


def gap_and_derivative(
    parity: int, first: Coefficients, second: Coefficients, correlation: Correlation, tile: Tile
) -> tuple[Array, Array, Array, Array]:
    """Return the contributions of one part of φ to gap' and E[φ'φ'], and bounds on their errors.

    The remainder of the series is assigned to the next degree: exact where inputs coincide, and
    elsewhere in error by less than twice Parseval's bound.
    """
    c, one_minus_c, one_minus_square = correlation
    y = 1 - one_minus_square
    count = blocks_needed(first, second, correlation)
    rest1, rest2 = (tile.of(table.tails, count, 1)[0] for table in (first, second))
    shape = c.shape
    spread = jnp.broadcast_to((rest1[0] - rest2[0]) ** 2 / 2, shape)
    total = jnp.broadcast_to(rest1[0] * rest2[0], shape)
    slope = jnp.broadcast_to(rest1[1] * rest2[1], shape)

    def add_block(i, state):
        # Horner's rule from the highest term down; `quotient` is Σ_m p_m (1 − y^m)/(1 − y).
        spread, total, quotient, slope = state
        start = (count - 1 - i) * BLOCK
        a, b, da, db = (
            tile.of(table, start, BLOCK)
            for table in (first.values, second.values, first.slopes, second.slopes)
        )
        for m in reversed(range(BLOCK)):
            quotient = quotient * y + total
            total = total + a[m] * b[m]
            spread = spread + (a[m] - b[m]) ** 2 / 2
            slope = slope * y + da[m] * db[m]
        return spread, total, quotient, slope

    start = (spread, total, jnp.zeros(shape, c.dtype), slope)
    spread, total, quotient, slope = lax.fori_loop(0, count, add_block, start)
    lost = one_minus_square * quotient
    gap = spread + (one_minus_c * total + c * lost if parity else lost)
    slope = slope if parity else c * slope
    left = 2 * y ** (BLOCK * count)
    return gap, slope, left * rest1[0] * rest2[0], left * rest1[1] * rest2[1]
