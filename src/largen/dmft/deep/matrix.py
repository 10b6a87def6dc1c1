r"""A Gaussian random matrix that is never stored, and its low-rank change by training.

An N × N matrix W(0)/√N with standard Gaussian entries is known only through what it was asked.
With Q_i an orthonormal basis of the features it was applied to, and Q_o one of the gradients its
transpose was applied to (QᵀQ = N·1 for columns of N neurons), it acts on all of them as

    V(0) = (Ξ_i Q_iᵀ + Q_o Ξ_oᵀ)/N,

where every direction has a Gaussian *innovation* ξ, drawn when the direction first appears and
orthogonal to the other side's basis of that moment: then old answers stay what they were, the
two sides are exactly each other's transpose, and the answers have the law of a Gaussian matrix.
Averages Ξ_oᵀφ/N converge to the response function A, Ξ_iᵀg/N to B, equal times included
(Pehlevan and Bordelon's lecture notes, (65), where the term of equal times is missing). They are
never formed between pairs of times.

Gradient descent adds V − V(0) = Q_o M Q_iᵀ/N with a small matrix M.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from largen.dmft.deep.rows import combine, inner

Draws = Any  # what innovations come from: a random key, or a count of unit vectors
Innovate = Callable[..., tuple[Array, Draws]]

TOGETHER = 8  # directions that are orthonormalised at once


class Side(NamedTuple):
    """Directions that a matrix was applied to, as rows, with their innovations.

    Attributes
    ----------
    basis
        Q, orthonormal: Q Qᵀ = 1/weight.
    innovations
        Ξ, on the neurons of the matrix's other side.
    rank
        How many rows are filled.
    """

    basis: Float[Array, "capacity n"]
    innovations: Float[Array, "capacity n"]
    rank: Int[Array, ""]


class Matrix(NamedTuple):
    """V in the coordinates of its two bases.

    Attributes
    ----------
    inputs, outputs
        Features seen and gradients seen.
    change
        M.
    velocity
        The momentum of M; None without momentum.
    """

    inputs: Side
    outputs: Side
    change: Float[Array, "capacity_o capacity_i"]
    velocity: Float[Array, "capacity_o capacity_i"] | None


class Precision(NamedTuple):
    """Numerical parameters.

    Attributes
    ----------
    weight
        Of a neuron in averages: 1/N.
    tolerance
        A direction is kept if it is more than this fraction of a feature's size.
    """

    weight: float | Float[Array, ""]
    tolerance: float | Float[Array, ""]


def forward(
    matrix: Matrix, x: Float[Array, "k n"], draws: Draws, innovate: Innovate, precision: Precision
) -> tuple[Matrix, Float[Array, "k n"], Float[Array, "capacity_i k"], Draws]:
    """Return V x for features x, their coordinates in the basis, and the draws left."""
    inputs, y, c, draws = _apply(
        matrix.inputs, matrix.outputs, matrix.change, x, draws, innovate, precision
    )
    return matrix._replace(inputs=inputs), y, c, draws


def backward(
    matrix: Matrix, g: Float[Array, "k n"], draws: Draws, innovate: Innovate, precision: Precision
) -> tuple[Matrix, Float[Array, "k n"], Float[Array, "capacity_o k"], Draws]:
    """Return Vᵀ g for gradients g, their coordinates in the basis, and the draws left."""
    outputs, y, d, draws = _apply(
        matrix.outputs, matrix.inputs, matrix.change.T, g, draws, innovate, precision
    )
    return matrix._replace(outputs=outputs), y, d, draws


def _apply(near: Side, far: Side, change, x, draws, innovate, precision):
    """Apply the matrix from its near side: Ξᵀc + Q_far(Ξ_far·x/N + M c)."""
    near, c, draws = extend(near, far, x, draws, innovate, precision)
    response = precision.weight * inner(far.innovations, x, far.rank)
    y = combine(near.innovations, c, near.rank)
    y = y + combine(far.basis, response + inner(change, c.T, far.rank), far.rank)
    return near, y, c, draws


def extend(
    side: Side,
    far: Side,
    x: Float[Array, "k n"],
    draws: Draws,
    innovate: Innovate,
    precision: Precision,
) -> tuple[Side, Float[Array, "capacity k"], Draws]:
    """Add to a basis what is new in x, and return the coordinates of x.

    The residual's Gram matrix says which combinations are new. They are orthogonalised twice,
    once on being formed and once more: once is not enough in single precision.
    """
    weight, tolerance = precision
    c = weight * inner(side.basis, x, side.rank)
    gram = weight * (x @ x.T)
    norm = jnp.sqrt(jnp.diagonal(gram))
    # Columns much smaller than the largest are not resolved to a fraction of their own size.
    size = jnp.maximum(norm, 0.03 * norm.max()) + jnp.finfo(x.dtype).tiny
    values, vectors = jnp.linalg.eigh((gram - c.T @ c) / (size[:, None] * size))
    values, vectors = values[::-1], vectors[:, ::-1]
    new = jnp.sum(values > tolerance**2)
    vectors = vectors / (size[:, None] * jnp.sqrt(jnp.maximum(values, tolerance**2)))
    short = -len(values) % TOGETHER
    vectors = jnp.pad(vectors, ((0, 0), (0, short)))

    def add(carry):
        first, basis, innovations, rank, c, draws = carry
        fills = first + jnp.arange(TOGETHER) < new
        mix = lax.dynamic_slice_in_dim(vectors, first, TOGETHER, 1) * fills
        q = _orthonormal(mix.T @ x - combine(basis, c @ mix, rank), fills, weight)
        q = q - combine(basis, weight * inner(basis, q, rank), rank)
        q = _orthonormal(q, fills, weight)
        xi, draws = innovate(far, fills, rank, draws)
        basis = lax.dynamic_update_slice_in_dim(basis, q, rank, 0)
        innovations = lax.dynamic_update_slice_in_dim(innovations, xi, rank, 0)
        c = lax.dynamic_update_slice_in_dim(c, weight * (q @ x.T), rank, 0)
        return first + TOGETHER, basis, innovations, rank + fills.sum(dtype=jnp.int32), c, draws

    carry = (jnp.zeros((), jnp.int32), *side, c, draws)
    _, *side_parts, c, draws = lax.while_loop(lambda carry: carry[0] < new, add, carry)
    return Side(*side_parts), c, draws


def _orthonormal(
    rows: Float[Array, "block n"], fills: Bool[Array, " block"], weight
) -> Float[Array, "block n"]:
    """Orthonormalise the rows that are filled; the others stay 0."""
    gram = weight * (rows @ rows.T) + jnp.diag(1.0 - fills.astype(rows.dtype))
    inverse = solve_triangular(jnp.linalg.cholesky(gram), jnp.eye(len(rows)), lower=True)
    return inverse.astype(rows.dtype) @ rows
