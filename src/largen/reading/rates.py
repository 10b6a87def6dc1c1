"""The tangent kernel of a module whose parameters have given rates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from largen.architectures import Graph
from largen.errors import InvalidInput, NoTheory
from largen.parameterizations import Parameterization, ntk
from largen.reading.laws import Parameter
from largen.reading.nodes import Nodes, Trained
from largen.scalars import real
from largen.text import shown

# The variance of biases that are 0 at initialisation: it is lost in sums with other variances, and
# with it the bias is there, and its rate.
NONE = 1e-100


def at_rates(
    nodes: Nodes, parameters: Mapping[str, Parameter], rates: Any, frozen: Collection[str] = ()
) -> tuple[Graph, Parameterization]:
    """Return the network of a width, and a parameterization in which Θ = Σ_k ρ_k ⟨∂f, ∂f'⟩.

    A weight W = σθ with a standard normal θ that moves with the rate ρ/σ² in the NTK
    parameterization moves with the rate ρ itself.
    """
    of = checked(rates, nodes, frozen)
    nodes, trained = nodes.with_gains()
    variances, found = {}, {}
    for path, node in nodes.paths().items():
        if its := trained.get(node):
            found |= _of_gains(f"{path[0]}", its, of)
        if (each := nodes.maps.get(node)) is None:
            continue
        weight, bias = each.variances(parameters)
        bias = bias if each.bias is None else max(bias, NONE)
        variances[node] = weight, bias
        law = parameters[each.weight].law
        assert law is not None
        found[f"{path[0]}.weight"] = of(each.weight) / law.variance
        if each.bias is not None:
            found[f"{path[0]}.bias"] = of(each.bias) * each.bias_factor**2 / bias
    return nodes.graph(variances), ntk().with_rates(found)


def _of_gains(name: str, its: Trained, of: Any) -> dict[str, float]:
    """Return the rates of gains by their names in the rule table; the gains are those over a."""
    found = {f"{name}.gain": 0.0 if its.gain is None else of(its.gain) / its.factor**2}
    if its.offset is not None:
        found[f"{name}.offset"] = of(its.offset)
    if any(found.values()) and not its.alike:
        raise NoTheory(
            f"rates: {its.gain or its.offset} has gains of positions, and there is a rule for one "
            "of each channel; give it the rate 0."
        )
    return found


def checked(rates: Any, nodes: Nodes, frozen: Collection[str] = (), gains: bool = True) -> Any:
    """Return the function from names to rates; without ``gains`` theirs have to be 0.

    Parameters that are ``frozen`` have the rate 0 unless they are named.
    """
    of = _by_name(rates, nodes, frozen)
    for name in nodes.gains if not gains else ():
        if of(name):
            raise NoTheory(
                f"rates: populations have no rule for trained gains and offsets, {name}; give it "
                "the rate 0."
            )
    return of


def _by_name(rates: Any, nodes: Nodes, frozen: Collection[str]) -> Any:
    names: set[Any] = {name for each in nodes.maps.values() for name in (each.weight, each.bias)}
    names = (names | nodes.gains) - {None}
    if not isinstance(rates, Mapping):
        rate = real("rates", rates, at_least=0)
        return lambda name: 0.0 if name in frozen else rate
    for name in rates:
        if name not in names:
            raise InvalidInput(
                f"rates: {shown(name)} is no parameter of an affine map or a normalisation; there "
                f"are {', '.join(sorted(names)[:8])}."
            )
    found = {name: real(f"rates[{name!r}]", r, at_least=0) for name, r in rates.items()}
    return lambda name: found.get(name, 0.0 if name in frozen else 1.0)
