"""The network as the classification uses it: its program, and the exponents of its affine maps.

Under the abc-symmetry a weight W = m·θ is the same for all (m, θ) with the same initial size
m·s and the same rate: m²·η for gradient descent, m·η for an optimizer whose update does not depend
on the gradient's size. All exponents of the width follow from these two powers of N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from largen.architectures import Layer
from largen.parameterizations.classification.orders import ONE, ZERO, Order
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Row, RuleTable
from largen.programs import (
    Affine,
    Concatenate,
    Data,
    Function,
    Normalise,
    Operation,
    Product,
    Program,
    check_independent,
    no_rule,
    program_of,
    written_out,
)


@dataclass(frozen=True)
class Entry:
    """Exponents of the entries of one weight or bias."""

    # The exponent of m·s, the effective value at initialisation; None where this is 0.
    initial: Order
    rate: Fraction  # the exponent of m²·η, or of m·η for an adaptive optimizer
    # multiplier, eps: the exponents of m and of the optimizer's ε.
    multiplier: Fraction
    eps: Fraction

    def with_smaller_rates(self, power: Fraction) -> Entry:
        """Return the exponents with the rate multiplied by N^(−power)."""
        return replace(self, rate=self.rate - power)


@dataclass(frozen=True)
class MapExponents:
    """The exponents of an affine map; fans of data and outputs have order 0, others 1."""

    name: str
    role: str
    weight: Entry
    bias: Entry | None
    fan_in: Fraction
    fan_out: Fraction

    def with_smaller_rates(self, power: Fraction) -> MapExponents:
        """Return the map with its rates multiplied by N^(−power)."""
        bias = None if self.bias is None else self.bias.with_smaller_rates(power)
        return replace(self, weight=self.weight.with_smaller_rates(power), bias=bias)


@dataclass(frozen=True)
class ScaledProgram:
    """A program without repetitions, and the exponents of its affine maps."""

    # The program. Operations that are not affine maps, products or normalisations have the order of
    # the largest value that they read.
    program: Program
    maps: tuple[MapExponents, ...]  # the affine maps in order

    def with_smaller_rates(self, power: Fraction) -> ScaledProgram:
        """Return the network with its rates multiplied by N^(−power)."""
        return replace(self, maps=tuple(each.with_smaller_rates(power) for each in self.maps))


def scaled_program(net: Layer, table: RuleTable[Power], adaptive: bool) -> ScaledProgram:
    """Return the program of a network with the exponents of a rule table."""
    rows: dict[str, dict[str, Row[Power]]] = {}
    for row in table.rows:
        rows.setdefault(row.site.name, {})[row.kind] = row
    return with_exponents(net, lambda name: _affine(name, rows[name], adaptive))


def with_exponents(net: Layer, exponents: Callable[[str], MapExponents]) -> ScaledProgram:
    """Return the program of a network with the exponents of each affine map by name."""
    program = written_out(program_of(net))
    known = (Data, Affine, Function, Concatenate, Normalise, Product)
    for operation, source in zip(program.operations, program.sources, strict=True):
        if not isinstance(operation, known) and not operation.homogeneous:
            raise no_rule("the classification", operation, source, [*known[1:], *_homogeneous()])
    check_independent(program, "the classification")
    weights = (program.weights[o.weight] for o in program.operations if isinstance(o, Affine))
    return ScaledProgram(program, tuple(exponents(weight.name) for weight in weights))


def _homogeneous() -> list[type[Operation]]:
    return [kind for kind in Operation.__subclasses__() if kind.homogeneous]


def _affine(name: str, rows: dict[str, Row[Power]], adaptive: bool) -> MapExponents:
    role = rows["weight"].site.role
    return MapExponents(
        name,
        role,
        weight=_entry(rows["weight"], adaptive),
        bias=_entry(rows["bias"], adaptive) if "bias" in rows else None,
        fan_in=ZERO if role == "input" else ONE,
        fan_out=ZERO if role == "output" else ONE,
    )


def _entry(row: Row[Power], adaptive: bool) -> Entry:
    multiplier, rate = Fraction(row.rule.multiplier.width), Fraction(row.rule.lr.width)
    return Entry(
        initial=multiplier + Fraction(row.rule.init_std.width),
        rate=multiplier + rate if adaptive else 2 * multiplier + rate,
        multiplier=multiplier,
        eps=Fraction(row.rule.eps.width),
    )


def gradient(entry: Entry, backward: Order, forward: Order) -> Order:
    """Return the order of the gradient with respect to θ, m·(∂f/∂h)·(input)."""
    if backward is None or forward is None:
        return None
    return entry.multiplier + backward + forward
