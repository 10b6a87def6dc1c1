"""Windows that slide over samples (sample, *space, channel): padding, patches, convolution."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax.numpy as jnp
from jax import lax

from largen.architectures import ConvTranspose
from largen.architectures.windows import Windowed, dilation_of
from largen.programs.windows import Axis, transposed_axis, window_axis

# Accelerators would otherwise round the factors of float32 products to ten bits.
EXACT = lax.Precision.HIGHEST


def pad_windows(layer: Windowed, x: Any, outside: float = 0.0) -> Any:
    """Return padded samples, so that all windows lie inside."""
    geometry = layer.window, layer.strides, dilation_of(layer), layer.geometry.paddings()
    axes = [window_axis(*axis) for axis in zip(x.shape[1:-1], *geometry, strict=True)]
    return _pad(x, axes, layer.padding == "CIRCULAR", outside)


def spread(layer: ConvTranspose, x: Any) -> Any:
    """Return samples with zeros between their positions and the layer's padding around them."""
    circular = layer.padding == "CIRCULAR"
    axes = [
        transposed_axis(*lengths, layer.padding)
        for lengths in zip(x.shape[1:-1], layer.window, layer.strides, layer.dilation, strict=True)
    ]
    between = [(0, (stride - 1) * circular, stride - 1) for stride in layer.strides]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *between, (0, 0, 0)])
    return _pad(x, axes, circular, 0.0)


def windows(x: Any, window: tuple[int, ...], strides: tuple[int, ...], dilation: Any) -> Any:
    """Return the patch of each window, (sample, *space, position in the window, channel)."""
    seen = []
    for offset in product(*map(range, window)):
        start = [d * k for d, k in zip(dilation, offset, strict=True)]
        # The last window that still fits ends where the axis does.
        stop = [
            size - d * (w - 1 - k)
            for size, d, w, k in zip(x.shape[1:-1], dilation, window, offset, strict=True)
        ]
        seen.append(lax.slice(x, (0, *start, 0), (len(x), *stop, x.shape[-1]), (1, *strides, 1)))
    return jnp.stack(seen, axis=-2)


def convolve(
    x: Any, weight: Any, strides: tuple[int, ...], dilation: tuple[int, ...], groups: int = 1
) -> Any:
    """Return Σ_k W_k x_{s·p + d·k} of padded samples, W of shape (*window, fan_in, fan_out)."""
    dtype = jnp.promote_types(x.dtype, weight.dtype)  # which XLA's convolution wants to be one
    space = "".join(chr(ord("a") + axis) for axis in range(len(strides)))
    return lax.conv_general_dilated(
        x.astype(dtype),
        weight.astype(dtype),
        window_strides=strides,
        padding="VALID",
        rhs_dilation=dilation,
        dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
        feature_group_count=groups,
        precision=EXACT,
    )


def _pad(x: Any, axes: list[Axis], circular: bool, outside: float) -> Any:
    widths = [(axis.before, axis.after) for axis in axes]
    if circular:
        return jnp.pad(x, [(0, 0), *widths, (0, 0)], mode="wrap")
    # A stride beyond the end leaves unused positions: a negative padding cuts them off.
    value = jnp.asarray(outside, x.dtype)
    return lax.pad(x, value, [(0, 0, 0), *((*width, 0) for width in widths), (0, 0, 0)])
