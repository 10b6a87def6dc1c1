"""Reshapes, and means over positions: what all libraries of arrays have."""

from __future__ import annotations

import math
from typing import Any

from largen.architectures import Flatten, GlobalAvgPool, Layer
from largen.reading.calls import Call
from largen.reading.reader import Reader
from largen.reading.values import Value, reshaped

ALL_OF_THEM = "; a mean over all of them has a rule"


def reshape(reader: Reader, call: Call, input: Any) -> Value:
    """Return an argument in the shape of the result of a call."""
    value = reader.value(input, call)
    if (found := reshaped(value, call.shape)) is None:
        raise reader.refused(
            call,
            f"a reshape from {value.shape} to {call.shape} mixes samples, positions or channels; "
            "all but samples as one axis has a rule",
        )
    behind, mixes = found
    # Data without positions, or whose channels are still open, are rows of features as they are.
    if not mixes or (value.data and len(value.without_ones().axes) == 2):
        return behind
    return Value(reader.layer(call, Flatten(), value), behind.axes, behind.shape, value.data)


def over_positions(
    reader: Reader, call: Call, input: Any, over: set[int], pool: Layer, keepdim: bool
) -> Value:
    """Return a mean or sum of an argument over axes that are all positions."""
    value = reader.value(input, call)
    if value.data:
        value = _with_channels(reader, call, value, over)
    node = value.node
    if _has_positions(reader, call, value, over):
        count = math.prod(value.shape[axis] for axis in over)
        node = reader.pooled(call, pool, value, GlobalAvgPool(), count)
    kept = [(i, axis) for i, axis in enumerate(value.axes) if keepdim or i not in over]
    return Value(node, tuple("one" if i in over else axis for i, axis in kept), call.shape)


def _with_channels(reader: Reader, call: Call, value: Value, over: set[int]) -> Value:
    """Return data of which the axis that is left is that of channels."""
    left = [i for i in range(1, len(value.shape)) if i not in over]
    if len(left) != 1:
        raise reader.refused(call, "a mean of the input over some of its axes has no rule")
    return reader.with_channels(call, value, left[0])


def _has_positions(reader: Reader, call: Call, value: Value, over: set[int]) -> bool:
    """Whether axes are all positions, and not axes of length one alone; others are refused."""
    space = {i for i, axis in enumerate(value.axes) if isinstance(axis, int)}
    ones = {i for i, axis in enumerate(value.axes) if axis == "one"}
    if not over or not over <= space | ones or (over & space and not space <= over):
        raise reader.refused(
            call, "a mean over channels, samples or some of the positions has no rule" + ALL_OF_THEM
        )
    return bool(over & space)
