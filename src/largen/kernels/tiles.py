"""Kernels of whole matrices: at once where they are traced, by tiles where they are large."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from largen.architectures import Activation, Layer, Repeat, Residual, Serial
from largen.kernels.distance import half_squared_distance
from largen.kernels.rules import advance
from largen.kernels.state import State

TILE = 256  # rows and columns of a tile: its few matrices stay in a core's cache


def evaluate(
    skeleton: Layer,
    with_ntk: bool,
    constants: Any,
    x1: Float[Array, "n1 d"],
    x2: Float[Array, "n2 d"],
    same: Bool[Array, "n1 n2"],
) -> State:
    """Return the state behind the last layer for all pairs of rows, in the inputs' precision."""
    q1, q2 = jnp.mean(x1**2, axis=1), jnp.mean(x2**2, axis=1)
    gap = half_squared_distance(x1, x2, same)
    constants = jax.tree.map(lambda c: jnp.asarray(c, x1.dtype), constants)
    ntk = jnp.zeros_like(gap) if with_ntk else None
    return advance(skeleton, constants, State(q1, q2, gap, ntk))


@partial(jax.jit, static_argnums=(0, 1))
def kernels_at_once(skeleton, with_ntk, constants, x1, x2):
    """Return NNGP and NTK (or None) as differentiable functions of inputs and constants.

    ``x2`` is None for the symmetric kernel of ``x1``.
    """
    rows = jnp.arange(x1.shape[0])
    columns = -1 - jnp.arange(0 if x2 is None else x2.shape[0])
    same = rows[:, None] == (rows if x2 is None else columns)[None, :]
    final = evaluate(skeleton, with_ntk, constants, x1, x1 if x2 is None else x2, same)
    return final.covariance, final.ntk


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def kernels_by_tiles(skeleton, with_ntk, dtype, tile, constants, x1, x2):
    """Return NNGP and NTK (or None) in ``dtype``, tile by tile; of a symmetric one, one triangle.

    The last tile of each row overlaps the one before, so that any size will do. Tiles come in
    ascending order, which with overlap makes the symmetric result symmetric bit for bit.
    """
    symmetric = x2 is None
    second = x1 if symmetric else x2
    n1, n2 = x1.shape[0], second.shape[0]
    tall, wide = min(tile, n1), min(tile, n2)
    starts = np.array(
        [
            (min(i, n1 - tall), min(j, n2 - wide))
            for i in range(0, n1, tall)
            for j in range(i if symmetric else 0, n2, wide)
        ]
    )

    def fill(k, results):
        i, j = jnp.asarray(starts)[k]
        a = lax.dynamic_slice_in_dim(x1, i, tall)
        b = lax.dynamic_slice_in_dim(second, j, wide)
        rows, columns = i + jnp.arange(tall), j + jnp.arange(wide)
        same = (rows[:, None] == columns[None, :]) & symmetric
        final = evaluate(skeleton, with_ntk, constants, a, b, same)
        return jax.tree.map(
            lambda whole, part: _write(whole, part, i, j, symmetric),
            results,
            (final.covariance, final.ntk),
        )

    empty = jnp.zeros((n1, n2), dtype)
    return lax.fori_loop(0, len(starts), fill, (empty, empty if with_ntk else None))


def _write(whole, part, i, j, symmetric):
    part = part.astype(whole.dtype)
    if not symmetric:
        return lax.dynamic_update_slice(whole, part, (i, j))
    part = jnp.where(i == j, (part + part.T) / 2, part)
    return lax.dynamic_update_slice(lax.dynamic_update_slice(whole, part, (i, j)), part.T, (j, i))


def tile_size(skeleton: Layer, rows: int) -> int:
    """Return how large tiles should be.

    A Hermite series prepares coefficients for every row, which pays over long rows only, and
    makes tiles of its own.
    """
    return TILE if in_closed_form(skeleton) else max(rows, 1)


def in_closed_form(layer: Layer) -> bool:
    """Whether all activations have closed-form expectations."""
    match layer:
        case Serial(layers):
            return all(map(in_closed_form, layers))
        case Repeat(inner, _) | Residual(inner):
            return in_closed_form(inner)
        case Activation(function):
            return function.closed_form is not None
    return True
