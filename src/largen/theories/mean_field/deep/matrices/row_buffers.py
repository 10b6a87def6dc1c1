"""Products with the filled rows of buffers of fixed size, one buffer for each matrix.

Bases grow during training, but compiled programs have fixed shapes. They work on buffers of
``capacity`` rows, of which the first ``rank`` are filled and the others are zero. Products are
computed block by block over the filled rows, so that their cost follows the rank and one program
serves all ranks. The buffers of all matrices are one array, which is indexed without copies, so
that one program serves all layers.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

BLOCK = 32  # rows of a block, few enough to stay in cache; capacities are multiples of it

Index = int | Int[Array, ""]


def capacity_for(rows: int) -> int:
    """Return the smallest capacity that holds a number of rows."""
    return -(-max(rows, 1) // BLOCK) * BLOCK


def inner(
    rows: Float[Array, "matrix capacity n"], l: Index, x: Float[Array, "k n"], rank: Int[Array, ""]
) -> Float[Array, "capacity k"]:
    """Return rows·xᵀ of matrix l; 0 beyond the rank."""

    def block(j, out):
        return lax.dynamic_update_slice_in_dim(out, x @ _block(rows, l, j).T, j * BLOCK, 1)

    out = jnp.zeros((x.shape[0], rows.shape[1]), x.dtype)
    return lax.fori_loop(0, _blocks(rank), block, out).T


def combine(
    rows: Float[Array, "matrix capacity n"],
    l: Index,
    c: Float[Array, "capacity k"],
    rank: Int[Array, ""],
) -> Float[Array, "k n"]:
    """Return cᵀ·rows over the filled rows of matrix l."""

    def block(j, out):
        factor = lax.dynamic_slice_in_dim(c, j * BLOCK, BLOCK)
        return out + factor.T @ _block(rows, l, j)

    out = jnp.zeros((c.shape[1], rows.shape[2]), c.dtype)
    return lax.fori_loop(0, _blocks(rank), block, out)


def beside(
    rows: Float[Array, "matrix capacity n"],
    l: Index,
    x: Float[Array, "k n"],
    rank: Int[Array, ""],
    weight,
) -> Float[Array, "k n"]:
    """Return the component of x orthogonal to the rows of matrix l, which have size 1/√weight.

    It is x − cᵀ·rows with c = weight·(rows·xᵀ). :func:`inner` and :func:`combine` would read every
    block twice; this function reads it once.
    """

    def block(j, left):
        known = _block(rows, l, j)
        return left - weight * (left @ known.T) @ known

    return lax.fori_loop(0, _blocks(rank), block, x)


def append_rows(
    rows: Float[Array, "matrix capacity n"],
    l: Index,
    more: Float[Array, "block n"],
    rank: Int[Array, ""],
) -> Float[Array, "matrix capacity n"]:
    """Return the buffers with new rows of matrix l written after its filled rows."""
    return lax.dynamic_update_slice(rows, more[None], _at(l, rank))


def _block(rows: Float[Array, "matrix capacity n"], l: Index, j) -> Float[Array, "_ n"]:
    return lax.dynamic_slice(rows, _at(l, j * BLOCK), (1, BLOCK, rows.shape[2]))[0]


def _at(l: Index, row: Index):
    return tuple(jnp.asarray(index, jnp.int32) for index in (l, row, 0))


def _blocks(rank):
    return (rank + BLOCK - 1) // BLOCK
