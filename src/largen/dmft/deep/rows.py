"""Products with the rows that are filled so far of a buffer of fixed size.

Bases grow during training, compiled programs do not: they work on buffers of ``capacity`` rows
of which the first ``rank`` are filled and the others are zero. Products go through the filled
rows block by block, so that their cost follows the rank and one program serves all ranks.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

BLOCK = 128  # rows in a block; capacities are multiples of it


def capacity_for(rows: int) -> int:
    """Return the smallest capacity that holds a number of rows."""
    return -(-max(rows, 1) // BLOCK) * BLOCK


def inner(
    rows: Float[Array, "capacity n"], x: Float[Array, "k n"], rank: Int[Array, ""]
) -> Float[Array, "capacity k"]:
    """Return rows·xᵀ; 0 behind the rank."""

    def block(j, out):
        part = lax.dynamic_slice_in_dim(rows, j * BLOCK, BLOCK)
        return lax.dynamic_update_slice_in_dim(out, part @ x.T, j * BLOCK, 0)

    out = jnp.zeros((rows.shape[0], x.shape[0]), x.dtype)
    return lax.fori_loop(0, _blocks(rank), block, out)


def combine(
    rows: Float[Array, "capacity n"], c: Float[Array, "capacity k"], rank: Int[Array, ""]
) -> Float[Array, "k n"]:
    """Return cᵀ·rows over the filled rows."""

    def block(j, out):
        part = lax.dynamic_slice_in_dim(rows, j * BLOCK, BLOCK)
        factor = lax.dynamic_slice_in_dim(c, j * BLOCK, BLOCK)
        return out + factor.T @ part

    out = jnp.zeros((c.shape[1], rows.shape[1]), c.dtype)
    return lax.fori_loop(0, _blocks(rank), block, out)


def _blocks(rank):
    return (rank + BLOCK - 1) // BLOCK
