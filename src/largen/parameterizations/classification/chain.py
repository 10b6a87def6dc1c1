"""The network as the classification uses it: its affine maps in order, with exponents.

Under the abc-symmetry a weight W = m·θ is the same for all (m, θ) with the same initial size
m·s and the same rate: m²·η for gradient descent, m·η for an optimizer whose update does not depend
on the gradient's size. All exponents of the width follow from these two powers of N.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from largen.architectures import (
    Affine,
    Elementwise,
    Layer,
    Residual,
    Sequence,
    carry,
    copies_of,
    kinds_of_layers,
)
from largen.errors import NoRule
from largen.parameterizations.classification.orders import ONE, ZERO, Order
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Row, RuleTable


@dataclass(frozen=True)
class Entry:
    """Exponents of the entries of one weight or bias.

    Attributes
    ----------
    initial
        The exponent of m·s, the effective value at initialisation.
    rate
        The exponent of m²·η, or of m·η for an adaptive optimizer.
    multiplier, eps
        The exponents of m and of the optimizer's ε.
    """

    initial: Fraction
    rate: Fraction
    multiplier: Fraction
    eps: Fraction

    def with_smaller_rates(self, power: Fraction) -> Entry:
        """Return the exponents with the rate multiplied by N^(−power)."""
        return replace(self, rate=self.rate - power)


@dataclass(frozen=True)
class Map:
    """An affine map and its exponents.

    ``fan_in`` and ``fan_out`` are the orders of its numbers of inputs and outputs: 0 for data and
    outputs, 1 for the width.
    """

    name: str
    role: str
    weight: Entry
    bias: Entry | None
    fan_in: Fraction
    fan_out: Fraction

    def with_smaller_rates(self, power: Fraction) -> Map:
        """Return the map with its rates multiplied by N^(−power)."""
        bias = None if self.bias is None else self.bias.with_smaller_rates(power)
        return replace(self, weight=self.weight.with_smaller_rates(power), bias=bias)


# A residual branch is what stands between "split" and "merge".
Step = Map | Literal["split", "merge"]
Chain = tuple[Step, ...]


def chain(net: Layer, table: RuleTable[Power], adaptive: bool) -> Chain:
    """Return a network as a chain of affine maps; activations do not change orders.

    Raises
    ------
    NoRule
        If a layer is neither affine nor elementwise, and does not say that it is homogeneous.
    """
    rows: dict[str, dict[str, Row[Power]]] = {}
    for row in table.rows:
        rows.setdefault(row.site.name, {})[row.kind] = row

    def leaf(layer: Layer, path: tuple[int, ...], steps: Chain) -> Chain:
        if isinstance(layer, Affine):
            name = ".".join(map(str, path)) or "0"
            return (*steps, _affine(name, rows[name], adaptive))
        if isinstance(layer, Elementwise) or layer.homogeneous:
            return steps
        raise _no_rule(layer)

    def join(layer: Layer, path: tuple[int, ...], steps: Chain, ways: Any) -> Chain:
        if not isinstance(layer, Residual) or layer.shortcut is not None:
            raise _no_rule(layer)
        return (*ways[0]((*steps, "split")), "merge")

    def again(layer: Sequence, path: tuple[int, ...], steps: Chain, once: Any) -> Chain:
        return steps + copies_of(layer) * once(())

    return carry(net, (), leaf=leaf, join=join, again=again)


def _no_rule(layer: Layer) -> NoRule:
    keep = [kind for kind in kinds_of_layers() if kind.homogeneous]
    return NoRule("the classification", layer, [Affine, Elementwise, Residual, Sequence, *keep])


def with_smaller_rates(steps: Chain, power: Fraction) -> Chain:
    """Return the network with its rates multiplied by N^(−power)."""
    return tuple(s.with_smaller_rates(power) if isinstance(s, Map) else s for s in steps)


def affine_maps(steps: Chain) -> tuple[Map, ...]:
    """Return the affine maps alone."""
    return tuple(step for step in steps if isinstance(step, Map))


def _affine(name: str, rows: dict[str, Row[Power]], adaptive: bool) -> Map:
    role = rows["weight"].site.role
    return Map(
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
