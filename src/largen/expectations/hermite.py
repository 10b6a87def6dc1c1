"""Pair expectations of any activation, by its Hermite series, with a bound on the error.

With h_k the orthonormal Hermite polynomials and a_k(q) = E[φ(√q z) h_k(z)] (Mehler's formula),

    E[φ(u)φ(v)] = Σ_k a_k(q1) a_k(q2) cᵏ,   c = q12/√(q1 q2),

so that n² pairs cost n² K multiply-adds. What K terms leave out is bounded by Parseval:

    |Σ_{k≥K} a_k b_k cᵏ| ≤ |c|ᴷ √(t(q1) t(q2)),   t(q) = E[φ²] − Σ_{k<K} a_k² ≥ 0.

The number of terms is found while the program runs, from t, so it adapts to the activation and
to the variances under ``jit`` too. The even and the odd part of φ never mix and are summed
apart, as series in c²; an odd φ costs half. The gap is a sum of non-negative terms,

    gap' = Σ_k [(a_k − b_k)²/2 + a_k b_k (1 − cᵏ)],

and 1 − c comes from the gap of the inputs, so nothing cancels where the inputs coincide.
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

BLOCK = 16  # terms that are fused into one pass over the pairs
CAPACITY = 64 * BLOCK  # terms of each parity, i.e. degrees below 2048


class Coefficients(NamedTuple):
    """Hermite coefficients of the even (parity 0) or the odd (parity 1) part of φ.

    Attributes
    ----------
    values
        a_k of the part itself, (*batch, CAPACITY): degrees 0, 2, … or 1, 3, …
    slopes
        a_k of its derivative: degrees 1, 3, … or 0, 2, …
    tails
        √t for the two, (*batch, 2, CAPACITY // BLOCK + 1): what the first j blocks leave out.
    blocks
        How many blocks have been computed, ().
    """

    values: Float[Array, "*batch terms"]
    slopes: Float[Array, "*batch terms"]
    tails: Float[Array, "*batch 2 cuts"]
    blocks: Int[Array, ""]


def tolerance(dtype: np.dtype) -> float:
    """Return the part of E[φ²] that may be left out where the inputs coincide."""
    return 1e-12 if dtype == np.float64 else 1e-6


@lru_cache
def _basis() -> tuple[np.ndarray, np.ndarray]:
    """Return √w_j h_k(z_j) for even and for odd k < 2 CAPACITY, (nodes, CAPACITY)."""
    z, weights = half_nodes()
    rows = np.empty((2 * CAPACITY, len(z)))
    rows[0] = np.sqrt(weights)
    rows[1] = z * rows[0]
    for k in range(1, 2 * CAPACITY - 1):
        rows[k + 1] = (z * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1)
    return np.ascontiguousarray(rows[0::2].T), np.ascontiguousarray(rows[1::2].T)


def coefficients(
    phi: ActivationFunction, parity: int, q: Float[Array, "*batch"], correlation: Float[Array, ""]
) -> Coefficients:
    """Return as many coefficients of the even or odd part of φ as the tolerance asks for.

    Parameters
    ----------
    phi
        The activation.
    parity
        0 for the even part, 1 for the odd part.
    q
        Variances.
    correlation
        The largest |c| that they will be used for; nearly all terms are needed for 1 only.
    """
    z, weights = (jnp.asarray(x, q.dtype) for x in half_nodes())
    x = jnp.sqrt(q)[..., None] * z
    sign = 1 - 2 * parity
    root = jnp.sqrt(weights)
    value = (phi(x) + sign * phi(-x)) / 2 * root
    slope = (phi.derivative(x) - sign * phi.derivative(-x)) / 2 * root
    even, odd = (jnp.asarray(b, q.dtype) for b in _basis())
    bases = (odd, even) if parity else (even, odd)
    limit, rounding = tolerance(q.dtype), 8 * jnp.finfo(q.dtype).eps

    totals = [jnp.sum(f**2, axis=-1) for f in (value, slope)]

    def unfinished(state):
        j, _, _, tails = state
        left = lax.dynamic_index_in_dim(tails, j, axis=-1, keepdims=False)
        allowed = limit * jnp.stack(totals, axis=-1)
        damping = correlation ** (2 * BLOCK * j)
        return (j < CAPACITY // BLOCK) & jnp.any(damping * left**2 > allowed)

    def add_block(state):
        j, captured, filled, tails = state
        new_captured, new_filled, left = [], [], []
        for f, total, so_far, buffer, basis in zip(
            (value, slope), totals, captured, filled, bases, strict=True
        ):
            block = f @ lax.dynamic_slice_in_dim(basis, j * BLOCK, BLOCK, axis=1)
            so_far = so_far + jnp.sum(block**2, axis=-1)
            new_captured.append(so_far)
            new_filled.append(
                lax.dynamic_update_slice_in_dim(buffer, block, j * BLOCK, axis=buffer.ndim - 1)
            )
            left.append(jnp.sqrt(jnp.maximum(total - so_far - rounding * total, 0)))
        tails = lax.dynamic_update_index_in_dim(
            tails, jnp.stack(left, axis=-1), j + 1, axis=tails.ndim - 1
        )
        return j + 1, tuple(new_captured), tuple(new_filled), tails

    empty = jnp.zeros((*q.shape, CAPACITY), q.dtype)
    nothing = jnp.zeros(q.shape, q.dtype)
    tails = jnp.zeros((*q.shape, 2, CAPACITY // BLOCK + 1), q.dtype)
    tails = tails.at[..., 0].set(jnp.sqrt(jnp.stack(totals, axis=-1)))
    start = (jnp.asarray(0), (nothing, nothing), (empty, empty), tails)
    blocks, _, (values, slopes), tails = lax.while_loop(unfinished, add_block, start)
    return Coefficients(values, slopes, tails, blocks)


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
    """Return the number of blocks that a tile of pairs needs."""
    size = jnp.sqrt(1 - jnp.min(correlation.one_minus_square))
    cuts = jnp.arange(CAPACITY // BLOCK + 1)
    damping = size ** (2 * BLOCK * cuts)
    worst = [jnp.max(t.tails, axis=tuple(range(t.tails.ndim - 2))) for t in (first, second)]
    bound = damping * worst[0] * worst[1]
    allowed = tolerance(size.dtype) * bound[:, :1]
    count = jnp.max(jnp.sum(bound > allowed, axis=1))
    return jnp.minimum(count, jnp.minimum(first.blocks, second.blocks))


def tails_at(coefficients: Coefficients, count: Array) -> Array:
    """Return √t of the values and of the slopes after ``count`` blocks, (*batch, 2)."""
    return lax.dynamic_index_in_dim(coefficients.tails, count, axis=-1, keepdims=False)


def gap_and_derivative(
    parity: int, first: Coefficients, second: Coefficients, correlation: Correlation
) -> tuple[Array, Array, Array, Array]:
    """Return what one part of φ adds to gap' and to E[φ'φ'], and bounds on their errors.

    What the blocks leave out is counted as if it were all of the next degree; that is exact
    where the inputs coincide, and elsewhere wrong by less than twice the bound of Parseval.
    """
    c, one_minus_c, one_minus_square = correlation
    y = 1 - one_minus_square
    count = blocks_needed(first, second, correlation)
    rest1, rest2 = tails_at(first, count), tails_at(second, count)
    shape = c.shape
    spread = jnp.broadcast_to((rest1[..., 0] - rest2[..., 0]) ** 2 / 2, shape)
    total = jnp.broadcast_to(rest1[..., 0] * rest2[..., 0], shape)
    slope = jnp.broadcast_to(rest1[..., 1] * rest2[..., 1], shape)

    def block_at(array, j):
        return lax.dynamic_slice_in_dim(array, j * BLOCK, BLOCK, axis=array.ndim - 1)

    def add_block(i, state):
        # Horner's rule from the highest term down; `quotient` is Σ_m p_m (1 − y^m)/(1 − y).
        spread, total, quotient, slope = state
        j = count - 1 - i
        a, b = block_at(first.values, j), block_at(second.values, j)
        da, db = block_at(first.slopes, j), block_at(second.slopes, j)
        for m in reversed(range(BLOCK)):
            quotient = quotient * y + total
            total = total + a[..., m] * b[..., m]
            spread = spread + (a[..., m] - b[..., m]) ** 2 / 2
            slope = slope * y + da[..., m] * db[..., m]
        return spread, total, quotient, slope

    start = (spread, total, jnp.zeros(shape, c.dtype), slope)
    spread, total, quotient, slope = lax.fori_loop(0, count, add_block, start)
    lost = one_minus_square * quotient
    gap = spread + (one_minus_c * total + c * lost if parity else lost)
    slope = slope if parity else c * slope
    left = 2 * y ** (BLOCK * count)
    return (
        gap,
        slope,
        left * rest1[..., 0] * rest2[..., 0],
        left * rest1[..., 1] * rest2[..., 1],
    )
