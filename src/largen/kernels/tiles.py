"""Kernels of whole matrices: at once where they are traced, by tiles where they are large."""

from __future__ import annotations

from functools import partial
from math import ceil, isqrt, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool

from largen.architectures import (
    Axes,
    Layer,
    MultiHeadAttention,
    Serial,
    parts_of,
    signal_behind,
    signal_of,
)
from largen.errors import InvalidInput
from largen.kernels.accuracy import activations_of
from largen.kernels.distance import centre_of
from largen.kernels.inputs import Samples, cut, samples_about, samples_of, state_of
from largen.kernels.rules import advance, wanted
from largen.kernels.state import State, Wanted

TILE = 200  # rows and columns of a tile: larger ones leave the caches, smaller ones cost calls
CACHED = 2**18  # entries of a tile with positions, which does the same
LARGEST = 2**22  # and where they are too many for that: 32 MiB for each of a few arrays
ROWS = 2**14  # of a Hermite series, which keeps 64 KiB for each
MEMORY_BUDGET = 2**32  # bytes
ARRAYS = 16  # of pairs, and as many of one side alone, that XLA holds at a time; measured 7 to 16
ROW = 2**16  # bytes of a Hermite series for each row and position, measured as well


def evaluate(
    skeleton: Layer,
    with_ntk: bool,
    constants: Any,
    first: Samples,
    second: Samples,
    same: Bool[Array, "n1 n2"],
) -> State:
    """Return the state behind the last layer for all pairs of samples, in their precision."""
    asked = wanted(skeleton, Wanted())
    state = state_of(first, second, same, asked, with_ntk)
    constants = jax.tree.map(lambda c: jnp.asarray(c, state.gap.dtype), constants)
    return advance(skeleton, constants, state, Wanted())


@partial(jax.jit, static_argnums=(0, 1))
def kernels_at_once(skeleton, with_ntk, constants, x1, x2, masks=(None, None)):
    """Return NNGP and NTK (or None) as differentiable functions of inputs and constants.

    ``x2`` is None for the symmetric kernel of ``x1``.
    """
    if x2 is not None and takes_whole_batches(skeleton):
        # The second set first, which then has the draws that it has by itself.
        second, both = len(x2), jnp.concatenate([x2, x1])
        if masks[0] is not None:
            masks = (jnp.concatenate([masks[1], masks[0]]), None)
        whole = kernels_at_once(skeleton, with_ntk, constants, both, None, masks)
        return jax.tree.map(lambda k: k[second:, :second], whole)
    rows = jnp.arange(x1.shape[0])
    columns = -1 - jnp.arange(0 if x2 is None else x2.shape[0])
    same = rows[:, None] == (rows if x2 is None else columns)[None, :]
    if x2 is None:
        x2, masks = x1, (masks[0], masks[0])
    asked = wanted(skeleton, Wanted())
    first, second = samples_of(x1, masks[0], asked), samples_of(x2, masks[1], asked)
    final = evaluate(skeleton, with_ntk, constants, first, second, same)
    return final.covariance, final.ntk


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def kernels_by_tiles(skeleton, with_ntk, dtype, tile, constants, x1, x2, masks=(None, None)):
    """Return NNGP and NTK (or None) in ``dtype``, tile by tile; of a symmetric one, one triangle.

    Every tile is computed in float64, whatever the samples and the result are kept in; only the
    products of samples without positions are taken in ``dtype``. Tiles come in ascending order,
    which with overlap makes the symmetric result symmetric bit for bit.
    """
    n1, n2, symmetric = len(x1), len(x1 if x2 is None else x2), x2 is None
    tops, lefts = starts_of(n1, tile), starts_of(n2, tile)
    sides = sides_of(skeleton, dtype, x1, x2, masks)

    def fill_row(row, results):
        i = jnp.asarray(tops)[row]
        first = tile_of(skeleton, sides[0], i, min(tile, n1))

        def fill(column, results):
            j = jnp.asarray(lefts)[column]
            second = tile_of(skeleton, sides[0] if symmetric else sides[1], j, min(tile, n2))
            found = kernels_of_tile(skeleton, with_ntk, constants, first, second, (i, j), symmetric)
            return jax.tree.map(
                lambda whole, part: _write(whole, part.astype(dtype), i, j, symmetric),
                results,
                found,
            )

        return lax.fori_loop(row if symmetric else 0, len(lefts), fill, results)

    empty = jnp.zeros((n1, n2), dtype)
    return lax.fori_loop(0, len(tops), fill_row, (empty, empty if with_ntk else None))


def starts_of(n: int, tile: int) -> np.ndarray:
    """Return where tiles begin; the last overlaps the one before, so that any size will do."""
    return np.minimum(np.arange(0, n, tile), max(n - tile, 0))


def corners_of(n1: int, n2: int, tile: int, symmetric: bool) -> np.ndarray:
    """Return where tiles begin, (tile, 2); of a symmetric kernel those of one triangle."""
    return np.array(
        [
            (i, j)
            for row, i in enumerate(starts_of(n1, tile))
            for j in starts_of(n2, tile)[row if symmetric else 0 :]
        ]
    )


