"""The exponents that the classification predicts for the measured quantities."""

from __future__ import annotations

from fractions import Fraction

from largen.experiments.exponents.quantities import Name, has_terms
from largen.parameterizations.classification import Classification, LayerScaling
from largen.parameterizations.classification.one_hidden_layer import increments, terms
from largen.parameterizations.classification.orders import Order, largest, product
from largen.runs import Run


def predicted(run: Run, classification: Classification, *, seen: bool) -> dict[Name, Order]:
    """Return exponents by group and name; None for zero quantities, no key without a theory."""
    layers: dict[str, list[LayerScaling]] = {}
    for layer in classification.layers:
        layers.setdefault(f"{layer.name}.weight", []).append(layer)
    table = run.param.table(run.net, run.optimizer)
    orders: dict[Name, Order] = {}
    for name, copies in layers.items():
        moved = largest(*(copy.increment for copy in copies))
        orders["relative", name] = moved
        orders["absolute", name] = product(moved, Fraction(table[name].init_std.width))
        if copies[0].role != "input":
            orders["features", name] = largest(*(copy.input_change for copy in copies))
    orders["outputs", "f at start"] = classification.outputs[0]
    steps = len(classification.moved) - 1 if run.steps is None else run.steps
    orders["outputs", "δf"] = classification.moved[min(steps, len(classification.moved) - 1)]
    plane = classification.plane
    if run.optimizer.adaptive and has_terms(run.net):
        orders |= {("terms", f"f_{n}"): q for n, q in _adaptive_terms(run, steps, seen).items()}
    elif plane is not None:
        late = plane.constant_from or 1
        step = late if run.steps is None else run.steps
        parts = plane.terms(step, seen=seen)
        orders |= {("terms", f"f_{name}"): order for name, order in parts.items()}
    return orders


def _adaptive_terms(run: Run, steps: int, seen: bool) -> dict[str, Order]:
    """Return the exponents of f_∅, f_a, f_w and f_aw where updates have the size of the rate."""
    table = run.param.table(run.net, run.optimizer)
    into, out = (row.rule for row in table.rows)
    sigma = sum((rule.multiplier * rule.init_std).width for rule in (into, out))
    first_a, first_w = (Fraction((rule.lr / rule.init_std).width) for rule in (out, into))
    return terms(Fraction(sigma), increments(first_a, first_w, steps, adaptive=True), seen=seen)
