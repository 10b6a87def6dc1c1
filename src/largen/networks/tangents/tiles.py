"""Kernels of many samples, tile by tile: what is held does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import is_traced
from largen.interrupts import check
from largen.networks.tangents.factors import Plan, compiled_kernel_of, factors, kernel_of, plan_of
from largen.networks.tangents.products import NUMBERS_AT_ONCE

FEW_NUMBERS = 2**22  # products of fewer take NumPy less time than JAX takes to compile them


def kernel_in_tiles(f: Any, params: Any, rates: Any, x1: Any, x2: Any, *, factored: bool) -> Any:
    """Return the kernel, (n1[, output], n2[, output]), of samples that are not coupled.

    Interrupts are possible between tiles. Factors of columns are kept if they fit, and else
    computed again for each row of tiles. ``factored``: whether to use affine maps, as in
    :func:`plan_of`.
    """
    dtype = jnp.result_type(x1)
    scales = [
        rate.astype(dtype) if rate.size == 1 else jnp.broadcast_to(rate, leaf.shape).astype(dtype)
        for rate, leaf in zip(jax.tree.leaves(rates), jax.tree.leaves(params), strict=True)
    ]
    by_entry = frozenset(i for i, rate in enumerate(scales) if rate.size > 1)
    other = x1 if x2 is None else x2
    plan = plan_of(f, params, x1, (len(x1), len(other)), factored=factored, by_entry=by_entry)

    def of(samples):
        return factors(f, plan.arrays, params, samples)

    out = jax.eval_shape(f, params, x1)
    if not is_traced(params, rates, x1, x2) and max(len(x1), len(other)) > _side(plan):
        kernel = _by_tiles(plan, scales, of, x1, x2, out.dtype)
    else:
        one = of(x1)
        two = one if x2 is None else of(x2)
        few = len(x1) * len(other) * plan.per_pair <= FEW_NUMBERS
        if few and not is_traced(scales, one, two):
            scales, one, two = jax.tree.map(np.asarray, (scales, one, two))
            kernel = kernel_of(plan.arrays, scales, one, two, np)
        else:
            kernel = compiled_kernel_of(plan.arrays, scales, one, two)
    return kernel.reshape((len(x1), *out.shape[1:], len(other), *out.shape[1:]))


def _by_tiles(
    plan: Plan, scales: Any, of: Callable[[Any], Any], x1: Any, x2: Any, dtype: Any
) -> np.ndarray:
    """Return the kernel (n1, output, n2, output) from the factors of a tile's rows and columns."""
    other = x1 if x2 is None else x2
    rows, columns = _tiles(x1, _side(plan)), _tiles(other, _side(plan))
    keep = len(other) * plan.factors <= NUMBERS_AT_ONCE
    kept: dict[int, Any] = {}
    kernel = np.empty((len(x1), plan.outputs, len(other), plan.outputs), dtype)
    for i, mine in rows:
        one = kept[i] if x2 is None and i in kept else of(mine)
        for j, its in columns:
            if x2 is None and j < i:
                continue  # the kernel is symmetric
            if x2 is None and j == i:
                two = one
            else:
                two = kept[j] if j in kept else of(its)
            if keep:
                kept[j] = two
            tile = np.asarray(compiled_kernel_of(plan.arrays, scales, one, two))
            check()
            there = kernel[i : i + len(mine), :, j : j + len(its)]
            there[...] = tile[: there.shape[0], :, : there.shape[2]]
            if x2 is None and j > i:
                back = kernel[j : j + len(its), :, i : i + len(mine)]
                back[...] = there.transpose(2, 3, 0, 1)
    return kernel


def _side(plan: Plan) -> int:
    """Return how many samples there are along a side of a tile."""
    a, b = max(plan.per_pair, 1), 2 * plan.per_sample
    return max(int(((b * b + 4.0 * a * NUMBERS_AT_ONCE) ** 0.5 - b) / (2 * a)), 1)


def _tiles(x, side: int) -> list[tuple[int, Any]]:
    """Return where tiles begin, and their samples; the last tile is filled up."""
    count = min(side, len(x))
    starts = range(0, len(x), count)
    return [(i, x[np.minimum(np.arange(i, i + count), len(x) - 1)]) for i in starts]
