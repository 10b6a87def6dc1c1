"""How the axes of a sample change on the way through a network.

Samples are arrays (*space, channels). What a layer does to the spatial axes, and how many
features it leaves for each unit of width, is the same in every reading of the network, so the
layer says it itself: :meth:`largen.architectures.Layer.signal_behind`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Signal:
    """The shape of the signal between two layers.

    Attributes
    ----------
    space
        Lengths of the spatial axes, () without any; None if they are not known.
    copies
        The number of features at each position, per channel of the data or per unit of width: the
        width ratio of the affine map before, multiplied by :class:`Flatten` and
        :class:`Concatenate`.
    from_data
        Whether the features are those of the data, before any weights.
    sample
        The shape of the data's samples before the first layer; None behind a layer.
    """

    space: tuple[int, ...] | None
    copies: int | Fraction = 1
    from_data: bool = True
    sample: tuple[int, ...] | None = field(default=None, compare=False)


def signal_of(inputs: int | tuple[int, ...] | None) -> Signal:
    """Return the signal that enters a network: D numbers, (*space, channels), or unknown."""
    if inputs is None:
        return Signal(None)
    sample = inputs if isinstance(inputs, tuple) else (inputs,)
    return Signal(sample[:-1], sample=sample)


@dataclass(frozen=True)
class Axis:
    """A window sliding along one axis: output o reads the padded input at stride·o + dilation·k.

    Attributes
    ----------
    before, after
        The numbers of positions that are added at the two ends.
    positions
        The number of outputs.
    """

    before: int
    after: int
    positions: int


def window_axis(length: int, window: int, stride: int, dilation: int, padding: str) -> Axis:
    """Return the positions of a window along an axis; none for a ``VALID`` one that is too long."""
    reach = dilation * (window - 1) + 1
    if padding == "VALID":
        return Axis(0, 0, max(0, (length - reach) // stride + 1))
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


def difference(one: Signal, two: Signal) -> str:
    """Describe how two signals differ."""
    if one.space != two.space:
        return f"spatial axes {one.space} and {two.space}"
    if one.from_data != two.from_data:
        return "one has passed weights and the other is still data"
    return f"{one.copies} and {two.copies} features per unit of width"
