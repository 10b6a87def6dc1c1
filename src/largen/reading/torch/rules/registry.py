"""The table of rules: what each function of PyTorch is in a graph of nodes.

Every function has one rule. A function without a rule is refused by name, as are arguments that a
rule does not cover: nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from largen.reading.calls import Call, registering
from largen.reading.reader import Reader
from largen.reading.values import Value

RULES: dict[str, Callable[..., Value]] = {}
# Why functions have no rule, and what to do.
_WHY = (
    (
        ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "amax", "max", "maximum"),
        "the maximum of several correlated Gaussians has no kernel; average pooling has one",
    ),
    (
        ("softmax", "log_softmax", "logsumexp"),
        "there is no rule for it; behind the last weights, read a module that returns logits",
    ),
    (
        ("scaled_dot_product_attention", "multi_head_attention_forward[0]", "bmm"),
        "only a value times a parameter has a rule; logits of attention heads of a fixed size are "
        "random, and those of lg.layers.QKVAttention converge",
    ),
    (("embedding",), "tokens have no rule; lg.token_inputs makes inputs of a Linear of them"),
    (("instance_norm",), "it divides by a standard deviation over few positions, which is random"),
)
REASONS = {name: why for names, why in _WHY for name in names}

# For functions of a reader, a call and its arguments, named as PyTorch's.
rule = registering(RULES)


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """Return an argument that is one number, or one for each spatial axis, as a tuple."""
    found = tuple(value) if isinstance(value, (tuple, list, torch.Size)) else (value,)
    return found * axes if len(found) == 1 else found


def fixed_groups(reader: Reader, groups: int) -> str:
    """Return why groups of channels have no rule."""
    if reader.alone:
        return (
            f"its {groups} groups have to be of channels whose number grows with the width, which "
            "a function of the width shows, lg.read(make, x)"
        )
    return (
        f"its {groups} groups have a fixed number of channels each, as those of a depthwise "
        "convolution; groups whose channels grow in number with the width have a rule"
    )


def channels_first(reader: Reader, call: Call, input: Any) -> Value:
    """Return an argument with the axes (N, C, space) in this order."""
    value = reader.with_channels(call, reader.value(input, call), 1)
    if value.axes != ("sample", "channels", *range(len(value.shape) - 2)):
        raise reader.refused(call, "the axes of its input are in another order than (N, C, space)")
    return value
