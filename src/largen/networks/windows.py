"""Windows that slide over samples (sample, *space, channel): padding, patches, convolution."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.programs.windows import Window, transposed_axis, window_axis

# Accelerators would otherwise round the factors of float32 products to ten bits.
EXACT = lax.Precision.HIGHEST


def padded(window: Window, x: Any, outside: float = 0.0) -> Any:
    """Return samples with all empty positions around and between theirs, as windows see them."""
    find = transposed_axis if window.transposed else window_axis
    geometry = window.lengths, window.strides, window.dilation, window.paddings()
    axes = [find(*axis) for axis in zip(x.shape[1:-1], *geometry, strict=True)]
    between = [stride - 1 if window.transposed else 0 for stride in window.strides]
    value = jnp.asarray(outside, x.dtype)
    if window.padding != "CIRCULAR":
        pads = [(axis.before, axis.after, n) for axis, n in zip(axes, between, strict=True)]
        return lax.pad(x, value, [(0, 0, 0), *pads, (0, 0, 0)])
    if window.transposed:
        x = lax.pad(x, value, [(0, 0, 0), *((0, n, n) for n in between), (0, 0, 0)])
    return jnp.pad(x, [(0, 0), *((axis.before, axis.after) for axis in axes), (0, 0)], mode="wrap")


def patches(window: Window, x: Any) -> Any:
    """Return patches, (sample, *space, position in the window, channel), times the taps' σ."""
    x, (strides, dilation) = padded(window, x), window.moves
    seen = []
    for offset in product(*map(range, window.lengths)):
        start = [d * k for d, k in zip(dilation, offset, strict=True)]
        # The last window that still fits ends where the axis does.
        stop = [
            size - d * (w - 1 - k)
            for size, d, w, k in zip(x.shape[1:-1], dilation, window.lengths, offset, strict=True)
        ]
        seen.append(lax.slice(x, (0, *start, 0), (len(x), *stop, x.shape[-1]), (1, *strides, 1)))
    if window.weights is None:
        return jnp.stack(seen, axis=-2)
    return jnp.stack(seen, axis=-2) * roots(window, x.dtype).reshape(-1, 1)


def roots(window: Window, dtype: Any) -> np.ndarray:
    """Return the square roots of the factors of taps, (*lengths)."""
    return np.sqrt(window.of_taps()).astype(dtype)


def convolve(window: Window, x: Any, weight: Any, groups: int = 1) -> Any:
    """Return Σ_k √w_k W_k x_{s·p + d·k}, W of shape (*window, channels in a group, fan_out)."""
    dtype = jnp.promote_types(x.dtype, weight.dtype)  # XLA's convolution takes a single dtype
    space = "".join(chr(ord("a") + axis) for axis in range(len(window.lengths)))
    strides, dilation = window.moves
    if window.weights is not None:
        weight = roots(window, weight.dtype)[..., None, None] * weight
    return lax.conv_general_dilated(
        padded(window, x).astype(dtype),
        weight.astype(dtype),
        window_strides=strides,
        padding="VALID",
        rhs_dilation=dilation,
        dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
        feature_group_count=groups,
        precision=EXACT,
    )
