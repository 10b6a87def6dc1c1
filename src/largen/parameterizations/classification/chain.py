"""What the classification needs of a network: its affine maps in order, with exponents.

Under the abc-symmetry a weight W = m·θ is the same for all (m, θ) with the same initial size
m·s and the same rate m²·η of gradient descent, or m·η of an optimizer whose update ignores the
gradient's size. These two powers of N are all that the widths' exponents depend on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from largen.architectures import (
    Activation,
    AvgPool,
    Conv,
    ConvTranspose,
    Dense,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Layer,
    LocallyConnected,
    MaxPool,
    Repeat,
    Residual,
    Serial,
    SumPool,
)
from largen.errors import NoRule
from largen.parameterizations.classification.orders import ONE, ZERO, Order
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Row, RuleTable

# Layers without weights that leave every power of N as it is.
_KEEPS_THE_ORDER = (
    Activation,
    AvgPool,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    MaxPool,
    SumPool,
)


@dataclass(frozen=True)
class Entry:
    """Exponents of one weight or bias, entry by entry.

    Attributes
    ----------
    initial
        Of m·s, its effective value at initialisation.
    rate
        Of m²·η, or of m·η for an adaptive optimizer.
    multiplier, eps
        Of m, and of the optimizer's ε.
    """

    initial: Fraction
    rate: Fraction
    multiplier: Fraction
    eps: Fraction

    def slowed(self, power: Fraction) -> Entry:
        """The same at N^(−power) times the rate."""
        return replace(self, rate=self.rate - power)


@dataclass(frozen=True)
class Affine:
    """An affine map: ``fan_in`` and ``fan_out`` are the orders of its numbers of inputs, outputs.

    Both are 0 (data, outputs) or 1 (width).
    """

    name: str
    role: str
    weight: Entry
    bias: Entry | None
    fan_in: Fraction
    fan_out: Fraction

    def slowed(self, power: Fraction) -> Affine:
        """The same at N^(−power) times the rates."""
        bias = None if self.bias is None else self.bias.slowed(power)
        return replace(self, weight=self.weight.slowed(power), bias=bias)


# A residual branch is what stands between "split" and "merge".
Step = Affine | Literal["split", "merge"]
Chain = tuple[Step, ...]


def chain(net: Layer, table: RuleTable[Power], adaptive: bool) -> Chain:
    """Return a network as a chain of affine maps; activations keep all orders.

    Raises
    ------
    NoRule
        If a layer is neither affine nor an activation.
    """
    rows: dict[str, dict[str, Row[Power]]] = {}
    for row in table.rows:
        rows.setdefault(row.site.name, {})[row.kind] = row
    return tuple(_walk(net, (), rows, adaptive))


def slowed(steps: Chain, power: Fraction) -> Chain:
    """The same network at N^(−power) times its rates."""
    return tuple(step.slowed(power) if isinstance(step, Affine) else step for step in steps)


def affine_maps(steps: Chain) -> tuple[Affine, ...]:
    """Return the affine maps alone."""
    return tuple(step for step in steps if isinstance(step, Affine))


def _walk(
    layer: Layer, path: tuple[int, ...], rows: dict[str, dict[str, Row[Power]]], adaptive: bool
) -> Iterator[Step]:
    match layer:
        case Serial(layers):
            for position, inner in enumerate(layers):
                yield from _walk(inner, (*path, position), rows, adaptive)
        case Repeat(inner, times):
            yield from times * tuple(_walk(inner, (*path, 0), rows, adaptive))
        case Residual(branch, None):
            yield "split"
            yield from _walk(branch, (*path, 0), rows, adaptive)
            yield "merge"
        case Dense() | Conv() | ConvTranspose() | LocallyConnected():
            name = ".".join(map(str, path)) or "0"
            yield _affine(name, rows[name], adaptive)
        case _ if isinstance(layer, _KEEPS_THE_ORDER):
            return
        case _:
            affine = (Dense, Conv, ConvTranspose, LocallyConnected)
            known = (*affine, *_KEEPS_THE_ORDER, Repeat, Residual, Serial)
            raise NoRule("the classification", layer, known)


def _affine(name: str, rows: dict[str, Row[Power]], adaptive: bool) -> Affine:
    role = rows["weight"].site.role
    return Affine(
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
    """Order of the gradient of θ itself, m·(∂f/∂h)·(input)."""
    if backward is None or forward is None:
        return None
    return entry.multiplier + backward + forward
