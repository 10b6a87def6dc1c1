"""Normalisations."""

from __future__ import annotations

import math
from typing import Any

import torch

from largen.architectures import LayerNorm, RMSNorm
from largen.reading.calls import Call
from largen.reading.reader import Reader
from largen.reading.torch.rules.registry import fixed_groups, per_axis, rule
from largen.reading.values import Value


@rule("layer_norm")
def _(
    reader: Reader, call: Call, input: Any, normalized_shape: Any, weight: Any = None,
    bias: Any = None, eps: float = 1e-5,
) -> Value:  # fmt: skip
    return _norm(reader, call, input, normalized_shape, weight, bias, eps, LayerNorm)


@rule("rms_norm")
def _(
    reader: Reader, call: Call, input: Any, normalized_shape: Any, weight: Any = None,
    eps: float | None = None,
) -> Value:  # fmt: skip
    eps = torch.finfo(torch.get_default_dtype()).eps if eps is None else eps
    return _norm(reader, call, input, normalized_shape, weight, None, eps, RMSNorm)


def _norm(
    reader: Reader, call: Call, input: Any, over: Any, gain: Any, offset: Any, eps: float, kind: Any
) -> Value:
    value, count = reader.value(input, call), len(per_axis(over, 1))
    if value.data and count < len(value.shape) - 1:
        value = reader.with_channels(call, value, len(value.shape) - 1)
    elif value.data:
        raise reader.refused(call, "normalise samples before they enter the module")
    axes = [axis for axis in value.axes[-count:] if axis != "one"]
    if "channels" not in axes or len(axes) not in (1, 1 + len(value.space)):
        raise reader.refused(
            call, "wanted a normalisation over channels, or channels and positions"
        )
    node = reader.layer(call, kind(over_space=len(axes) > 1 and bool(value.space), eps=eps), value)
    return reader.with_gain(call, value.at(node, call.shape), gain, offset)


@rule("group_norm")
def _(
    reader: Reader, call: Call, input: Any, num_groups: int, weight: Any = None,
    bias: Any = None, eps: float = 1e-5,
) -> Value:  # fmt: skip
    value = reader.with_channels(call, reader.value(input, call), 1)
    if value.axes[1] != "channels" or value.data:
        raise reader.refused(call, "normalise samples before they enter the module")
    if reader.positions_as_channels(value) and num_groups > 1:
        raise reader.refused(call, "groups of channels that are positions have no rule")
    if num_groups > 1 and not reader.groups_grow(call):
        raise reader.refused(call, fixed_groups(reader, num_groups))
    # Every group has infinitely many channels of one law, and so the statistics of all of them.
    node = reader.layer(call, LayerNorm(over_space=bool(value.space), eps=eps), value)
    return reader.with_gain(call, value.at(node, call.shape), weight, bias)


@rule("batch_norm")
def _(  # noqa: PLR0913  (the arguments of PyTorch)
    reader: Reader, call: Call, input: Any, running_mean: Any, running_var: Any,
    weight: Any = None, bias: Any = None, training: bool = False, momentum: Any = 0.1,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    if training or running_mean is None:
        raise reader.refused(
            call, "statistics of the batch make kernels depend on all samples; a module with "
            "running statistics has them",
        )  # fmt: skip
    mean, variance = (reader.number(each, call) for each in (running_mean, running_var))
    value = reader.value(input, call)
    scale = 1 / math.sqrt(variance + eps)
    return reader.with_gain(
        call, reader.shifted(call, reader.scaled(call, value, scale), -mean * scale), weight, bias
    )
