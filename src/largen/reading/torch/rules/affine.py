"""Affine maps: linear ones and convolutions."""

from __future__ import annotations

from typing import Any

from largen.reading.calls import Call, Param
from largen.reading.reader import Reader
from largen.reading.torch.rules.registry import channels_first, fixed_groups, per_axis, rule
from largen.reading.values import Value


@rule("linear")
def _(reader: Reader, call: Call, input: Any, weight: Any, bias: Any = None) -> Value:
    return _of_last_axis(reader, call, input, weight, bias, 1, 0)


@rule("matmul", "mm")
def _(reader: Reader, call: Call, input: Any, other: Any) -> Value:
    if not reader.is_value(input) or reader.is_value(other):
        raise reader.refused(call, "only a value times a parameter has a rule")
    return _of_last_axis(reader, call, input, other, None, 0, 1)


def _of_last_axis(
    reader: Reader, call: Call, input: Any, weight: Any, bias: Any, fan_in: int, fan_out: int
) -> Value:
    """Return a map of the last axis, by a matrix with the given axes of inputs and outputs."""
    value = reader.value(input, call)
    if isinstance(weight, Param) and weight.axes:
        fan_in, fan_out = weight.axes.index(fan_in), weight.axes.index(fan_out)
    return reader.affine(call, value, len(value.shape) - 1, weight, bias, (fan_in,), fan_out)


@rule("conv1d", "conv2d", "conv3d")
def _(
    reader: Reader, call: Call, input: Any, weight: Any, bias: Any = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    value = channels_first(reader, call, input)
    axes = len(value.shape) - 2
    window = reader.shape(weight, call)[2:]
    if groups > 1 and (reader.alone or not reader.grows(weight, 1)):
        raise reader.refused(call, fixed_groups(reader, groups))
    ends: Any = str(padding).upper() if isinstance(padding, str) else per_axis(padding, axes)
    geometry = {
        "window": tuple(window),
        "strides": per_axis(stride, axes),
        "padding": ends if isinstance(ends, str) else tuple((end, end) for end in ends),
        "dilation": per_axis(dilation, axes),
        "groups": groups,
    }
    fan_in = tuple(range(1, axes + 2))
    return reader.affine(call, value, 1, weight, bias, fan_in, 0, geometry)
