"""Core operations over windows and between resolutions: pooling, upsampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


class _Windows:
    """The windows of a pooling along the last axes."""

    def __init__(
        self, x: Any, sizes: Sequence[int], strides: Sequence[int], padding: Sequence[int],
        dilation: Sequence[int], ceil: bool, space: int,
    ):  # fmt: skip
        def each(given: Sequence[int]) -> list[int]:
            return [*given] * (space // len(given))

        first = x.ndim - space
        self.sizes, self.dilation = each(sizes), each(dilation)
        self.strides, pads = each(strides or sizes), each(padding)
        self.padding = pads
        self.ends = [(0, 0)] * first
        for n, size, stride, pad, dilated in zip(
            x.shape[first:], self.sizes, self.strides, pads, self.dilation, strict=True
        ):
            left = n + 2 * pad - dilated * (size - 1) - 1
            # The last window begins inside the array or its padding on the left.
            count = left // stride + 1
            if ceil and left % stride and count * stride < n + pad:
                count += 1
            more = max((count - 1) * stride - left, 0)
            self.ends.append((pad, pad + more))
        self.ones = [1] * first

    def reduced(self, x: Any, start: Any, function: Any) -> Any:
        whole = (*self.ones, *self.sizes), (*self.ones, *self.strides)
        dilation = (*self.ones, *self.dilation)
        return lax.reduce_window(x, start, function, *whole, self.ends, window_dilation=dilation)


def _max_pool(space: int) -> Callable[..., Any]:
    def form(x: Any, sizes: Any, strides: Any = (), padding: Any = (0,), dilation: Any = (1,),
             ceil_mode: bool = False) -> Any:  # fmt: skip
        windows = _Windows(x, sizes, strides, padding, dilation, ceil_mode, space)
        return windows.reduced(x, -jnp.inf, lax.max), None

    return form


def _avg_pool(space: int) -> Callable[..., Any]:
    def form(x: Any, sizes: Any, strides: Any = (), padding: Any = (0,), ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> Any:  # fmt: skip
        windows = _Windows(x, sizes, strides, padding, (1,), ceil_mode, space)
        total = windows.reduced(x, 0.0, lax.add)
        if divisor_override is not None:
            return total / divisor_override
        inside = np.ones(x.shape[-space:])
        if count_include_pad:  # but not what ceil_mode adds on the right
            inside = np.pad(inside, [(p, p) for p in windows.padding], constant_values=1.0)
            windows.ends = [(0, b - a) for a, b in windows.ends]
        windows.ends, windows.ones = windows.ends[-space:], []
        return total / windows.reduced(jnp.asarray(inside, x.dtype), 0.0, lax.add)

    return form


def _bounds(before: int, after: int) -> list[tuple[int, int]]:
    """Return the ends of the windows of an adaptive pooling."""
    return [(i * before // after, -(-(i + 1) * before // after)) for i in range(after)]


def _adaptive_avg_pool(x: Any, sizes: Sequence[int]) -> Any:
    for axis, after in zip(range(-len(sizes), 0), sizes, strict=True):
        means = np.zeros((after, x.shape[axis]))
        for row, (start, end) in zip(means, _bounds(x.shape[axis], after), strict=True):
            row[start:end] = 1 / (end - start)
        x = _mixed(x, means, axis)
    return x


def _adaptive_max_pool(x: Any, sizes: Sequence[int]) -> Any:
    for axis, after in zip(range(-len(sizes), 0), sizes, strict=True):
        bounds = _bounds(x.shape[axis], after)
        parts = [lax.slice_in_dim(x, a, b, axis=x.ndim + axis).max(axis) for a, b in bounds]
        x = jnp.stack(parts, axis)
    return x, None


def _mixed(x: Any, matrix: np.ndarray, axis: int) -> Any:
    """Multiply an axis by a matrix."""
    weights = jnp.asarray(matrix, x.dtype)
    mixed = jnp.tensordot(x, weights, ((axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(mixed, -1, axis)


def _linear(before: int, after: int, corners: bool, scale: Any) -> np.ndarray:
    """Return the weights of linear interpolation along an axis."""
    places = np.arange(after)
    if corners:
        at = places * ((before - 1) / (after - 1) if after > 1 else 0.0)
    else:
        ratio = before / after if not scale else 1 / scale
        at = np.maximum((places + 0.5) * ratio - 0.5, 0)
    low = np.minimum(at.astype(int), before - 1)
    high = np.minimum(low + 1, before - 1)
    found = np.zeros((after, before))
    np.add.at(found, (places, low), 1 - (at - low))
    np.add.at(found, (places, high), at - low)
    return found


def _upsample(x: Any, sizes: Sequence[int], corners: bool, *scales: Any) -> Any:
    scales = scales or (None,) * len(sizes)
    for axis, after, scale in zip(range(-len(sizes), 0), sizes, scales, strict=True):
        x = _mixed(x, _linear(x.shape[axis], after, corners, scale), axis)
    return x


FORMS = {
    "_adaptive_avg_pool2d": _adaptive_avg_pool, "_adaptive_avg_pool3d": _adaptive_avg_pool,
    "adaptive_max_pool2d": _adaptive_max_pool, "adaptive_max_pool3d": _adaptive_max_pool,
    "avg_pool1d": _avg_pool(1), "avg_pool2d": _avg_pool(2), "avg_pool3d": _avg_pool(3),
    "max_pool2d_with_indices": _max_pool(2), "max_pool3d_with_indices": _max_pool(3),
    "upsample_bilinear2d": _upsample, "upsample_linear1d": _upsample,
    "upsample_trilinear3d": _upsample,
}  # fmt: skip
