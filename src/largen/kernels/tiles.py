"""Kernel matrices, computed at once under a trace and otherwise by tiles."""

from __future__ import annotations

from functools import partial
from math import ceil, isqrt, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool

from largen.architectures import Layer
from largen.compilation import SHORT, Compiled
from largen.errors import InvalidInput
from largen.interrupts import Pace, interruptible
from largen.kernels.accuracy import activations_of
from largen.kernels.distance import centre_of
from largen.kernels.inputs import Samples, cut, samples_about, samples_of, state_of
from largen.kernels.planes import (
    at_pool,
    evaluate_planes,
    largest_tile,
    needs,
    own_gaps_of,
    with_own_gaps,
)
from largen.kernels.rules import plan_of, run, wanted_of_data
from largen.kernels.state import KernelState, Wanted
from largen.memory import check_fits, give_back
from largen.programs import Attend, Program, program_of

TILE = 200  # rows and columns of a tile: larger ones leave the caches, smaller ones cost calls
CACHED = 2**18  # entries of a tile with positions, for the same reason
LARGEST = 2**22  # the same with many positions: 32 MiB for each of a few arrays
LARGE = 2**25  # bytes of a result above which freed memory is returned before computing
ROWS = 2**14  # largest number of rows for a Hermite series, which keeps 64 KiB for each
SERIES = 512  # rows and columns of a tile of a Hermite series, which takes 0.2 s for ten layers
ARRAYS = 16  # of pairs, and as many of one side alone, that XLA holds at a time; measured 7 to 16
ROW = 2**16  # bytes of a Hermite series for each row and position, also measured


def evaluate(
    program: Program,
    with_ntk: bool,
    constants: Any,
    first: Samples,
    second: Samples,
    same: Bool[Array, "n1 n2"],
    alike: Any = False,
) -> KernelState:
    """Return the state after the last layer for all pairs; ``alike`` sets are equal."""
    constants = jax.tree.map(lambda c: jnp.asarray(c, first.side.q.dtype), constants)
    cut = at_pool(program)
    if cut is not None:
        return evaluate_planes(cut, with_ntk, constants, first, second, same, alike)
    state = state_of(first, second, same, wanted_of_data(program), with_ntk)
    return run(program, constants, state, Wanted())


@partial(jax.jit, static_argnums=(0, 1))
def kernels_at_once(program, with_ntk, constants, x1, x2, masks=(None, None)):
    """Return NNGP and NTK (or None), differentiable in inputs and constants; x2 may be None."""
    if x2 is not None and takes_whole_batches(program):
        # The second set comes first, so that its random draws are those that it has alone.
        second, both = len(x2), jnp.concatenate([x2, x1])
        if masks[0] is not None:
            masks = (jnp.concatenate([masks[1], masks[0]]), None)
        whole = kernels_at_once(program, with_ntk, constants, both, None, masks)
        return jax.tree.map(lambda k: k[second:, :second], whole)
    rows = jnp.arange(x1.shape[0])
    columns = -1 - jnp.arange(0 if x2 is None else x2.shape[0])
    same = rows[:, None] == (rows if x2 is None else columns)[None, :]

    def prepared(x, mask):
        samples = samples_of(x, mask, needs(program))
        return with_own_gaps(program, constants, samples, mask)

    first = prepared(x1, masks[0])
    second = first if x2 is None else prepared(x2, masks[1])
    final = evaluate(program, with_ntk, constants, first, second, same, x2 is None)
    return final.covariance, final.ntk


def kernels_by_tiles(program, with_ntk, dtype, tile, constants, x1, x2, masks=(None, None)):
    """Return NNGP and NTK (or None) in ``dtype``, tile by tile; of a symmetric one, a triangle.

    Tiles are computed in float64, but products of samples without positions in ``dtype``, and
    written in ascending order, so that overlapping tiles leave a symmetric result symmetric bit for
    bit. Interrupts are raised between two segments of tiles.
    """
    shape, symmetric = (len(x1), len(x1 if x2 is None else x2)), x2 is None
    entries = prod(shape) * prod(x1.shape[1:-1]) ** (2 if needs(program).pairs else 1)
    begun, filled = (f.quickly if entries <= SHORT else f for f in (_begin, _fill))
    corners, lengths = corners_of(*shape, tile, symmetric), tuple(min(tile, n) for n in shape)
    with interruptible():
        own_gaps = own_gaps_of_both(program, constants, x1, x2, masks, tile)
        sides, results = begun(program, with_ntk, dtype, x1, x2, masks, own_gaps)
        for begin, end in Pace().segments(0, len(corners)):
            results = filled(
                program, with_ntk, lengths, constants, sides, corners, begin, end, results
            )
            if begin == 0 and results[0].nbytes >= LARGE:
                give_back()  # memory freed by the compiler
            jax.block_until_ready(results)
    return results


