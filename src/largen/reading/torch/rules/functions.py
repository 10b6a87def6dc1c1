"""Elementwise functions."""

from __future__ import annotations

from typing import Any

from largen.reading.calls import Call
from largen.reading.functions import NAMED
from largen.reading.reader import Reader
from largen.reading.torch.rules.registry import rule
from largen.reading.values import Value


@rule(*NAMED - {"gelu"})
def _(reader: Reader, call: Call, input: Any, inplace: bool = False) -> Value:
    return reader.function(call, input, call.op)


@rule("gelu")
def _(reader: Reader, call: Call, input: Any, approximate: str = "none") -> Value:
    return reader.function(call, input, "gelu" if approximate == "none" else "gelu_tanh")


@rule("leaky_relu")
def _(
    reader: Reader, call: Call, input: Any, negative_slope: float = 0.01, inplace: bool = False
) -> Value:
    return reader.function(call, input, "leaky_relu", negative_slope)


@rule("elu", "celu")
def _(reader: Reader, call: Call, input: Any, alpha: float = 1.0, inplace: bool = False) -> Value:
    return reader.function(call, input, call.op, alpha)


@rule("softplus")
def _(reader: Reader, call: Call, input: Any, beta: float = 1.0, threshold: float = 20.0) -> Value:
    if threshold < 20:
        raise reader.refused(call, f"a threshold of {threshold:g} makes it jump; wanted 20 or more")
    return reader.function(call, input, "softplus", beta)


@rule("hardtanh")
def _(
    reader: Reader, call: Call, input: Any, min_val: float = -1.0, max_val: float = 1.0,
    inplace: bool = False,
) -> Value:  # fmt: skip
    return reader.function(call, input, "clip", min_val, max_val)


@rule("relu6")
def _(reader: Reader, call: Call, input: Any, inplace: bool = False) -> Value:
    return reader.function(call, input, "clip", 0.0, 6.0)


@rule("clamp")
def _(reader: Reader, call: Call, input: Any, min: Any = None, max: Any = None) -> Value:
    ends = [reader.number(end, call) for end in (min, max) if end is not None]
    name = "clip" if len(ends) == 2 else "above" if max is None else "below"
    return reader.function(call, input, name, *ends)


@rule("mish", "hardswish", "hardsigmoid", "logsigmoid", "softsign")
def _(reader: Reader, call: Call, input: Any, inplace: bool = False) -> Value:
    names = {"hardswish": "hard_swish", "hardsigmoid": "hard_sigmoid", "logsigmoid": "log_sigmoid"}
    return reader.function(call, input, names.get(call.op, call.op))


@rule("square")
def _(reader: Reader, call: Call, input: Any) -> Value:
    return reader.function(call, input, "power", 2)


@rule("pow")
def _(reader: Reader, call: Call, input: Any, exponent: Any) -> Value:
    power = reader.number(exponent, call)
    if not reader.is_value(input) or power != int(power) or power < 1:
        raise reader.refused(call, "only positive whole powers have a rule")
    return reader.function(call, input, "power", int(power))
