"""Corrections of plans by measured powers of the size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from largen.errors import one_of
from largen.parameterizations import Power
from largen.scalars import real
from largen.transfer.plan_entries import ForwardMultiplier, ScaledWeight
from largen.transfer.rules import ratios

# What corrections multiply: a setting of weights, and the signal at a place of the forward pass.
SETTINGS = {"init": "init", "lr": "lr", "output": "eps"}
MULTIPLIERS = {"output": ("output", "output"), "attention": ("attention", "key")}
WHATS = ("init", "lr", "output", "attention")


@dataclass(frozen=True)
class Correction:
    """A power of the ratio of sizes by which one setting of a plan is multiplied."""

    what: str  # "init" or "lr" of a weight, the model's "output", or the logits of an "attention"
    where: str  # the weight or the module; empty for the output
    power: float  # the power of n, or of l in depth
    letter: str = "n"  # "n" or "l"

    def __post_init__(self) -> None:
        one_of("what", self.what, WHATS)
        one_of("letter", self.letter, ("n", "l"))
        real("power", self.power)

    @property
    def words(self) -> str:
        """The power in words."""
        own = Fraction(self.power).limit_denominator(8)
        return ratios(Power(width=own) if self.letter == "n" else Power(depth=own))

    def __str__(self) -> str:
        if self.what == "output":
            return f"output × {self.words}"
        whole = {"init": "initial", "lr": "rate of", "attention": "logits of"}[self.what]
        return f"{whole} {self.where} × {self.words}"


def corrected(
    # weights, multipliers: those of the plan.
    weights: Iterable[ScaledWeight],
    multipliers: Iterable[ForwardMultiplier],
    corrections: Iterable[Correction],  # the corrections, applied in their order
    # n, l: the ratios of the target's width and depth to the base's.
    n: float,
    l: float,
    # Whether weight decay keeps its product with the rate; otherwise it follows the gradient.
    decays_by_rate: bool,
    # Part or weight of the target → its name in the base, by which corrections name it.
    names: Mapping[str, str],
) -> tuple[tuple[ScaledWeight, ...], tuple[ForwardMultiplier, ...]]:
    """Return a plan's weights and multipliers with corrections.

    Decoupled decay keeps the product of rate and decay. A factor of the output is one of all
    gradients, and so of ε; coupled decay stays in proportion to the gradient over the weight.
    """
    rows = {w.name: w for w in weights}
    factors = list(multipliers)
    copies: dict[str, list[str]] = {}  # a name in the base → those in the target
    for name in dict.fromkeys([*rows, *names]):
        copies.setdefault(names.get(name, name), []).append(name)
    for each in corrections:
        factor = (n if each.letter == "n" else l) ** each.power
        own = copies.get(each.where, [])
        if setting := SETTINGS.get(each.what):
            for name in rows if each.what == "output" else rows.keys() & own:
                rows[name] = scaled(rows[name], setting, factor, each.words, decays_by_rate)
        if factor != 1.0 and (place := MULTIPLIERS.get(each.what)):
            for path in [part for part in own if part not in rows] or [each.where]:
                factors.append(ForwardMultiplier(path, *place, factor, each.words))
    return tuple(rows.values()), tuple(factors)


def scaled(
    w: ScaledWeight, what: str, factor: float, words: str, decays_by_rate: bool
) -> ScaledWeight:
    """Return a weight with one setting, and the weight decay that follows it, multiplied."""
    column = "init_std" if what == "init" else what
    powers = dict(w.powers)
    powers[column] = words if powers[column] == "1" else f"{powers[column]}·{words}"
    changes = {column: getattr(w, column) * factor}
    if what == "init":
        changes["init"] = w.init * factor
    follows = {"lr": -1} if decays_by_rate else {"init": -1, "eps": 1}
    exponent = follows.get(what, 0)
    if exponent:
        changes["weight_decay"] = w.weight_decay * factor**exponent
        powers["weight_decay"] += f"·{'1/' if exponent < 0 else ''}{words}"
    return replace(w, **changes, powers=powers)
