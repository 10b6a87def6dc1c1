"""The tangent kernel of a module whose parameters have given rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from largen.architectures import Graph
from largen.errors import InvalidInput
from largen.parameterizations import Parameterization, ntk
from largen.reading.laws import Parameter
from largen.reading.nodes import Nodes
from largen.scalars import real
from largen.text import shown

# The variance of biases that are 0 at initialisation: it is lost in sums with other variances, and
# with it the bias is there, and its rate.
NONE = 1e-100


def at_rates(
    nodes: Nodes, parameters: Mapping[str, Parameter], rates: Any
) -> tuple[Graph, Parameterization]:
    """Return the network of a width, and a parameterization in which Θ = Σ_k ρ_k ⟨∂f, ∂f'⟩.

    A weight W = σθ with a standard normal θ that moves with the rate ρ/σ² in the NTK
    parameterization moves with the rate ρ itself.
    """
    names = {name for each in nodes.maps.values() for name in (each.weight, each.bias)}
    of = checked(rates, names - {None})
    variances, found = {}, {}
    for path, node in nodes.paths().items():
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


def checked(rates: Any, names: set[Any]) -> Any:
    """Return the function from names to rates."""
    if not isinstance(rates, Mapping):
        rate = real("rates", rates, at_least=0)
        return lambda name: rate
    for name in rates:
        if name not in names:
            raise InvalidInput(
                f"rates: {shown(name)} is no parameter of an affine map; there are "
                f"{', '.join(sorted(names)[:8])}. Trained gains and offsets of channels add a part "
                "of relative order 1/width at equal rates, for which there is no rule."
            )
    found = {name: real(f"rates[{name!r}]", r, at_least=0) for name, r in rates.items()}
    return lambda name: found.get(name, 1.0)
