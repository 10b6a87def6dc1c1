"""Windows that slide along the spatial axes of kernels.

An axis is first extended by the padding, then summed over windows. Empty extended positions (zeros
outside of a sample, or between the positions of a transposed convolution) have variance 0, so that
the gap between an empty and another position is half the variance of the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.architectures import ConvTranspose
from largen.architectures.signals import transposed_axis, window_axis
from largen.architectures.windows import Windowed, dilation_of


@dataclass(frozen=True)
class Slide:
    """The geometry of a window that slides along one axis.

    Attributes
    ----------
    before, between, length
        Numbers of empty positions before the axis and between its positions, and length of the
        extended axis.
    source
        For periodic axes, the original position that each extended one repeats; otherwise None.
    present
        Which extended positions are not empty, (length,).
    window, stride, dilation, positions
        Output o sums the positions stride·o + dilation·k over k < window, for o < positions.
    """

    before: int
    between: int
    length: int
    source: np.ndarray | None
    present: np.ndarray
    window: int
    stride: int
    dilation: int
    positions: int

    def extended(self, array: Any, axis: int) -> Any:
        """Return an array with this axis extended, with zeros at empty positions."""
        if self.source is not None:
            taken = jnp.take(array, self.source, axis=axis)
            if self.present.all():
                return taken
            return jnp.where(self.along(self.present, axis, array.ndim), taken, 0)
        after = self.length - self.before - (array.shape[axis] - 1) * (self.between + 1) - 1
        widths = [(0, 0, 0)] * array.ndim
        widths[axis] = (self.before, after, self.between)
        return lax.pad(array, jnp.zeros((), array.dtype), widths)

    def summed(self, extended: Any, *axes: int) -> Any:
        """Return the sum over the window, with the same offset on each of the axes."""
        total = None
        for k in range(self.window):
            part = extended
            for axis in axes:
                part = self.offset(part, k, axis)
            total = part if total is None else total + part
        return total

    def offset(self, extended: Any, k: int, axis: int) -> Any:
        """Return the entries at the k-th offset of the window, for each of its positions."""
        start = self.dilation * k
        stop = start + self.stride * (self.positions - 1) + 1
        return extended[(slice(None),) * axis + (slice(start, stop, self.stride),)]

    def counts(self) -> np.ndarray:
        """Return the number of non-empty positions in each window, (positions,)."""
        seen = [self.offset(self.present, k, 0) for k in range(self.window)]
        return np.sum(seen, axis=0)

    @staticmethod
    def along(values: Any, axis: int, ndim: int) -> Any:
        """Return values along one axis of an array of ``ndim`` axes."""
        return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def slides(layer: Windowed, space: tuple[int, ...]) -> tuple[Slide, ...]:
    """Return how the window of a layer slides along each spatial axis."""
    axes = zip(space, layer.window, layer.strides, dilation_of(layer), strict=True)
    transposed = isinstance(layer, ConvTranspose)
    return tuple(_slide(*axis, layer.padding, transposed) for axis in axes)


def _slide(
    length: int, window: int, stride: int, dilation: int, padding: str, transposed: bool
) -> Slide:
    find = transposed_axis if transposed else window_axis
    axis = find(length, window, stride, dilation, padding)
    between, step = (stride - 1, 1) if transposed else (0, stride)
    extended = step * (axis.positions - 1) + dilation * (window - 1) + 1
    place = np.arange(extended) - axis.before
    if padding == "CIRCULAR":
        place = place % (length * (between + 1))
    source, rest = np.divmod(place, between + 1)
    present = (rest == 0) & (source >= 0) & (source < length)
    around = np.where(present, source, 0) if padding == "CIRCULAR" else None
    return Slide(
        axis.before,
        between,
        extended,
        around,
        present,
        window,
        step,
        dilation,
        axis.positions,
    )
