r"""A Gaussian random matrix that is never stored, and its low-rank change by training.

An N × N matrix W(0)/√N with standard Gaussian entries is represented by its products only. Let Q_i
be an orthonormal basis of the features that it has multiplied, and Q_o one of the gradients that
its transpose has multiplied (QᵀQ = N·1 for columns of N neurons). On these vectors it acts as

    V(0) = (Ξ_i Q_iᵀ + Q_o Ξ_oᵀ)/N,

where every direction has a Gaussian *image* ξ, drawn when the direction first appears and
orthogonal to the other side's basis at that moment. Earlier products then remain unchanged, the
products on the two sides are exactly each other's transpose, and all products are distributed as
those with a Gaussian matrix.
Averages Ξ_oᵀφ/N converge to the response function A, Ξ_iᵀg/N to B, equal times included
(Pehlevan and Bordelon's lecture notes, (65), where the equal-time term is missing). They are never
computed between pairs of times.

In training V = s V(0) + Q_o M Q_iᵀ/N with a small matrix M, and s = 1 without weight decay.

A convolution has a matrix for each tap (``programs/receptive_fields.py``). Side by side they
form one N × (taps · N) matrix, whose inputs are patches; all inner products are divided by N, so
that images have unit variance on either side.

The matrices of all layers are stored in arrays with a leading layer axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from largen.theories.mean_field.deep.matrices.row_buffers import (
    Index,
    append_rows,
    beside,
    combine,
    inner,
)

Draws = Any  # the source of fresh vectors: a random key, or a count of unit vectors
FreshVectors = Callable[..., tuple[Array, Draws]]

SMALL = 0.03  # columns are resolved to a fraction of their size, or of this part of the largest
TOGETHER = 4  # directions that are orthonormalised at once; most steps have fewer new ones


class Side(NamedTuple):
    """Directions that matrices have multiplied, as rows, with their images."""

    basis: Float[Array, "matrix capacity near"]  # Q, orthonormal: Q Qᵀ = 1/weight
    images: Float[Array, "matrix capacity far"]  # Ξ, on the neurons of the matrix's other side
    rank: Int[Array, " matrix"]  # the number of filled rows


class Share(NamedTuple):
    """The share s of V(0) in a matrix V, and that in its momentum; None without momentum."""

    now: Float[Array, ""]
    velocity: Float[Array, ""] | None


class Matrices(NamedTuple):
    """V of all layers in the coordinates of their two bases."""

    # inputs, outputs: the bases and images for features and for gradients.
    inputs: Side
    outputs: Side
    change: Float[Array, "matrix capacity_o capacity_i"]  # M, what training has added
    # The momentum of M; None without momentum.
    velocity: Float[Array, "matrix capacity_o capacity_i"] | None

    @property
    def number(self) -> int:
        """The number of matrices."""
        return len(self.change)

    @property
    def ranks(self) -> np.ndarray:
        """Ranks of all matrices, shape ``(matrix, 2)``, inputs before outputs."""
        return np.stack([np.asarray(self.inputs.rank), np.asarray(self.outputs.rank)], 1)

    def apply(
        self,
        l: Index,
        x: Float[Array, "k near"],
        draws: Draws,
        fresh_vectors: FreshVectors,
        precision: Precision,
        share: Share,
        *,
        transposed: bool = False,
    ) -> tuple[Matrices, Float[Array, "k far"], Float[Array, "capacity k"], Draws]:
        """Return V x of matrix l, or Vᵀ x, the coordinates c of x, and the remaining draws.

        It is V x = s Ξᵀc + Q_far(s Ξ_far·x/N + M c), with Q_far and Ξ_far of the side opposite to
        x.
        """
        near, far = (self.outputs, self.inputs) if transposed else (self.inputs, self.outputs)
        near, c, draws = extend(near, far, l, x, draws, fresh_vectors, precision)
        response = share.now * precision.weight * inner(far.images, l, x, far.rank[l])
        y = combine(near.images, l, share.now * c, near.rank[l])
        y = y + self.added(l, c, transposed=transposed, response=response)
        sides = {"outputs": near} if transposed else {"inputs": near}
        return self._replace(**sides), y, c, draws

    def added(
        self, l: Index, c: Float[Array, "capacity k"], *, transposed: bool, response: Any = 0
    ) -> Float[Array, "k far"]:
        """Return what training has added to V x, or Vᵀ x, from the coordinates of x.

        ``response`` is added to the coordinates M c of the result.
        """
        far, change = self.outputs, self.change[l]
        if transposed:
            far, change = self.inputs, change.T
        rank = far.rank[l]
        return combine(far.basis, l, response + inner(change[None], 0, c.T, rank), rank)

    def has_room(self, features: int, gradients: int) -> Bool[Array, ""]:
        """Whether every basis has free rows for these numbers of directions."""
        inputs, outputs = (side.basis.shape[1] - side.rank for side in (self.inputs, self.outputs))
        return jnp.all(inputs >= features) & jnp.all(outputs >= gradients)

    def enlarged(self, features: int, gradients: int) -> Matrices:
        """Return the matrices with bases of these capacities."""

        def larger(side: Side, capacity: int) -> Side:
            more = ((0, 0), (0, capacity - side.basis.shape[1]), (0, 0))
            return Side(jnp.pad(side.basis, more), jnp.pad(side.images, more), side.rank)

        _, rows, across = self.change.shape
        more = ((0, 0), (0, gradients - rows), (0, features - across))
        change = jnp.pad(self.change, more)
        velocity = None if self.velocity is None else jnp.pad(self.velocity, more)
        inputs, outputs = larger(self.inputs, features), larger(self.outputs, gradients)
        return Matrices(inputs, outputs, change, velocity)


class Precision(NamedTuple):
    """Numerical parameters of the bases."""

    weight: float | Float[Array, ""]  # the weight of a neuron in averages: 1/N
    # The relative size, compared with a feature, above which a new direction is kept.
    tolerance: float | Float[Array, ""]


def extend(
    side: Side,
    far: Side,
    l: Index,
    x: Float[Array, "k n"],
    draws: Draws,
    fresh_vectors: FreshVectors,
    precision: Precision,
) -> tuple[Side, Float[Array, "capacity k"], Draws]:
    """Extend a basis by the new directions in x, and return the coordinates of x.

    New directions are eigenvectors of the residual's Gram matrix. They are orthogonalised twice,
    since once is not enough in single precision.
    """
    weight, tolerance = precision
    c = weight * inner(side.basis, l, x, side.rank[l])
    gram = weight * (x @ x.T)
    norm = jnp.sqrt(jnp.diagonal(gram))
    size = jnp.maximum(norm, SMALL * norm.max()) + jnp.finfo(x.dtype).tiny
    values, vectors = jnp.linalg.eigh((gram - c.T @ c) / (size[:, None] * size))
    values, vectors = values[::-1], vectors[:, ::-1]
    new = jnp.sum(values > tolerance**2)
    vectors = vectors / (size[:, None] * jnp.sqrt(jnp.maximum(values, tolerance**2)))
    short = -len(values) % TOGETHER
    vectors = jnp.pad(vectors, ((0, 0), (0, short)))

    def add(carry):
        first, basis, images, rank, c, draws = carry
        fills = first + jnp.arange(TOGETHER) < new
        mix = lax.dynamic_slice_in_dim(vectors, first, TOGETHER, 1) * fills

        def orthonormal(_, rows):
            return _orthonormal(beside(basis, l, rows, rank, weight), fills, weight)

        q = lax.fori_loop(0, 2, orthonormal, mix.T @ x)
        xi, draws = fresh_vectors(far, l, fills, rank, draws)
        basis, images = append_rows(basis, l, q, rank), append_rows(images, l, xi, rank)
        c = lax.dynamic_update_slice_in_dim(c, weight * (q @ x.T), rank, 0)
        return first + TOGETHER, basis, images, rank + fills.sum(dtype=jnp.int32), c, draws

    start = (jnp.zeros((), jnp.int32), side.basis, side.images, side.rank[l], c, draws)
    _, basis, images, rank, c, draws = lax.while_loop(lambda carry: carry[0] < new, add, start)
    return Side(basis, images, side.rank.at[l].set(rank)), c, draws


def _orthonormal(
    rows: Float[Array, "block n"], fills: Bool[Array, " block"], weight
) -> Float[Array, "block n"]:
    """Orthonormalise the rows that are filled; the others stay 0."""
    gram = weight * (rows @ rows.T) + jnp.diag(1.0 - fills.astype(rows.dtype))
    inverse = solve_triangular(jnp.linalg.cholesky(gram), jnp.eye(len(rows)), lower=True)
    return inverse.astype(rows.dtype) @ rows