def sides_of(skeleton, dtype, x1, x2, masks):
    """Return both sets of samples, None for a second one that is the first, to cut tiles from.

    Without positions, what belongs to single samples is computed here, once for all tiles, and
    products of samples are taken in the precision that kernels are wanted in.
    """
    if x1.ndim > 2:
        return (x1, masks[0]), None if x2 is None else (x2, masks[1])
    asked, centre = wanted(skeleton, Wanted()), centre_of(x1.astype(jnp.float64))
    return tuple(None if x is None else samples_about(x, centre, asked, dtype) for x in (x1, x2))


def tile_at(skeleton, with_ntk, lengths, constants, sides, corner):
    """Return NNGP and NTK (or None) of the tile that begins at a corner, in float64."""
    one, two = sides
    first = tile_of(skeleton, one, corner[0], lengths[0])
    second = tile_of(skeleton, one if two is None else two, corner[1], lengths[1])
    return kernels_of_tile(skeleton, with_ntk, constants, first, second, corner, two is None)


def tile_of(skeleton, side, start, length):
    """Return some of a set of samples, in float64."""
    if isinstance(side, Samples):
        return cut(side, start, length)
    x, mask = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, length), side)
    return samples_of(x.astype(jnp.float64), mask, wanted(skeleton, Wanted()))


def kernels_of_tile(skeleton, with_ntk, constants, first, second, corner, symmetric):
    """Return NNGP and NTK (or None) of two sets of samples that begin at a corner."""
    i, j = corner
    rows, columns = i + jnp.arange(first.number), j + jnp.arange(second.number)
    same = (rows[:, None] == columns[None, :]) & symmetric
    final = evaluate(skeleton, with_ntk, constants, first, second, same)
    found = (final.covariance, final.ntk)
    if not symmetric:
        return found
    return lax.cond(
        i == j,
        lambda found: jax.tree.map(lambda part: (part + part.T) / 2, found),
        lambda found: found,
        found,
    )


def _write(whole, part, i, j, symmetric):
    if symmetric:
        whole = lax.dynamic_update_slice(whole, part, (i, j))
        return lax.dynamic_update_slice(whole, part.T, (j, i))
    return lax.dynamic_update_slice(whole, part, (i, j))


def tile_size(
    skeleton: Layer, rows: int, space: tuple[int, ...] = (), at_most: int | None = None
) -> int:
    """Return how large tiles should be, so that they divide the rows evenly.

    Without positions, so large that the arrays of a tile stay in a core's cache; with many of
    them, so large that they stay small against the memory of a small machine. A Hermite series
    prepares coefficients for every row, which pays over long rows only, and makes tiles of its
    own. In any case no larger than ``at_most``, which a memory budget allows.
    """
    pairs = wanted(skeleton, Wanted()).pairs
    positions = prod(space)
    if not in_closed_form(skeleton):
        largest = rows if not space else max(ROWS // positions, 1)
    else:
        entries = positions ** (2 if pairs else 1)
        cached = isqrt(CACHED // entries) if space else TILE
        largest = max(cached, min(4, isqrt(LARGEST // entries)), 1)
    if at_most is not None:
        largest = min(largest, at_most)
    return ceil(rows / ceil(max(rows, 1) / largest)) if rows else 1


def fitting(skeleton: Layer, positions: int, memory_budget: float) -> int:
    """Return the largest t with (bytes of a pair)·t² + (bytes of a row)·t ≤ budget.

    Raises
    ------
    InvalidInput
        If that is not even one.
    """
    pairs = wanted(skeleton, Wanted()).pairs
    known = (phi.closed_form for phi in activations_of(skeleton))
    arrays = ARRAYS + max((form.arrays for form in known if form is not None), default=0)
    a = 8 * arrays * positions ** (2 if pairs else 1)
    b = a + (0 if in_closed_form(skeleton) else ROW * positions * (2 if pairs else 1))
    if memory_budget < a + b:
        every = "every pair of positions" if pairs else "every position"
        raise InvalidInput(
            f"memory_budget: one pair of samples, with {every} of {positions}, needs about "
            f"{a + b:.2g} bytes, and the budget is {memory_budget:.2g}."
        )
    return max(int(((b**2 + 4 * a * memory_budget) ** 0.5 - b) / (2 * a)), 1)


def most_positions(net: Layer, inputs: int | tuple[int, ...]) -> int:
    """Return the largest number of positions between two layers, for a shape of samples."""
    signal, found = signal_of(inputs), [1]
    for layer in net.layers if isinstance(net, Serial) else (net,):
        if not isinstance(layer, Axes):  # in front of them, channels may be among the positions
            found.append(prod(signal.space or ()))
        signal = signal_behind(layer, signal)
    return max(found)


def takes_whole_batches(skeleton: Layer) -> bool:
    """Whether kernels are made of draws for all samples together, and not tile by tile."""
    if isinstance(skeleton, MultiHeadAttention) and skeleton.mechanism == "softmax":
        return True
    return any(map(takes_whole_batches, parts_of(skeleton)))


def in_closed_form(skeleton: Layer) -> bool:
    """Whether all activations have closed-form expectations."""
    return all(phi.closed_form is not None for phi in activations_of(skeleton))
