"""How the axes of a sample change on the way through a network.

Samples are arrays (*space, channels). What a layer does to the spatial axes, and how many
features it leaves for each unit of width, is the same in every reading of the network, so it is
said once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import singledispatch
from math import prod

from largen.architectures.attention import SelfAttention
from largen.architectures.axes import Axes
from largen.architectures.branches import Concatenate, Product
from largen.architectures.heads import MultiHeadAttention
from largen.architectures.layers import Dense, Layer, Repeat, Residual, Serial
from largen.architectures.windows import (
    Conv,
    ConvTranspose,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    LocallyConnected,
    Pool,
    Windowed,
    dilation_of,
)
from largen.errors import InvalidInput


@dataclass(frozen=True)
class Signal:
    """What runs between two layers.

    Attributes
    ----------
    space
        Lengths of the spatial axes, () without any; None if they are not known.
    copies
        Features at each position, per channel of the data or per unit of width: the ratio of the
        affine map before, more behind :class:`Flatten` and :class:`Concatenate`.
    from_data
        Whether its features are still the data's, no weights passed yet.
    sample
        The shape of the data's samples as they come, before any layer; None behind one.
    """

    space: tuple[int, ...] | None
    copies: int | Fraction = 1
    from_data: bool = True
    sample: tuple[int, ...] | None = field(default=None, compare=False)


def signal_of(inputs: int | tuple[int, ...] | None) -> Signal:
    """Return the signal that enters a network: of D numbers, of (*space, channels), or unknown."""
    if inputs is None:
        return Signal(None)
    sample = inputs if isinstance(inputs, tuple) else (inputs,)
    return Signal(sample[:-1], sample=sample)


@singledispatch
def signal_behind(layer: Layer, signal: Signal) -> Signal:
    """Return the signal behind a layer; most keep it.

    Raises
    ------
    InvalidInput
        If the layer does not fit its input, such as a window that is larger than a sample.
    """
    return signal


@signal_behind.register
def _(layer: Dense, signal: Signal) -> Signal:
    return Signal(signal.space, layer.width_ratio, from_data=False)


@signal_behind.register(Conv)
@signal_behind.register(LocallyConnected)
def _(layer: Conv | LocallyConnected, signal: Signal) -> Signal:
    return Signal(_behind_window(layer, signal.space), layer.width_ratio, from_data=False)


@signal_behind.register
def _(layer: ConvTranspose, signal: Signal) -> Signal:
    if signal.space is None:
        return Signal(None, layer.width_ratio, from_data=False)
    _check_axes(layer, signal.space)
    axes = zip(signal.space, layer.window, layer.strides, layer.dilation, strict=True)
    space = tuple(transposed_axis(*axis, layer.padding).positions for axis in axes)
    return Signal(space, layer.width_ratio, from_data=False)


@signal_behind.register
def _(layer: Pool, signal: Signal) -> Signal:
    return replace(signal, space=_behind_window(layer, signal.space), sample=None)


@signal_behind.register(GlobalAvgPool)
@signal_behind.register(GlobalSumPool)
def _(layer: GlobalAvgPool | GlobalSumPool, signal: Signal) -> Signal:
    if signal.space == ():
        raise InvalidInput(f"net: {layer!r} wants spatial axes to pool over, and there are none.")
    return replace(signal, space=(), sample=None)


@signal_behind.register
def _(layer: Axes, signal: Signal) -> Signal:
    if not signal.from_data or (signal.sample is None and signal.space is not None):
        raise InvalidInput(
            f"net: {layer!r} declares the order of the data's axes and has to be the first layer."
        )
    if signal.sample is None:
        return signal
    if len(signal.sample) != len(layer.order):
        raise InvalidInput(
            f"net: {layer!r} wants samples of {len(layer.order)} axes, and meets the shape "
            f"{signal.sample}."
        )
    space = list(signal.sample)
    channels = space.pop(layer.channels)
    # Fan-ins are counted in lengths of the last axis as it comes.
    return Signal(tuple(space), Fraction(channels, signal.sample[-1]))


@signal_behind.register
def _(layer: SelfAttention, signal: Signal) -> Signal:
    if signal.space == ():
        raise InvalidInput(f"net: {layer!r} wants positions to attend to, and there are none.")
    return signal


@signal_behind.register
def _(layer: MultiHeadAttention, signal: Signal) -> Signal:
    if signal.space == ():
        raise InvalidInput(f"net: {layer!r} wants positions to attend to, and there are none.")
    queries, keys, values = (signal_behind(branch, signal) for branch in layer.branches)
    for other in (keys, values):
        if (other.space, other.from_data) != (signal.space, False) or queries != keys:
            raise InvalidInput(
                f"net: queries, keys and values of {layer!r} want affine maps that keep the "
                "spatial axes, and as many queries as keys."
            )
    return values


@signal_behind.register
def _(layer: Flatten, signal: Signal) -> Signal:
    copies = signal.copies * prod(signal.space or ())
    return replace(signal, space=(), copies=copies, sample=None)


@signal_behind.register
def _(layer: Serial, signal: Signal) -> Signal:
    for inner in layer.layers:
        signal = signal_behind(inner, signal)
    return signal


@signal_behind.register
def _(layer: Repeat, signal: Signal) -> Signal:
    behind = signal_behind(layer.layer, signal)
    if behind != signal:
        raise InvalidInput(
            f"net: {layer.layer!r} is repeated but does not keep the shape of its input; "
            f"{_difference(signal, behind)}."
        )
    return behind


@signal_behind.register
def _(layer: Residual, signal: Signal) -> Signal:
    skip = signal if layer.shortcut is None else signal_behind(layer.shortcut, signal)
    branch = signal_behind(layer.branch, signal)
    if skip != branch:
        raise InvalidInput(
            f"net: skip and branch of {layer!r} have different shapes; {_difference(skip, branch)}."
        )
    return branch


@signal_behind.register
def _(layer: Concatenate, signal: Signal) -> Signal:
    found = [signal_behind(branch, signal) for branch in layer.branches]
    for other in found[1:]:
        if (other.space, other.from_data) != (found[0].space, found[0].from_data):
            raise InvalidInput(
                f"net: branches of {layer!r} cannot be put side by side; "
                f"{_difference(found[0], other)}."
            )
    return replace(found[0], copies=sum(each.copies for each in found))


@signal_behind.register
def _(layer: Product, signal: Signal) -> Signal:
    found = [signal_behind(branch, signal) for branch in layer.branches]
    for other in found[1:]:
        if other != found[0]:
            raise InvalidInput(
                f"net: branches of {layer!r} have different shapes; {_difference(found[0], other)}."
            )
    return found[0]


@dataclass(frozen=True)
class Axis:
    """A window sliding along one axis: output o reads the padded input at stride·o + dilation·k.

    Attributes
    ----------
    before, after
        Positions added to either end.
    positions
        Number of outputs.
    """

    before: int
    after: int
    positions: int


def window_axis(length: int, window: int, stride: int, dilation: int, padding: str) -> Axis:
    """Return how a window slides along an axis; with ``VALID``, 0 positions if it is too long."""
    reach = dilation * (window - 1) + 1
    if padding == "VALID":
        return Axis(0, 0, max(0, (length - reach) // stride + 1))
    positions = -(-length // stride)
    missing = max(0, (positions - 1) * stride + reach - length)
    return Axis(missing // 2, missing - missing // 2, positions)


def transposed_axis(length: int, window: int, stride: int, dilation: int, padding: str) -> Axis:
    """Return padding and outputs along an axis that has been spread out, zeros between.

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


