"""Windows that slide along spatial axes.

An axis is first extended by the padding, then summed over windows. Empty extended positions (zeros
outside of a sample, or between the positions of a transposed convolution) have variance 0, so that
the gap between an empty and another position is half the variance of the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

Padding = str | tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Window:
    """The geometry of taps: output o sums the padded input at stride·o + dilation·k over k.

    Attributes
    ----------
    lengths, strides, dilation
        One number for each spatial axis.
    padding
        ``"SAME"``, ``"VALID"`` or ``"CIRCULAR"``, or the numbers of empty positions before and
        behind each axis.
    transposed
        Whether ``strides − 1`` empty positions are inserted between those of the input, and the
        window moves by one.
    weights
        For each axis the factors of its taps, which multiply the variances of an affine map's
        weights; None for 1 everywhere.
    """

    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Padding = "SAME"
    transposed: bool = False
    weights: tuple[tuple[float, ...], ...] | None = None

    @property
    def size(self) -> int:
        """The number of taps."""
        return prod(self.lengths)

    @property
    def moves(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Strides and dilation of the window along the padded axes."""
        return (1,) * len(self.lengths) if self.transposed else self.strides, self.dilation

    @property
    def around_each(self) -> bool:
        """Whether there is one window around each position."""
        padded = self.padding in ("SAME", "CIRCULAR") or self.size == 1
        return set(self.strides) == {1} and padded and not self.transposed

    def of_taps(self) -> np.ndarray:
        """Return the factors of all taps, (*lengths)."""
        axes = self.weights or tuple((1.0,) * length for length in self.lengths)
        return reduce(np.multiply.outer, map(np.asarray, axes))

    def paddings(self) -> tuple[Any, ...]:
        """Return the padding of each axis: a name, or two numbers of empty positions."""
        if isinstance(self.padding, str):
            return (self.padding,) * len(self.lengths)
        return self.padding


@dataclass(frozen=True)
class Axis:
    """A window sliding along one axis: output o reads the padded input at stride·o + dilation·k."""

    # before, after: the numbers of positions that are added at the two ends.
    before: int
    after: int
    positions: int


def window_axis(length: int, window: int, stride: int, dilation: int, padding: Any) -> Axis:
    """Return the positions of a window along an axis; none for one that is too long.

    ``padding`` is a name, or the numbers of empty positions before and behind the axis.
    """
    reach = dilation * (window - 1) + 1
    if padding == "VALID":
        padding = (0, 0)
    if not isinstance(padding, str):
        before, after = padding
        return Axis(before, after, max(0, (length + before + after - reach) // stride + 1))
    positions = -(-length // stride)
    missing = max(0, (positions - 1) * stride + reach - length)
    return Axis(missing // 2, missing - missing // 2, positions)


def transposed_axis(length: int, window: int, stride: int, dilation: int, padding: str) -> Axis:
    """Return padding and outputs along an axis with zeros inserted between its positions.

    The spread axis has (length − 1)·stride + 1 positions; with ``CIRCULAR`` it has
    length·stride, one whole period. The window then moves by one.
    """
    reach = dilation * (window - 1) + 1
    if padding == "VALID":
        missing = stride + reach - 2 + max(reach - stride, 0)
        return Axis(reach - 1, missing - (reach - 1), (length - 1) * stride + max(reach, stride))
    missing = stride + reach - 2
    before = reach - 1 if stride > reach - 1 else -(-missing // 2)
    after = reach - 1 - before if padding == "CIRCULAR" else missing - before
    return Axis(before, after, length * stride)


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
    weights
        The factor of each k, None for 1.
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
    weights: tuple[float, ...] | None = None

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
        """Return the weighted sum over the window, with the same offset on each of the axes."""
        total = None
        for k in range(self.window):
            part = extended
            for axis in axes:
                part = self.offset(part, k, axis)
            part = self.weighted(part, k)
            total = part if total is None else total + part
        return total

    def offset(self, extended: Any, k: int, axis: int) -> Any:
        """Return the entries at the k-th offset of the window, for each of its positions."""
        start = self.dilation * k
        stop = start + self.stride * (self.positions - 1) + 1
        return extended[(slice(None),) * axis + (slice(start, stop, self.stride),)]

    def weighted(self, part: Any, k: int) -> Any:
        """Return an array times the factor of the k-th offset."""
        return part if self.weights is None else self.weights[k] * part

    def counts(self) -> np.ndarray:
        """Return the number of non-empty positions in each window, (positions,)."""
        seen = [self.offset(self.present, k, 0) for k in range(self.window)]
        return np.sum(seen, axis=0)

    @staticmethod
    def along(values: Any, axis: int, ndim: int) -> Any:
        """Return values along one axis of an array of ``ndim`` axes."""
        return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def slides(window: Window, space: tuple[int, ...]) -> tuple[Slide, ...]:
    """Return how a window slides along each spatial axis."""
    geometry = window.lengths, window.strides, window.dilation, window.paddings()
    axes = zip(space, *geometry, window.weights or (None,) * len(space), strict=True)
    return tuple(_slide(*axis, transposed=window.transposed) for axis in axes)


def _slide(
    length: int,
    window: int,
    stride: int,
    dilation: int,
    padding: Any,
    weights: tuple[float, ...] | None,
    *,
    transposed: bool,
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
    # Of 32 bits in both precisions: JAX mistakes a gather compiled in one for that of the other.
    around = np.where(present, source, 0).astype(np.int32) if padding == "CIRCULAR" else None
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
        weights,
    )
