"""The rule table: how every weight of a network scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Generic, TypeVar

from largen.errors import InvalidInput
from largen.parameterizations.distributions import GAUSSIAN
from largen.parameterizations.powers import Power
from largen.programs import Weight
from largen.results import in_notebooks
from largen.text import aligned

SMALLEST_SCALE = 1e-30  # such numbers and their inverses are numbers of 32 bits

Scale = TypeVar("Scale", Power, float)


@dataclass(frozen=True)
class Rule(Generic[Scale]):
    """How one weight scales: factors of the numbers that the user gives.

    Attributes
    ----------
    multiplier
        The forward pass uses ``multiplier · θ``.
    init_std
        Standard deviation of θ at initialisation.
    lr
        Factor of the optimizer's rate η₀.
    weight_decay
        Factor of λ₀; always 1/``lr``, so that a step shrinks the weight by the fraction η₀λ₀.
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
    """The parameters of a kind at one place, their rule, and their initial distribution."""

    site: Weight
    kind: str
    rule: Rule[Scale]
    distribution: str = GAUSSIAN

    @property
    def name(self) -> str:
        """The place in the network and the kind, such as ``"0.weight"``."""
        return f"{self.site.name}.{self.kind}"

    @property
    def role(self) -> str:
        """The role whose rates they have; that of gains and offsets is that of biases."""
        return self.site.role if self.kind == "weight" else "bias"

    def drawn_by(self, distributions: Mapping[str, str]) -> Row[Scale]:
        """Return the row with the initial distribution of its role."""
        return replace(self, distribution=distributions.get(self.role, GAUSSIAN))


@dataclass(frozen=True)
class RuleTable(Mapping[str, Rule[Scale]]):
    """The rules of every weight of a network, by name, from input to output.

    Attributes
    ----------
    title
        The parameterization and the optimizer that it is for.
    rows
        One row for each weight and each bias.
    branch
        The factor of every residual branch's output, L^(−α).
    gamma
        γ = γ₀Nᵈ, by which the output is divided (already inside the read-out's multiplier), with d
        such that the read-out has the kernel scaling otherwise.
    """

    title: str
    rows: tuple[Row[Scale], ...]
    branch: Scale
    gamma: Scale
    _by_name: dict[str, Rule[Scale]] = field(init=False, repr=False, compare=False)
    _distributions: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "_by_name", {row.name: row.rule for row in self.rows})
        distributions = {row.name: row.distribution for row in self.rows}
        object.__setattr__(self, "_distributions", distributions)

    def __getitem__(self, name: str) -> Rule[Scale]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self.rows)

    def distribution(self, name: str) -> str:
        """Return the name of a weight's distribution at initialisation, such as ``"gaussian"``."""
        return self._distributions[name]

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
    """Return the table's numbers at a width, a depth and a number of inputs."""

    def value(power: Power) -> float:
        return power.at(width=width, depth=max(depth, 1), inputs=inputs)

    def rule(row: Row[Power]) -> Rule[float]:
        values = {f.name: value(getattr(row.rule, f.name)) for f in fields(Rule)}
        for name, number in values.items():
            if number and not SMALLEST_SCALE <= number <= 1 / SMALLEST_SCALE:
                raise InvalidInput(
                    f"param: the {name} of {row.name} is {getattr(row.rule, name)} = {number:.4g} "
                    f"at {sizes}, wanted a number between {SMALLEST_SCALE:g} and "
                    f"{1 / SMALLEST_SCALE:g}."
                )
        return Rule(**values)

    sizes = f"N={width}" + (f", L={depth}" if depth else "") + f", D={inputs}"
    rows = tuple(Row(row.site, row.kind, rule(row), row.distribution) for row in table.rows)
    return RuleTable(f"{table.title}, {sizes}", rows, value(table.branch), value(table.gamma))


def _show(scale: Power | float) -> str:
    return str(scale) if isinstance(scale, Power) else f"{scale:.4g}"
