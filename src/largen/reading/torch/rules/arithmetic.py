"""Sums, products and constant factors."""

from __future__ import annotations

from typing import Any

from largen.reading.calls import Call
from largen.reading.reader import Reader
from largen.reading.torch.rules.registry import rule
from largen.reading.values import Value


@rule("add")
def _(reader: Reader, call: Call, input: Any, other: Any, alpha: Any = 1) -> Value:
    return reader.total(call, input, other, 1.0, float(alpha))


@rule("sub")
def _(reader: Reader, call: Call, input: Any, other: Any, alpha: Any = 1) -> Value:
    return reader.total(call, input, other, 1.0, -float(alpha))


@rule("rsub")
def _(reader: Reader, call: Call, input: Any, other: Any, alpha: Any = 1) -> Value:
    return reader.total(call, input, other, -float(alpha), 1.0)


@rule("mul")
def _(reader: Reader, call: Call, input: Any, other: Any) -> Value:
    one, two = (input, other) if reader.is_value(input) else (other, input)
    value = reader.value(one, call)
    if not reader.is_value(two):
        return reader.scaled(call, value, reader.number(two, call))
    other = reader.value(two, call)
    reader.check_alike(call, value, other)
    return value.at(reader.node(call, "product", value, other), call.shape)


@rule("div")
def _(reader: Reader, call: Call, input: Any, other: Any, rounding_mode: Any = None) -> Value:
    if reader.is_value(other) or not reader.is_value(input) or rounding_mode is not None:
        raise reader.refused(call, "only a quotient by a number has a rule")
    return reader.scaled(call, reader.value(input, call), 1 / reader.number(other, call))


@rule("neg")
def _(reader: Reader, call: Call, input: Any) -> Value:
    return reader.scaled(call, reader.value(input, call), -1.0)
