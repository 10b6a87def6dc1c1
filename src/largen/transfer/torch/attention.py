"""Finding where attention logits are made, so that they can be multiplied.

Logits q·k/√d_head are bilinear: multiplying the queries multiplies the logits. Whatever fused
kernel computes the attention is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Any

from torch import nn

from largen.errors import InvalidInput
from largen.transfer.torch.branches import join

QUERIES = frozenset({"q_proj", "q", "query", "to_q", "wq", "w_q", "q_lin", "query_proj"})
FUSED = frozenset({"qkv", "c_attn", "in_proj", "wqkv", "to_qkv", "qkv_proj", "query_key_value"})
HEADS = ("num_heads", "n_heads", "n_head", "heads", "nhead", "num_attention_heads", "nheads")
HEAD_SIZES = ("head_dim", "head_size", "d_head", "dim_head", "attention_head_size", "d_k")
SCALES = ("scale", "scaling", "softmax_scale", "sm_scale")


@dataclass(frozen=True)
class Attention:
    """One place where queries are made.

    Attributes
    ----------
    module
        Its path.
    where
        ``"output"``, ``"first third"`` (fused queries, keys and values) or ``"key"``
        (``nn.MultiheadAttention``).
    head_ratio
        How much the dimension of a head grew.
    built
        The power of the head's dimension that the logits have by themselves.
    """

    module: str
    where: str
    head_ratio: float
    built: Fraction = Fraction(-1, 2)


def find_attention(base: nn.Module, target: nn.Module, names: Mapping[str, str]) -> list[Attention]:
    """Return every place of the target model where queries are made, by common names.

    Parameters
    ----------
    base, target
        The two models.
    names
        Path in the target → path in the base model.

    Raises
    ------
    InvalidInput
        If the dimension of a head cannot be learned from the module.
    """
    found = []
    for path, module in target.named_modules():
        before = base.get_submodule(names[path])
        if isinstance(module, nn.MultiheadAttention) and isinstance(before, nn.MultiheadAttention):
            if module.bias_k is not None or module.add_zero_attn:
                raise InvalidInput(
                    f"attention: {path} appends a key of its own, which cannot be scaled with "
                    "the others; pass attention={} to leave all logits as they are."
                )
            found.append(Attention(path, "key", module.head_dim / before.head_dim))
            continue
        for name, child in module.named_children():
            own = name.lower()
            if not isinstance(child, nn.Linear) or own not in QUERIES | FUSED:
                continue
            full, fused = join(path, name), own in FUSED
            if fused and child.out_features != 3 * child.in_features:
                raise InvalidInput(
                    f"attention: {full} makes queries, keys and values of unequal sizes; make the "
                    "queries in a layer of their own, or pass attention={} to leave the logits."
                )
            earlier = before.get_submodule(name)
            assert isinstance(earlier, nn.Linear)
            sizes = [
                _head_size(m, linear.out_features // (3 if fused else 1))
                for m, linear in ((before, earlier), (module, child))
            ]
            if sizes[0] is None or sizes[1] is None:
                raise InvalidInput(
                    f"attention: the number of heads of {path} ({type(module).__name__}) is in "
                    f"none of its attributes {', '.join(HEADS)}; pass "
                    f"attention={{{full!r}: ratio of the heads' dimensions}}."
                )
            ratio = sizes[1] / sizes[0]
            where = "first third" if fused else "output"
            found.append(Attention(full, where, ratio, _built(before, module, ratio)))
    return found


def _head_size(module: nn.Module, size: int) -> float | None:
    for name in HEAD_SIZES:
        value = getattr(module, name, None)
        if isinstance(value, int) and value > 0:
            return float(value)
    for name in HEADS:
        value = getattr(module, name, None)
        if isinstance(value, int) and value > 0:
            return size / value
    return None


def _built(before: Any, after: Any, ratio: float) -> Fraction:
    """Return the logits' own power of the head's dimension: −½ unless an attribute says more."""
    for name in SCALES:
        was, now = getattr(before, name, None), getattr(after, name, None)
        if isinstance(was, float) and isinstance(now, float) and ratio != 1 and was > 0 < now:
            return Fraction(log(now / was) / log(ratio)).limit_denominator(4)
    return Fraction(-1, 2)
