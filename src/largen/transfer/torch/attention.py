"""Finding where attention logits are made, so that they can be multiplied.

Logits q·k/√d_head are bilinear: multiplying the queries multiplies the logits. Whatever fused
kernel computes the attention is left alone. Modules that can be called on a sequence are tried
out (:mod:`largen.transfer.torch.logits`); of others, queries are known by their usual names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Any

from torch import nn

from largen.errors import InvalidInput
from largen.transfer.queries import FUSED, is_query_name
from largen.transfer.torch.branches import join
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.logits import (
    NotCallable,
    Queries,
    attends,
    head_size,
    queries_of,
)
from largen.transfer.torch.survey import part_of, real

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


def find_attention(facts: Facts) -> tuple[list[Attention], list[str]]:
    """Return every place of the target model where queries are made, and what was not found.

    Raises
    ------
    InvalidInput
        If it is clear that there is attention, but not what multiplies its logits, or by how
        much the dimension of its heads grew.
    """
    base, target = facts.models["base"], facts.models["target"]
    found, notes, tries = [], [], _Tries(facts)
    for path, module in reversed(list(target.named_modules())):
        before = base.get_submodule(facts.names[path])
        within = f"{path}." if path else ""
        if isinstance(module, nn.MultiheadAttention) and isinstance(before, nn.MultiheadAttention):
            found.append(_of_torch(path, before, module))
        elif not attends(module):
            found.extend(_by_name(path, before, module))
        elif not any(place.module.startswith(within) for place in found):
            try:
                queries = tries.queries(facts.names[path])
            except NotCallable as error:
                named = list(_by_name(path, before, module))
                found.extend(named)
                notes.append(_untried(path, module, error, named))
            else:
                found.extend([] if queries is None else [_tried(path, before, module, queries)])
    return found[::-1], notes[::-1]


class _Tries:
    """What modules of the base model were found to do, those of equal shapes only once."""

    def __init__(self, facts: Facts):
        self.facts = facts
        self.models: tuple[nn.Module, nn.Module] | None = None
        self.found: dict[tuple, Queries | NotCallable | None] = {}

    def queries(self, path: str) -> Queries | None:
        """Return what multiplies the logits of a module of the base model.

        Raises
        ------
        NotCallable
            If it could not be called.
        """
        signature = part_of(self.facts.models["base"].get_submodule(path)).signature()
        if signature not in self.found:
            try:
                self.found[signature] = self._queries(path)
            except NotCallable as error:
                self.found[signature] = error
        found = self.found[signature]
        if isinstance(found, NotCallable):
            raise found
        return found

    def _queries(self, path: str) -> Queries | None:
        if self.models is None:
            sizes = self.facts.sizes
            small, large = (real(self.facts.make_model, at, 0) for at in (sizes.base, sizes.wide))
            self.models = small, large
        small, large = (model.get_submodule(path) for model in self.models)
        return queries_of(small, large, is_query_name)


def _of_torch(path: str, before: Any, module: Any) -> Attention:
    if module.bias_k is not None or module.add_zero_attn:
        raise InvalidInput(
            f"attention: {path} appends a key of its own, which cannot be scaled with the others; "
            "pass attention={} to leave all logits as they are."
        )
    return Attention(path, "key", module.head_dim / before.head_dim)


def _tried(path: str, before: nn.Module, module: nn.Module, queries: Queries) -> Attention:
    if queries.part is None:
        raise InvalidInput(
            f"attention: of {path or 'the model'} ({type(module).__name__}), no part's output "
            "multiplies the logits of one softmax and nothing else; make the queries in a layer "
            "of their own, or pass attention={} to leave all logits as they are."
        )
    full = join(path, queries.part)
    sizes = [head_size(m) for m in (before, module)]
    if sizes[0] is None or sizes[1] is None:
        raise _no_head_size(path, module, full)
    return Attention(full, queries.where, sizes[1] / sizes[0], queries.built)


def _untried(path: str, module: nn.Module, error: NotCallable, named: list[Attention]) -> str:
    what = f"attention: {path or 'the model'} ({type(module).__name__}) uses a softmax"
    tried = f"{what}, and could not be tried out on a sequence ({str(error)[:80]}). "
    if not named:
        return f"{tried}If it is one of attention logits, name the queries in attention={{…}}"
    built = ", ".join(f"{place.module} × q·k·d^({place.built})" for place in named)
    return f"{tried}By their names, its queries were taken to be those of {built}"


def _by_name(path: str, before: nn.Module, module: nn.Module) -> Iterator[Attention]:
    """Return the places that have the usual names."""
    for name, child in module.named_children():
        if not isinstance(child, nn.Linear) or not is_query_name(name):
            continue
        full, fused = join(path, name), name.lower() in FUSED
        if fused and child.out_features != 3 * child.in_features:
            raise InvalidInput(
                f"attention: {full} makes queries, keys and values of unequal sizes; make the "
                "queries in a layer of their own, or pass attention={} to leave the logits."
            )
        earlier = before.get_submodule(name)
        assert isinstance(earlier, nn.Linear)
        sizes = [
            _stated_head_size(m, linear.out_features // (3 if fused else 1))
            for m, linear in ((before, earlier), (module, child))
        ]
        if sizes[0] is None or sizes[1] is None:
            raise _no_head_size(path, module, full)
        ratio = sizes[1] / sizes[0]
        where = "first third" if fused else "output"
        yield Attention(full, where, ratio, _stated_power(before, module, ratio))


def _no_head_size(path: str, module: nn.Module, queries: str) -> InvalidInput:
    return InvalidInput(
        f"attention: the number of heads of {path} ({type(module).__name__}) is in none of its "
        f"attributes {', '.join(HEADS)}; pass "
        f"attention={{{queries!r}: ratio of the heads' dimensions}}."
    )


def _stated_head_size(module: nn.Module, size: int) -> float | None:
    for name in HEAD_SIZES:
        value = getattr(module, name, None)
        if isinstance(value, int) and value > 0:
            return float(value)
    for name in HEADS:
        value = getattr(module, name, None)
        if isinstance(value, int) and value > 0:
            return size / value
    return None


def _stated_power(before: Any, after: Any, ratio: float) -> Fraction:
    """Return the logits' own power of the head's dimension: −½ unless an attribute says more."""
    for name in SCALES:
        was, now = getattr(before, name, None), getattr(after, name, None)
        if isinstance(was, float) and isinstance(now, float) and ratio != 1 and was > 0 < now:
            return Fraction(log(now / was) / log(ratio)).limit_denominator(4)
    return Fraction(-1, 2)