@partial(Compiled, static_argnums=(0, 1, 2))
def _begin(program, with_ntk, dtype, x1, x2, masks, own_gaps):
    """Return both sets of samples, prepared, and empty results."""
    empty = jnp.zeros((len(x1), len(x1 if x2 is None else x2)), dtype)
    sides = sides_of(program, dtype, x1, x2, masks, own_gaps)
    return sides, (empty, jnp.copy(empty) if with_ntk else None)


@partial(Compiled, static_argnums=(0, 1, 2), donate_argnums=8)
def _fill(program, with_ntk, lengths, constants, sides, corners, begin, end, results):
    """Return results with some of their tiles filled in."""
    symmetric = sides[1] is None
    corners = jnp.asarray(corners)

    def fill(n, results):
        i, j = corners[n]
        found = tile_at(program, with_ntk, lengths, constants, sides, (i, j))
        return jax.tree.map(
            lambda whole, part: _write(whole, part.astype(whole.dtype), i, j, symmetric),
            results,
            found,
        )

    return lax.fori_loop(begin, end, fill, results)


def starts_of(n: int, tile: int) -> np.ndarray:
    """Return where tiles begin; the last may overlap the one before, for tiles of any size."""
    return np.minimum(np.arange(0, n, tile), max(n - tile, 0))


def corners_of(n1: int, n2: int, tile: int, symmetric: bool) -> np.ndarray:
    """Return the corners of tiles, (tile, 2); of a symmetric kernel those of one triangle."""
    return np.array(
        [
            (i, j)
            for row, i in enumerate(starts_of(n1, tile))
            for j in starts_of(n2, tile)[row if symmetric else 0 :]
        ]
    )


def own_gaps_of_both(program, constants, x1, x2, masks, tile):
    """Return the result of :func:`own_gaps_of` for each set of samples, for this tile size."""
    both = zip((x1, x2), masks, strict=True)
    return tuple(own_gaps_of(program, constants, *each, tile**2) for each in both)


def sides_of(program, dtype, x1, x2, masks, own_gaps):
    """Return both sets of samples, to cut tiles from; None for a second one equal to the first.

    Without positions, quantities of single samples are computed here, once for all tiles.
    """
    if x1.ndim > 2:
        both = zip((x1, x2), masks, own_gaps, strict=True)
        return tuple(None if side[0] is None else side for side in both)
    required, centre = wanted_of_data(program), centre_of(x1.astype(jnp.float64))
    return tuple(None if x is None else samples_about(x, centre, required, dtype) for x in (x1, x2))


def tile_at(program, with_ntk, lengths, constants, sides, corner):
    """Return NNGP and NTK (or None) of the tile that begins at a corner, in float64."""
    one, two = sides
    first = tile_of(program, one, corner[0], lengths[0])
    second = tile_of(program, one if two is None else two, corner[1], lengths[1])
    return kernels_of_tile(program, with_ntk, constants, first, second, corner, two is None)


def tile_of(program, side, start, length):
    """Return a range of a set of samples, in float64."""
    if isinstance(side, Samples):
        return cut(side, start, length)
    x, mask, own_gap = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, length), side)
    samples = samples_of(x.astype(jnp.float64), mask, needs(program))
    return samples._replace(own_gap=own_gap)


