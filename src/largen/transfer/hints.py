"""Facts about a model that cannot be read from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from largen.errors import instance_of
from largen.scalars import real
from largen.transfer.patterns import by_pattern, patterns
from largen.transfer.roles import family


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Facts that a model's builder and forward pass do not show, or show wrongly.

    Attributes
    ----------
    depth
        The key of shapes that is the depth.
    experts
        The key that is the number of experts of mixtures (:mod:`largen.transfer.experts`); all
        keys but these two are widths. The builder decides how many experts are active.
    delta
        A shape larger than the base in every key that grows, with which the base is compared to
        find the axes that grow; by default these keys are doubled.
    roles
        Patterns of weights' names, such as ``"*.gate.weight"``, with their roles
        (:data:`largen.transfer.roles.ROLES`), where shapes do not determine them.
    branches
        Patterns of the parts that residual branches end in, such as ``"blocks.*.mlp.fc2"``: modules
        of PyTorch models, which are otherwise read from a recorded forward pass, or weights and
        their holders in pytrees, for which schemes with a power of depth need them.
    attention
        Patterns of the parts that make queries, with the ratio of the head dimensions, for logits
        q·k/√d. By default the queries of PyTorch models, and the logits' power of d, are read from
        a recorded forward pass; of pytrees, those of ``equinox.nn.MultiheadAttention`` and flax's
        attention are known, and other weights with a usual name of queries are noted. ``{}`` leaves
        all logits as they are.

    Raises
    ------
    InvalidInput
        If a value is of another kind.

    Examples
    --------
    >>> Hints(branches="blocks.*.fc2").branches
    'blocks.*.fc2'
    """

    depth: str = "depth"
    experts: str = "experts"
    delta: Mapping[str, Any] | None = None
    roles: Mapping[str, str] | None = None
    branches: Collection[str] | None = None
    attention: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        for name in ("depth", "experts"):
            instance_of(name, getattr(self, name), str, "a key of base and target")
        if self.delta is not None:
            instance_of("delta", self.delta, Mapping, "a shape such as dict(width=128)")
        for role in by_pattern("roles", self.roles).values():
            family(role)
        if self.branches is not None:
            patterns("branches", self.branches)
        for pattern, ratio in by_pattern("attention", self.attention).items():
            real(f"attention[{pattern!r}]", ratio, above=0)


def hints_of(hints: object) -> Hints:
    """Return the hints, without any if there are none."""
    return Hints() if hints is None else instance_of("hints", hints, Hints, "largen.transfer.Hints")
