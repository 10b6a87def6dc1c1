"""The exponents that the classification predicts for what is measured."""

from __future__ import annotations

from fractions import Fraction

from largen.architectures import Layer, Repeat, Residual, Serial
from largen.experiments.exponents.quantities import Name
from largen.parameterizations import Classification, LayerScaling
from largen.parameterizations.classification.orders import Order, largest, product
from largen.runs import Run


def predicted(run: Run, classification: Classification, *, seen: bool) -> dict[Name, Order]:
    """Return exponents by group and name; None for what is zero, nothing where there is no theory.

    Parameters
    ----------
    run
        What is trained, and for how many steps.
    classification
        Of its parameterization.
    seen
        Whether outputs are those at training inputs.
    """
    layers: dict[str, list[LayerScaling]] = {}
    for layer in classification.layers:
        layers.setdefault(f"{layer.name}.weight", []).append(layer)
    table = run.param.table(run.net, run.optimizer)
    found: dict[Name, Order] = {}
    stream = _has_branches(run.net)
    behind: Order = None
    for position, (name, copies) in enumerate(layers.items()):
        moved = largest(*(copy.increment for copy in copies))
        found["relative", name] = moved
        found["absolute", name] = product(moved, Fraction(table[name].init_std.width))
        if position:
            found["features", name] = behind
        change = largest(*(copy.change for copy in copies))
        # A residual stream carries all that has entered it.
        behind = largest(behind, change) if stream else change
    found["outputs", "f at start"] = classification.outputs[0]
    steps = len(classification.moved) - 1 if run.steps is None else run.steps
    found["outputs", "δf"] = classification.moved[min(steps, len(classification.moved) - 1)]
    plane = classification.plane
    if plane is not None:
        late = plane.settled or 1
        step = late if run.steps is None else run.steps
        parts = plane.terms(step, seen=seen)
        found |= {("terms", f"f_{name}"): order for name, order in parts.items()}
    return found


def _has_branches(net: Layer) -> bool:
    match net:
        case Residual():
            return True
        case Serial(layers):
            return any(map(_has_branches, layers))
        case Repeat(layer, _):
            return _has_branches(layer)
    return False