def kernels_of_tile(program, with_ntk, constants, first, second, corner, symmetric):
    """Return NNGP and NTK (or None) of two sets of samples that begin at a corner."""
    i, j = corner
    rows, columns = i + jnp.arange(first.number), j + jnp.arange(second.number)
    same = (rows[:, None] == columns[None, :]) & symmetric
    alike = (i == j) if symmetric else False
    final = evaluate(program, with_ntk, constants, first, second, same, alike)
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
    program: Program, rows: int, space: tuple[int, ...] = (), at_most: int | None = None
) -> int:
    """Return the size of tiles, which divides the rows evenly, at most that of a memory budget.

    Without positions, a tile's arrays fit into a core's cache. A Hermite series computes
    coefficients for every row, which takes as long as a hundred pairs: its tiles are larger, but
    limited, since a tile cannot be interrupted.
    """
    pairs = needs(program).pairs
    positions = prod(space)
    entries = positions ** (2 if pairs else 1)
    if at_pool(program) is not None:
        largest = largest_tile(space)
    elif not in_closed_form(program) and not pairs:
        largest = max(ROWS // positions, 1) if space else SERIES
    else:
        cached = isqrt(CACHED // entries) if space else TILE
        largest = max(cached, min(4, isqrt(LARGEST // entries)), 1)
    if at_most is not None:
        largest = min(largest, at_most)
    return ceil(rows / ceil(max(rows, 1) / largest)) if rows else 1


def fitting(program: Program, positions: int, memory_budget: float) -> int:
    """Return the largest t with (bytes of a pair)·t² + (bytes of a row)·t ≤ budget."""
    a, b = bytes_of(program, positions)
    if memory_budget < a + b:
        pairs = needs(program).pairs
        every = "every pair of positions" if pairs else "every position"
        raise InvalidInput(
            f"memory_budget: one pair of samples, with {every} of {positions}, needs about "
            f"{a + b:.2g} bytes, and the budget is {memory_budget:.2g}."
        )
    return max(int(((b**2 + 4 * a * memory_budget) ** 0.5 - b) / (2 * a)), 1)


def bytes_of(program: Program, positions: int) -> tuple[int, int]:
    """Return the approximate bytes for a pair of samples, and for a sample of each set."""
    pairs = needs(program).pairs
    known = (phi.closed_form for phi in activations_of(program))
    # Four arrays of a pair of values are kept until the last sum that they are a part of.
    kept = 4 * len(plan_of(program, Wanted()).wanted)
    arrays = ARRAYS + kept + max((form.arrays for form in known if form is not None), default=0)
    a = 8 * arrays * positions ** (2 if pairs else 1)
    return a, a + (0 if in_closed_form(program) else ROW * positions * (2 if pairs else 1))


def check_size(name: str, rows: int, columns: int, number: int, dtype: Any) -> None:
    """Check that ``number`` kernels of these samples fit into memory."""
    check_fits(
        float(number) * rows * columns * np.dtype(dtype).itemsize,
        f"{name}: {number} kernel{'s' * (number > 1)} of {rows} × {columns} samples",
        "Take fewer samples, lg.regression.large.stored_kernel, which computes kernels block by "
        "block to disk, or lg.regression.large.low_rank_posterior, which needs none of that size.",
    )


def check_at_once(
    name: str, program: Program, positions: int, rows: int, columns: int, layers: int = 1
) -> None:
    """Check beforehand that kernels computed without tiles fit into memory."""
    pair, sample = bytes_of(program, positions)
    arrays = pair + 16 * (layers - 1) * positions
    check_fits(
        float(arrays) * rows * columns + sample * (rows + columns),
        f"{name}: kernels of {rows} × {columns} samples at once",
        "Take fewer samples.",
    )


def most_positions(net: Layer, inputs: int | tuple[int, ...]) -> int:
    """Return the largest number of positions between two layers, for a shape of samples."""
    return program_of(net, inputs).most_positions


def takes_whole_batches(program: Program) -> bool:
    """Whether random draws are shared by all samples, so that kernels cannot be tiled."""
    return any(
        isinstance(each, Attend) and each.softmax and not each.concentrated
        for each in program.all_operations()
    )


def of_whole_batch(lowered, scale, x1, x2, dtype, with_ntk, masks, largest):
    """Return NNGP and NTK with random draws shared by all samples, at most ``largest`` samples."""
    samples = len(x1) + (0 if x2 is None else len(x2))
    if largest is not None and samples > largest:
        raise InvalidInput(
            f"memory_budget: attention of many heads takes all {samples} samples together, and "
            f"the budget is for {largest}; pass a larger one."
        )
    positions = prod(x1.shape[1:-1])
    check_at_once("x1", lowered.program, positions, samples, samples)
    x1, x2 = (None if x is None else x.astype(np.float64) for x in (x1, x2))
    found = kernels_at_once(lowered.program, with_ntk, lowered.constants, x1, x2, masks)
    if x2 is None:
        found = jax.tree.map(lambda k: (k + k.T) / 2, found)
    covariance, tangent = (None if k is None else k.astype(dtype) for k in found)
    return covariance * scale, tangent


def in_closed_form(program: Program) -> bool:
    """Whether all activations have closed-form expectations."""
    return all(phi.closed_form is not None for phi in activations_of(program))
