"""Constants of the base, found by a search at the base, that a plan keeps at every size.

A plan keeps the faults of its base: logits or hidden rates that are too small stay so at every
width. Factors in front of the powers of n and l, the same at base and target, correct them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from largen.errors import InvalidInput, instance_of
from largen.scalars import real
from largen.transfer.corrections import scaled
from largen.transfer.patterns import by_pattern
from largen.transfer.plan import Plan
from largen.transfer.plan_entries import ForwardMultiplier, ScaledWeight
from largen.transfer.roles import family
from largen.transfer.updates import UPDATES

NO_LOGITS = (
    "constants: no attention logits were found that attention could multiply; name what makes the "
    "queries in hints=Hints(attention={'path.of.queries': ratio of the heads' dimensions})."
)
AnyPlan = TypeVar("AnyPlan", bound=Plan)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Factors of a plan's settings that do not depend on the size.

    Attributes
    ----------
    output
        Factor of the read-out's result. It is folded into the read-out's initial values and rate;
        that of a tied read-out stays in the forward pass. ε is left as it is.
    attention
        Factor of all attention logits, in the place of their power of the heads' dimension
        (:mod:`largen.transfer.rules`): folded into queries or keys where that is exact.
    init, lr
        Factors of initial values and of rates, by role (:data:`largen.transfer.roles.ROLES`) or by
        pattern of the weights' names; of several that fit, all apply. Decoupled weight decay keeps
        its product with the rate.

    Raises
    ------
    InvalidInput
        If a factor is not positive, or keys are no texts.

    Examples
    --------
    >>> from torch import nn
    >>> from largen.transfer import Constants
    >>> from largen.transfer.torch import scale
    >>> def mlp(width):
    ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width),
    ...                          nn.ReLU(), nn.Linear(width, 2))
    >>> better = Constants(output=2, lr={"hidden": 1.5})
    >>> plan = scale(mlp, {"width": 16}, {"width": 64}, scheme="mup", constants=better)
    >>> [plan[f"{i}.weight"].lr for i in (0, 2, 4)]
    [1.0, 0.375, 0.5]
    """

    output: float = 1.0
    attention: float = 1.0
    init: Mapping[str, float] = field(default_factory=dict)
    lr: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("output", "attention"):
            real(name, getattr(self, name), above=0)
        for what in ("init", "lr"):
            given = instance_of(what, getattr(self, what), Mapping, "a dict of factors")
            for key, factor in by_pattern(what, given).items():
                real(f"{what}[{key!r}]", factor, above=0)

    def __str__(self) -> str:
        parts = [] if self.output == 1.0 else [f"output × {self.output:g}"]
        parts += [] if self.attention == 1.0 else [f"attention logits × {self.attention:g}"]
        for what, words in (("init", "initial values"), ("lr", "rate")):
            parts += [f"{words} of {k} × {c:g}" for k, c in getattr(self, what).items()]
        return ", ".join(parts)


def constants_of(constants: object) -> Constants:
    """Return the constants, all 1 if there are none."""
    if constants is None:
        return Constants()
    return instance_of("constants", constants, Constants, "largen.transfer.Constants")


def with_constants(
    plan: AnyPlan, constants: Constants, read_outs: Iterable[tuple[str, str]]
) -> AnyPlan:
    """Return a plan times constants; ``read_outs`` are where tied weights take their factor."""
    if not str(constants):
        return plan
    by_rate = plan.decay != "coupled" or plan.update.kind == "proportional"
    rows = _of_roles(plan, constants, by_rate)
    multipliers = plan.multipliers
    if constants.output != 1.0:
        own = [n for n, w in rows.items() if family(w.role) == "output" and len(w.shape) > 1]
        rows |= {n: _folded(rows[n], plan, constants.output, by_rate) for n in own}
        multipliers, tied = _on_tied(multipliers, constants.output, dict(read_outs))
        if not own and not tied:
            raise InvalidInput("constants: no read-out was found that output could multiply.")
    notes = (*plan.notes, f"constants of the base: {constants}")
    return replace(plan, weights=tuple(rows.values()), multipliers=multipliers, notes=notes)


def _of_roles(plan: Plan, constants: Constants, by_rate: bool) -> dict[str, ScaledWeight]:
    """Return the rows of a plan with the factors of initial values and rates, by name."""
    rows = {w.name: w for w in plan.weights}
    for what in ("init", "lr"):
        for key, factor in getattr(constants, what).items():
            names = [n for n, w in rows.items() if w.role == key or fnmatchcase(n, key)]
            if not names:
                roles = ", ".join(sorted({w.role for w in rows.values()}))
                raise InvalidInput(
                    f"constants: {what}[{key!r}] is neither a role nor a pattern of a weight; "
                    f"roles: {roles}."
                )
            rows |= {n: scaled(rows[n], what, factor, f"{factor:g}", by_rate) for n in names}
    return rows


def _folded(w: ScaledWeight, plan: Plan, c: float, by_rate: bool) -> ScaledWeight:
    """Fold a factor into a read-out, as :func:`largen.transfer.rules.fold`."""
    power = 2 if UPDATES[w.moved_by or plan.optimizer].kind == "proportional" else 1
    w = scaled(w, "init", c, f"{c:g}", by_rate)
    w = scaled(w, "lr", c**power, f"{c**power:g}", by_rate)
    return replace(w, folded=(*w.folded, f"output × {c:g}"), fold=w.fold * c)


def _on_tied(
    multipliers: tuple[ForwardMultiplier, ...], c: float, read_outs: Mapping[str, str]
) -> tuple[tuple[ForwardMultiplier, ...], bool]:
    """Multiply the factors of tied read-outs, which have none at the base itself."""
    kept, places = [], dict(read_outs)
    for m in multipliers:
        if m.kind == "output":
            places.pop(m.module, None)
            m = replace(m, factor=m.factor * c, power=f"{c:g}·{m.power}")
        kept.append(m)
    kept += [ForwardMultiplier(k, "output", at, c, f"{c:g}") for k, at in places.items()]
    return tuple(kept), any(m.kind == "output" for m in kept)
