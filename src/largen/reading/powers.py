"""The class of a model's initialisation, from the powers of the width that were read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from largen.errors import InvalidInput
from largen.parameterizations.classification import Classification
from largen.parameterizations.classification.by_exponents import kind_of
from largen.parameterizations.classification.deep import classify_program
from largen.parameterizations.classification.scaled_program import (
    Entry,
    MapExponents,
    with_exponents,
)
from largen.reading.laws import constant_of
from largen.reading.refusals import refused

if TYPE_CHECKING:
    from largen.reading.model import Model
    from largen.reading.weight import Weight

ZERO, ONE = Fraction(0), Fraction(1)


def classified(net: Model, optimizer: Any) -> Classification:
    """Return the class of a model with an optimizer at one rate for all parameters."""
    name, adaptive, eps = kind_of(optimizer)
    if not net.widths:
        raise InvalidInput(
            "net: it was read from one module; lg.read(make, x) with a function of the width has "
            "the powers of the width that say which class it is."
        )
    wide = net.nodes_at(net.widths[1])[0].maps
    by_node = {weight.node: weight for weight in net.weights}
    nodes = {str(path[0]): node for path, node in net.nodes.paths().items()}

    def exponents(weight: str) -> MapExponents:
        found = by_node[nodes[weight]]
        return _exponents(net, found, wide[found.node], adaptive)

    program = with_exponents(net.at(net.widths[0]), exponents)
    title = f"{net.name}, {name} at one rate for all parameters"
    return classify_program(title, program, adaptive=adaptive, eps=eps)


def _exponents(net: Model, weight: Weight, wide: Any, adaptive: bool) -> MapExponents:
    """Return the exponents of a map: those of laws, and of factors in the forward pass."""
    its, data = weight.map, weight.map.reads_data

    def entry(variance: Fraction | None, one: float, two: float) -> Entry:
        ratio = net.widths[1] / net.widths[0]
        factor = constant_of((one, two), ratio, None)
        if factor is None or factor.power is None:
            raise refused(its.weight, "a factor of the forward pass is not a power of the width")
        initial = None if variance is None else variance / 2  # None: a bias that starts at 0
        rate = factor.power if adaptive else 2 * factor.power
        return Entry(initial=initial, rate=rate, multiplier=factor.power, eps=ZERO)

    power, bias = weight.weight_variance.power or ZERO, weight.bias_variance
    starts = (bias.power or ZERO) if bias.value else None
    return MapExponents(
        its.weight.rpartition(".")[0] or its.weight,
        "input" if data else "output" if its.last else "hidden",
        weight=entry(power - (ZERO if data else ONE), its.weight_factor, wide.weight_factor),
        bias=None if its.bias is None else entry(starts, its.bias_factor, wide.bias_factor),
        fan_in=ZERO if data else ONE,
        fan_out=ZERO if its.last else ONE,
    )
