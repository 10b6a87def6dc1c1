"""Random matrices whose random numbers belong to single neurons.

W(0) is drawn as training multiplies it. A direction q that it has not yet multiplied (orthogonal to
the basis Q_i of earlier ones) has the product ξ, a Gaussian vector orthogonal to the basis Q_o of
the directions that the transpose has multiplied, and the known part of the matrix grows by ξqᵀ/N.
This has the exact distribution of a Gaussian matrix (``by_directions.py``), and every random number
is an entry of ξ before its projection, which belongs to one neuron of one layer.

Directions are found by Gram and Schmidt's procedure in the order of the samples. The
k-th direction that sample μ adds has random numbers of its own, at whatever step it is added, and
they do not depend on the other neurons. Networks with different numbers of neurons thus have
neurons in common, and the outputs are the same symmetric function of the neurons of each layer in
all of them: what differs between a network and the mean of its halves is of second order in their
fluctuations.

The known part is stored as a matrix, with the change by training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from largen.theories.mean_field.deep.matrices.by_directions import SMALL, Matrices, Precision, Share
from largen.theories.mean_field.deep.matrices.fresh_vectors import following
from largen.theories.mean_field.deep.matrices.row_buffers import (
    Index,
    append_rows,
    beside,
    capacity_for,
)

# Columns of a matrix, and directions of a column, that have random numbers of their own.
MOST_COLUMNS, MOST_DIRECTIONS = 2**12, 2**10
Normals = Callable[[Any, int], Float[Array, " n"]]


class Basis(NamedTuple):
    """Directions that matrices have multiplied, as orthonormal rows: Q Qᵀ = 1/weight."""

    rows: Float[Array, "matrix capacity n"]
    rank: Int[Array, " matrix"]  # the number of filled rows
    used: Int[Array, "matrix column"]  # the number of directions that each column has added


class NeuronMatrices(NamedTuple):
    """V of all layers, output neurons by input neurons (of all taps)."""

    change: Float[Array, "matrix behind before"]  # the known part of V, with its change by training
    # The momentum of V; None without momentum.
    velocity: Float[Array, "matrix behind before"] | None
    # inputs, outputs: the bases of features and of gradients.
    inputs: Basis
    outputs: Basis

    number, ranks = Matrices.number, Matrices.ranks  # named tuples do not inherit

    def apply(
        self,
        l: Index,
        x: Float[Array, "k near"],
        draws: Any,
        normals: Normals,
        precision: Precision,
        share: Share,
        *,
        transposed: bool = False,
    ) -> tuple[NeuronMatrices, Float[Array, "k far"], Float[Array, "near k"], Any]:
        """Return V x of matrix l, or Vᵀ x, the coordinates x/√N of x, and the remaining draws."""
        weight, near, far = precision.weight, self.inputs, self.outputs
        if transposed:
            near, far = far, near
        q, kept = new_directions(near, l, x, precision)
        order, count = jnp.argsort(~kept), kept.sum(dtype=jnp.int32)
        column = (2 * l + transposed) * MOST_COLUMNS + order
        place = MOST_DIRECTIONS * column + near.used[l, order]

        def draw(i, xi):
            row = normals(following(draws, place[i]), xi.shape[1])
            return xi.at[order[i]].set(row)

        def grow(parts):
            xi = jnp.zeros((len(x), far.rows.shape[2]), x.dtype)
            xi = lax.fori_loop(0, count, draw, xi)
            xi = beside(far.rows, l, xi, far.rank[l], weight) * kept[:, None]
            more = weight * (q.T @ xi if transposed else xi.T @ q)
            return jax.tree.map(lambda part, factor: part + factor * more, parts, tuple(share))

        parts = self.change[l], None if self.velocity is None else self.velocity[l]
        v, velocity = lax.cond(count > 0, grow, lambda parts: parts, parts)
        near = Basis(
            append_rows(near.rows, l, q[order], near.rank[l]),
            near.rank.at[l].add(count),
            near.used.at[l, : len(x)].add(kept),
        )
        sides = {"outputs" if transposed else "inputs": near}
        y = x @ v if transposed else x @ v.T
        found = self._replace(change=self.change.at[l].set(v), **sides)
        if self.velocity is not None:
            found = found._replace(velocity=self.velocity.at[l].set(velocity))
        return found, y, jnp.sqrt(weight) * x.T, draws


def new_directions(
    known: Basis, l: Index, x: Float[Array, "k n"], precision: Precision
) -> tuple[Float[Array, "k n"], Bool[Array, " k"]]:
    """Return the directions that columns add to a basis in their order, and which columns do.

    Rows of columns that add none, because what is left of them is below the tolerance, are 0.
    """
    weight, tolerance = precision
    left = beside(known.rows, l, x, known.rank[l], weight)
    norm = jnp.sqrt(weight * jnp.sum(x**2, 1))
    least = (tolerance * jnp.maximum(norm, SMALL * norm.max())) ** 2
    least = least + jnp.finfo(x.dtype).tiny
    # What is left of a column only decreases as others are added.
    possible = weight * jnp.sum(left**2, 1) > least
    (order,) = jnp.nonzero(possible, size=len(x), fill_value=0)

    def add(i, carry):
        left, q, kept = carry
        j = order[i]
        size = weight * jnp.sum(left[j] ** 2)
        keep = size > least[j]
        unit = jnp.where(keep, left[j] / jnp.sqrt(size), 0)
        left = left - weight * (left @ unit)[:, None] * unit
        return left, q.at[j].set(unit), kept.at[j].set(keep)

    carry = (left, jnp.zeros_like(x), jnp.zeros(len(x), bool))
    return lax.fori_loop(0, possible.sum(), add, carry)[1:]


def nothing_known(
    matrices: int, taps: int, neurons: int, most: tuple[int, int], dtype: Any
) -> NeuronMatrices:
    """Return matrices of which nothing is known yet.

    ``matrices``, ``taps``, ``neurons``: the number of matrices, of their taps, and of neurons of a
    layer; ``most``: the largest numbers of features and of gradients that are multiplied at once;
    ``dtype``: the precision.
    """

    def basis(width: int, columns: int) -> Basis:
        capacity = capacity_for(width + columns)
        rank = jnp.zeros(matrices, jnp.int32)
        used = jnp.zeros((matrices, columns), jnp.int32)
        return Basis(jnp.zeros((matrices, capacity, width), dtype), rank, used)

    change = jnp.zeros((matrices, neurons, taps * neurons), dtype)
    inputs, outputs = basis(taps * neurons, most[0]), basis(neurons, most[1])
    return NeuronMatrices(change, None, inputs, outputs)


def normals_of_neurons(
    pool: int, chosen: Int[Array, " n"], scale: Float[Array, " n"], taps: Any = None
) -> Normals:
    """Return the rule for the random numbers of a layer's neurons.

    ``pool``: the number of neurons from which networks choose theirs. ``chosen``: those of this
    network. ``scale``: the root of each neuron's weight in averages over the layer times N; 0 for
    neurons that the layer does not have. ``taps``: for vectors over the taps of a matrix, the
    number of its taps; entries beyond stay 0.
    """

    def normals(key, size):
        blocks = size // len(chosen)
        xi = jax.random.normal(key, (blocks, pool), scale.dtype)[:, chosen] * scale
        if taps is not None:
            xi = xi * (jnp.arange(blocks) < taps)[:, None]
        return xi.reshape(size)

    return normals