def _behind_window(layer: Windowed, space: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if space is None:
        return None
    _check_axes(layer, space)
    behind = []
    for lengths in zip(space, layer.window, layer.strides, dilation_of(layer), strict=True):
        axis = window_axis(*lengths, layer.padding)
        if axis.positions < 1:
            raise InvalidInput(
                f"net: the window of {layer!r} is larger than the sample it meets, whose spatial "
                f'axes are {space}; use padding="SAME" or a smaller window.'
            )
        if layer.padding == "CIRCULAR" and max(axis.before, axis.after) > lengths[0]:
            raise InvalidInput(
                f"net: the window of {layer!r} goes around the sample more than once; its "
                f"spatial axes are {space}."
            )
        behind.append(axis.positions)
    return tuple(behind)


def _check_axes(layer: Windowed, space: tuple[int, ...]) -> None:
    if len(space) != len(layer.window):
        raise InvalidInput(
            f"net: {layer!r} wants samples of {len(layer.window)} spatial axes and one of "
            f"channels, and meets spatial axes {space}."
        )


def _difference(one: Signal, two: Signal) -> str:
    if one.space != two.space:
        return f"spatial axes {one.space} and {two.space}"
    if one.from_data != two.from_data:
        return "one has passed weights and the other is still data"
    return f"{one.copies} and {two.copies} features per unit of width"
