"""The rule table: for every weight of a network, how it scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

from largen.architectures import WeightSite
from largen.errors import InvalidInput
from largen.parameterizations.laws import GAUSSIAN
from largen.parameterizations.powers import Power
from largen.results import in_notebooks
from largen.text import aligned

SMALLEST_SCALE = 1e-30  # such numbers and their inverses are numbers of 32 bits

Scale = TypeVar("Scale", Power, float)


@dataclass(frozen=True)
class Rule(Generic[Scale]):
    """How one weight scales: factors on what the user states.

    Attributes
    ----------
    multiplier
        The forward pass uses ``multiplier · θ``.
    init_std
        Standard deviation of θ at initialisation.
    lr
        Factor of the optimizer's rate η₀.
    weight_decay
        Factor of λ₀; always 1/``lr``, so that a step shrinks the weight by η₀λ₀ of itself.
    eps
        Factor of Adam's ε₀: the size of this weight's gradient.
    """

    multiplier: Scale
    init_std: Scale
    lr: Scale
    weight_decay: Scale
    eps: Scale

    def __str__(self) -> str:
        scales = (f"{f.name}={_show(getattr(self, f.name))}" for f in fields(self))
        return f"Rule({', '.join(scales)})"


@dataclass(frozen=True)
class Row(Generic[Scale]):
    """One weight or bias of the network, its rule, and the law that it starts with."""

    site: WeightSite
    kind: str
    rule: Rule[Scale]
    law: str = GAUSSIAN

    @property
    def name(self) -> str:
        """The place and the kind in words, such as ``"0.weight"``."""
        return f"{self.site.name}.{self.kind}"


@dataclass(frozen=True)
class RuleTable(Mapping[str, Rule[Scale]]):
    """The rules of every weight of a network, by name, from input to output.

    Attributes
    ----------
    title
        The parameterization and the optimizer that it is for.
    rows
        One for each weight.
    branch
        The factor of every residual branch's output, L^(−α).
    gamma
        γ = γ₀Nᵈ, by which the output is divided (already inside the read-out's multiplier).
    """

    title: str
    rows: tuple[Row[Scale], ...]
    branch: Scale
    gamma: Scale
    _by_name: dict[str, Rule[Scale]] = field(init=False, repr=False, compare=False)
    _laws: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "_by_name", {row.name: row.rule for row in self.rows})
        object.__setattr__(self, "_laws", {row.name: row.law for row in self.rows})

    def __getitem__(self, name: str) -> Rule[Scale]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self.rows)

    def law(self, name: str) -> str:
        """Return the law of a weight at initialisation."""
        return self._laws[name]

    _repr_html_ = in_notebooks

    def __str__(self) -> str:
        columns = [f.name for f in fields(Rule)]
        cells = [["weight", "role", *columns]]
        for row in self.rows:
            scales = [_show(getattr(row.rule, column)) for column in columns]
            cells.append([row.name, row.site.role, *scales])
        tail = [f"residual branches × {_show(self.branch)}"] if _show(self.branch) != "1" else []
        return "\n".join([self.title, *aligned(cells), *tail])


def evaluate(table: RuleTable[Power], *, width: int, depth: float, inputs: int) -> RuleTable[float]:
    """Return the table's numbers at a width, a depth and a number of inputs.

    Raises
    ------
    InvalidInput
        If one of them is no number of 32 bits.
    """

    def value(power: Power) -> float:
        return power.at(width=width, depth=max(depth, 1), inputs=inputs)

    def rule(row: Row[Power]) -> Rule[float]:
        found = {f.name: value(getattr(row.rule, f.name)) for f in fields(Rule)}
        for name, number in found.items():
            if number and not SMALLEST_SCALE <= number <= 1 / SMALLEST_SCALE:
                raise InvalidInput(
                    f"param: the {name} of {row.name} is {getattr(row.rule, name)} = {number:.4g} "
                    f"at {sizes}, wanted a number between {SMALLEST_SCALE:g} and "
                    f"{1 / SMALLEST_SCALE:g}."
                )
        return Rule(**found)

    sizes = f"N={width}" + (f", L={depth}" if depth else "") + f", D={inputs}"
    rows = tuple(Row(row.site, row.kind, rule(row), row.law) for row in table.rows)
    return RuleTable(f"{table.title}, {sizes}", rows, value(table.branch), value(table.gamma))


def _show(scale: Power | float) -> str:
    return str(scale) if isinstance(scale, Power) else f"{scale:.4g}"
