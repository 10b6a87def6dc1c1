"""Means over positions, and copies of positions."""

from __future__ import annotations

from typing import Any

from largen.architectures import AvgPool, GlobalAvgPool, GlobalSumPool, Upsample
from largen.reading.torch.reader import Reader
from largen.reading.torch.recording import Call
from largen.reading.torch.rules.registry import ALL_OF_THEM, channels_first, per_axis, rule
from largen.reading.values import Value


@rule("mean", "sum")
def _(
    reader: Reader, call: Call, input: Any, dim: Any = None, keepdim: bool = False,
    dtype: Any = None,
) -> Value:  # fmt: skip
    value = reader.value(input, call)
    dims = range(len(value.shape)) if dim is None else per_axis(dim, 1)
    over = {d % len(value.shape) for d in dims}
    if value.data:
        value = _with_channels(reader, call, value, over)
    node = value.node
    if _has_positions(reader, call, value, over):
        pool = GlobalAvgPool() if call.op == "mean" else GlobalSumPool()
        node = reader.layer(call, pool, value)
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


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _(reader: Reader, call: Call, input: Any, output_size: Any) -> Value:
    value = channels_first(reader, call, input)
    space, behind = value.space, call.shape[2:]
    if all(n == 1 for n in behind):
        node = reader.layer(call, GlobalAvgPool(), value)
        return Value(node, (*value.axes[:2], *("one" for _ in behind)), call.shape)
    if any(n % m for n, m in zip(space, behind, strict=True)):
        raise reader.refused(call, f"windows of different lengths ({space} to {behind})")
    window = tuple(n // m for n, m in zip(space, behind, strict=True))
    return value.at(reader.layer(call, AvgPool(window), value), call.shape)


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _(
    reader: Reader, call: Call, input: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Value:  # fmt: skip
    value = channels_first(reader, call, input)
    axes = len(value.shape) - 2
    window, ends = per_axis(kernel_size, axes), per_axis(padding, axes)
    strides = window if stride in (None, ()) else per_axis(stride, axes)
    if ceil_mode or divisor_override is not None or (any(ends) and count_include_pad):
        raise reader.refused(
            call, "ceil_mode, another divisor and zeros that count have no rule; "
            "count_include_pad=False has one",
        )  # fmt: skip
    pool = AvgPool(window, strides=strides, padding=tuple((end, end) for end in ends))
    return value.at(reader.layer(call, pool, value), call.shape)


@rule("interpolate", "upsample")
def _(
    reader: Reader, call: Call, input: Any, size: Any = None, scale_factor: Any = None,
    mode: str = "nearest", align_corners: Any = None, recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Value:  # fmt: skip
    value = channels_first(reader, call, input)
    pairs = list(zip(value.space, call.shape[2:], strict=True))
    if mode != "nearest" or any(large % small for small, large in pairs):
        raise reader.refused(call, 'only mode="nearest" by whole factors has a rule')
    factors = tuple(large // small for small, large in pairs)
    return value.at(reader.layer(call, Upsample(factors), value), call.shape)
