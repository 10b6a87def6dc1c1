"""Core operations that take entries at places, or put them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x[_places(indices)]


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    at = x.at[_places(indices)]
    return at.add(values) if accumulate else at.set(values)


def _along(dim: int, index: Any) -> tuple[Any, ...]:
    """Return indices of entries, of which those along an axis are given."""
    grids = list(jnp.indices(index.shape, sparse=True))
    grids[dim % index.ndim] = index
    return tuple(grids)


def _gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    return x[_along(dim, index)]


def _scatter(x: Any, dim: int, index: Any, value: Any, *, reduce: str | None = None) -> Any:
    if jnp.ndim(value):
        value = value[tuple(slice(n) for n in index.shape)]
    at = x.at[_along(dim, index)]
    match reduce:
        case None:
            return at.set(value)
        case "add" | "sum":
            return at.add(value)
    return at.multiply(value)


def _scatter_add(x: Any, dim: int, index: Any, value: Any) -> Any:
    return _scatter(x, dim, index, value, reduce="sum")


def _scatter_reduce(
    x: Any, dim: int, index: Any, value: Any, reduce: str, *, include_self: bool = True
) -> Any:
    places, value = _along(dim, index), value[tuple(slice(n) for n in index.shape)]
    neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
    if not include_self:
        x = x.at[places].set(neutral)
    at = x.at[places]
    match reduce:
        case "amax":
            return at.max(value)
        case "amin":
            return at.min(value)
        case "prod":
            return at.multiply(value)
        case "sum":
            return at.add(value)
    count = jnp.full(x.shape, float(include_self)).at[places].add(1.0)
    return at.add(value) / jnp.maximum(count, 1)


def _rows(dim: int, index: Any, rank: int) -> tuple[Any, ...]:
    return (slice(None),) * (dim % rank) + (index,)


def _index_add(x: Any, dim: int, index: Any, value: Any, *, alpha: Any = 1) -> Any:
    return x.at[_rows(dim, index, x.ndim)].add(alpha * value)


def _index_copy(x: Any, dim: int, index: Any, value: Any) -> Any:
    return x.at[_rows(dim, index, x.ndim)].set(value)


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return x.at[_rows(dim, index, x.ndim)].set(value)


def _embedding(table: Any, ids: Any, padding: int = -1, *options: Any, **others: Any) -> Any:
    """Rows of a table; that of padding is not trained."""
    rows = table[ids]
    if padding < 0:
        return rows
    return jnp.where((ids == padding)[..., None], jax.lax.stop_gradient(rows), rows)


def _embedding_bag(
    table: Any, ids: Any, offsets: Any, scale_grad: bool = False, mode: int = 0,
    sparse: bool = False, weights: Any = None, include_last_offset: bool = False,
    padding: int = -1,
) -> Any:  # fmt: skip
    """Sums, means or maxima of rows, of bags that begin at offsets."""
    bags = len(offsets) - include_last_offset
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(len(ids)), side="right") - 1
    counted = (ids != padding)[:, None]
    rows = table[ids] if weights is None else table[ids] * weights[:, None]
    count = jax.ops.segment_sum(counted.astype(int), bag, bags)
    if mode == 2:
        top = jax.ops.segment_max(jnp.where(counted, rows, -jnp.inf), bag, bags)
        found = jnp.where(count > 0, top, 0)
    else:
        found = jax.ops.segment_sum(jnp.where(counted, rows, 0), bag, bags)
        found = found / jnp.maximum(count, 1) if mode == 1 else found
    return found, bag, count[:, 0], None


def _nonzero(x: Any) -> Any:
    return jnp.stack(jnp.nonzero(x), -1)


FORMS = {
    "_embedding_bag": _embedding_bag, "_embedding_bag_forward_only": _embedding_bag,
    "_unsafe_index": _index, "_unsafe_index_put": _index_put, "embedding": _embedding,
    "gather": _gather, "index": _index, "index_add": _index_add, "index_copy": _index_copy,
    "index_fill": _index_fill, "index_put": _index_put,
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim), "nonzero": _nonzero,
    "scatter": _scatter, "scatter_add": _scatter_add, "scatter_reduce": _scatter_reduce,
    "take_along_dim": lambda x, index, dim: jnp.take_along_axis(x, index, dim),
}  # fmt: skip
