"""Views, orders of axes, concatenations, and calls that change nothing."""

from __future__ import annotations

from typing import Any

import torch

from largen.reading.calls import Call
from largen.reading.reader import Reader
from largen.reading.torch.rules.registry import rule
from largen.reading.values import Value
from largen.reading.views import reshape


@rule("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout")
def _(
    reader: Reader, call: Call, input: Any, p: float = 0.5, training: bool = True,
    inplace: bool = False,
) -> Value:  # fmt: skip
    if training and p:
        raise reader.refused(
            call, "it draws masks in evaluation mode; wanted training=self.training"
        )
    return reader.value(input, call)


@rule("contiguous", "clone", "detach", "float", "double", "requires_grad", "type_as", "to", "data")
def _(reader: Reader, call: Call, input: Any, *args: Any, **kwargs: Any) -> Value:
    return reader.value(input, call)


@rule("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")
def _(reader: Reader, call: Call, input: Any, *args: Any, **kwargs: Any) -> Value:
    return reshape(reader, call, input)


@rule("permute", "transpose", "mT", "T", "movedim", "t")
def _(reader: Reader, call: Call, input: Any, *args: Any, **kwargs: Any) -> Value:
    value = reader.value(input, call)
    # PyTorch moves the axes of a tensor whose lengths are their numbers.
    labels = torch.empty(tuple(range(1, len(value.shape) + 1)), device="meta")
    moved = labels.mT if call.op == "mT" else labels.T if call.op == "T" else None
    if moved is None:
        moved = getattr(labels, call.op)(*args, **kwargs)
    return value.moved(tuple(n - 1 for n in moved.shape))


@rule("getitem")
def _(reader: Reader, call: Call, input: Any, index: Any) -> Value:
    value = reader.value(input, call)
    entries = list(index) if isinstance(index, tuple) else [index]
    if any(entry is Ellipsis for entry in entries):
        place = next(i for i, entry in enumerate(entries) if entry is Ellipsis)
        missing = len(value.shape) - len(entries) + 1
        entries[place : place + 1] = [slice(None)] * missing
    entries += [slice(None)] * (len(value.shape) - len(entries))
    chosen = [i for i, entry in enumerate(entries) if entry != slice(None)]
    alone = len(chosen) == 1 and type(entries[chosen[0]]) is int
    if not alone or value.axes[chosen[0]] not in ("channels", "one") or value.data:
        raise reader.refused(call, "a part of the samples, positions or channels has no rule")
    return value.moved(tuple(i for i in range(len(value.shape)) if i != chosen[0]))


@rule("cat")
def _(reader: Reader, call: Call, tensors: Any, dim: int = 0) -> Value:
    values = [reader.value(tensor, call) for tensor in tensors]
    first = values[0]
    if any(value.data for value in values):
        raise reader.refused(call, "the input beside hidden values has no rule")
    if any(value.axes != first.axes for value in values) or first.axes[dim] != "channels":
        raise reader.refused(call, "only a concatenation along channels has a rule")
    if len(values) == 1:
        return first
    return first.at(reader.node(call, "concatenate", *values), call.shape)
