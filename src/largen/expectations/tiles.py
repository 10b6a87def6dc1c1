"""Evaluation of a function of many pairs tile by tile, so that temporaries stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

TILE = 64  # rows and columns of a tile of pairs


class Tile(NamedTuple):
    """Part of an array of pairs, along some of its axes."""

    # The axes along which the array is cut, counted from the last one: −1, −2, …
    axes: tuple[int, ...]
    # starts, lengths: start and length of the tile along each of these axes.
    starts: tuple[Array, ...]
    lengths: tuple[int, ...]

    def of(self, array: Array, start: Array | int = 0, length: int | None = None) -> Array:
        """Return the tile of an array, whose last axes are those of pairs or have length 1."""
        corner: list[Any] = [start, *[0] * (array.ndim - 1)]
        lengths = list(array.shape)
        if length is not None:
            lengths[0] = length
        for axis, begin, size in zip(self.axes, self.starts, self.lengths, strict=True):
            if array.shape[axis] > 1:
                corner[axis], lengths[axis] = begin, size
        if lengths == list(array.shape):
            return array
        return lax.dynamic_slice(array, corner, lengths)


def over_tiles(function: Callable[[Tile], Any], shape: tuple[int, ...]) -> Any:
    """Return arrays assembled from ``function`` on tiles of the last two axes longer than one."""
    axes = tuple(i - len(shape) for i, length in enumerate(shape) if length > TILE)[-2:]
    counts = [-(-shape[i] // TILE) for i in axes]
    if not axes:
        return function(Tile((), (), ()))

    def tile_at(n: Array) -> Tile:
        starts = []
        for i, count in zip(reversed(axes), reversed(counts), strict=True):
            starts.append(jnp.minimum(n % count * TILE, shape[i] - TILE))
            n = n // count
        return Tile(axes, tuple(reversed(starts)), (TILE,) * len(axes))

    def fill(n, results):
        tile = tile_at(n)
        corner: list[Any] = [0] * len(shape)
        for i, start in zip(axes, tile.starts, strict=True):
            corner[i] = start
        return jax.tree.map(
            lambda whole, part: lax.dynamic_update_slice(whole, part, corner),
            results,
            function(tile),
        )

    outs = jax.eval_shape(lambda: function(tile_at(jnp.asarray(0))))
    results = jax.tree.map(lambda out: jnp.zeros(shape, out.dtype), outs)
    return lax.fori_loop(0, int(np.prod(counts)), fill, results)
