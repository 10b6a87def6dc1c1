"""Core operations that arrange, cut, copy and join entries, and what memory does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def _cut(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _select(x: Any, dim: int, index: int) -> Any:
    return jnp.take(x, index % x.shape[dim], axis=dim)


def _split(x: Any, size: int, dim: int = 0) -> list[Any]:
    return jnp.split(x, list(range(size, x.shape[dim], size)), dim)


def _split_with_sizes(x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    return jnp.split(x, np.cumsum(sizes)[:-1].tolist(), dim)


def _unbind(x: Any, dim: int = 0) -> list[Any]:
    return [_select(x, dim, n) for n in range(x.shape[dim])]


def _view(x: Any, shape: Sequence[int]) -> Any:
    return jnp.reshape(x, tuple(shape))


def _expand(x: Any, shape: Sequence[int], *, implicit: bool = False) -> Any:
    new = len(shape) - x.ndim
    sizes = [x.shape[i - new] if n == -1 else n for i, n in enumerate(shape)]
    return jnp.broadcast_to(x, tuple(sizes))


def _squeeze(x: Any, dim: Any = None) -> Any:
    if dim is None:
        return jnp.squeeze(x)
    dims = [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple(d for d in dims if x.ndim and x.shape[d] == 1))


def _repeat(x: Any, times: Sequence[int]) -> Any:
    return jnp.tile(x, tuple(times))


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    return jnp.roll(x, tuple(shifts), tuple(dims) or None) if dims else _roll_flat(x, shifts)


def _roll_flat(x: Any, shifts: Any) -> Any:
    return jnp.roll(x.reshape(-1), shifts[0]).reshape(x.shape)


def _unfold(x: Any, dim: int, size: int, step: int) -> Any:
    """Windows along an axis, whose entries are a new last axis."""
    dim = dim % x.ndim
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis=dim)
    return jnp.moveaxis(windows, dim + 1, -1)


def _as_strided(x: Any, shape: Any, strides: Any, offset: Any = None) -> Any:
    grids = np.indices(tuple(shape)).reshape(len(shape), -1)
    places = (offset or 0) + np.dot(np.asarray(strides), grids) if len(shape) else [offset or 0]
    return x.reshape(-1)[np.asarray(places, int)].reshape(tuple(shape))


def _padded(x: Any, pads: Sequence[int], value: Any = 0) -> Any:
    ends = [(0, 0)] * (x.ndim - len(pads) // 2)
    ends += [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    low_high_inside = [(low, high, 0) for low, high in ends]
    return lax.pad(x, jnp.asarray(value or 0, x.dtype), low_high_inside)


def _padded_by(mode: str) -> Any:
    def form(x: Any, pads: Sequence[int]) -> Any:
        ends = [(0, 0)] * (x.ndim - len(pads) // 2)
        ends += [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
        return jnp.pad(x, ends, mode=mode)

    return form


def _pixel_shuffle(x: Any, factor: int) -> Any:
    *first, channels, height, width = x.shape
    x = x.reshape(*first, channels // factor**2, factor, factor, height, width)
    n = len(first)
    x = jnp.transpose(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return x.reshape(*first, -1, height * factor, width * factor)


def _pixel_unshuffle(x: Any, factor: int) -> Any:
    *first, channels, height, width = x.shape
    x = x.reshape(*first, channels, height // factor, factor, width // factor, factor)
    n = len(first)
    x = jnp.transpose(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return x.reshape(*first, -1, height // factor, width // factor)


def _to_copy(x: Any, *, dtype: Any = None) -> Any:
    return x if dtype is None else _converted(x, dtype)


def _converted(x: Any, dtype: Any) -> Any:
    """Convert between kinds of numbers; real numbers keep the precision that weights have."""
    both_real = jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.floating)
    halves = (jnp.float16, jnp.bfloat16)
    if both_real and dtype not in halves and x.dtype not in halves:
        return x
    if jnp.issubdtype(dtype, jnp.integer) and jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.trunc(x)
    return lax.convert_element_type(x, dtype)


def _to(x: Any, shape: Any, dtype: Any) -> Any:
    """What is copied into memory."""
    return jnp.broadcast_to(_converted(x, dtype), shape)


def _read(base: Any, places: Any) -> Any:
    """Entries of memory."""
    return base.reshape(-1)[places]


def _written(base: Any, places: Any, value: Any) -> Any:
    """Memory with new entries at places."""
    return base.reshape(-1).at[places].set(value).reshape(base.shape)


def _slice_scatter(
    x: Any, y: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)].set(y)


def _select_scatter(x: Any, y: Any, dim: int, index: int) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(y)


FORMS = {
    "_reshape_alias": lambda x, shape, strides: _view(x, shape), "_to_copy": _to_copy,
    "_unsafe_view": _view, "alias": lambda x: x, "as_strided": _as_strided,
    "cat": lambda parts, dim=0: jnp.concatenate([p for p in parts if p.shape != (0,)], dim),
    "clone": lambda x: x, "constant_pad_nd": _padded, "detach": lambda x: x,
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
    "expand": _expand, "fill": lambda x, value: jnp.broadcast_to(value, x.shape),
    "flip": lambda x, dims: jnp.flip(x, tuple(dims)), "lift_fresh": lambda x: x,
    "permute": lambda x, dims: jnp.transpose(x, tuple(d % x.ndim for d in dims)),
    "pixel_shuffle": _pixel_shuffle, "pixel_unshuffle": _pixel_unshuffle, "read": _read,
    "reflection_pad1d": _padded_by("reflect"), "reflection_pad2d": _padded_by("reflect"),
    "reflection_pad3d": _padded_by("reflect"), "repeat": _repeat,
    "replication_pad1d": _padded_by("edge"), "replication_pad2d": _padded_by("edge"),
    "replication_pad3d": _padded_by("edge"), "roll": _roll, "select": _select,
    "select_scatter": _select_scatter, "slice": _cut, "slice_scatter": _slice_scatter,
    "split": _split, "split_with_sizes": _split_with_sizes, "squeeze": _squeeze,
    "stack": lambda parts, dim=0: jnp.stack(parts, dim), "t": lambda x: x.T, "to": _to,
    "transpose": lambda x, one, two: jnp.swapaxes(x, one, two),
    "tril": lambda x, k=0: jnp.tril(x, k), "triu": lambda x, k=0: jnp.triu(x, k),
    "unbind": _unbind, "unfold": _unfold, "unsafe_split": _split,
    "unsafe_split_with_sizes": _split_with_sizes,
    "unsqueeze": lambda x, dim: jnp.expand_dims(x, dim), "view": _view, "written": _written,
    "zero": jnp.zeros_like,
}  # fmt: skip
