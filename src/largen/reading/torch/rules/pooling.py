"""Means over positions, and copies of positions."""

from __future__ import annotations

from typing import Any

from largen.architectures import AvgPool, GlobalAvgPool, GlobalSumPool, Upsample
from largen.reading.calls import Call
from largen.reading.reader import Reader
from largen.reading.torch.rules.registry import channels_first, per_axis, rule
from largen.reading.values import Value
from largen.reading.views import over_positions


@rule("mean", "sum")
def _(
    reader: Reader, call: Call, input: Any, dim: Any = None, keepdim: bool = False,
    dtype: Any = None,
) -> Value:  # fmt: skip
    axes = len(reader.value(input, call).shape)
    over = {d % axes for d in (range(axes) if dim is None else per_axis(dim, 1))}
    pool = GlobalAvgPool() if call.op == "mean" else GlobalSumPool()
    return over_positions(reader, call, input, over, pool, keepdim)


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
            call, "ceil_mode=True, divisor_override and averages over padding have no rule; "
            "count_include_pad=False leaves padding out",
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
