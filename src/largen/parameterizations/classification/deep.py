"""The verdict on a scaling of a network of any depth, from the orders of its recursion.

Conditions, for every layer and every step (Golikov's (13) and (14), Pehlevan and Bordelon's
lecture notes, §4.1.1 to §4.1.4, in terms of effective orders, so that they hold for any
abc-parameterization and any optimizer):

* stable: preactivations and outputs do not grow with N;
* not trivial: outputs move at order one;
* features move: the preactivations of some hidden layer change by as much as their own size;
* maximal: preactivations are of order one, and every layer's own update changes its preactivations
  and the outputs at order one.

Misprints of Golikov's multi-layer formulas: (38) prints q_f⁽⁰⁾ of one hidden matrix, in general
it is (H + 1)(q_σ + ½); (39) has H sums where there are H + 1; and the NTK scaling of RMSProp in
§4.1, η̂ ∝ 1 with σ ∝ N^(−1/2), diverges: increments that fall as the text asks need
η̂ ∝ N^(−1/2) at both ends and N^(−1) between; App. G has q_Σ,a = q_a + 3/2, but output weights
are aligned with a single one of their layer's input weights to order N^(−1/2) only, so that
q_Σ,a = q_a + 1 (its conclusions, upper bounds, stand).
"""

from __future__ import annotations

from fractions import Fraction

from largen.parameterizations.classification.orders import (
    ZERO,
    Order,
    below,
    largest,
    product,
    show,
)
from largen.parameterizations.classification.recursion import (
    MapOrders,
    Moved,
    State,
    advance,
    orders_of,
)
from largen.parameterizations.classification.report import Classification, Kind, LayerScaling
from largen.parameterizations.classification.scaled_program import (
    MapExponents,
    ScaledProgram,
    gradient,
)

History = list[tuple[MapOrders, ...]]


def classify_program(
    title: str, net: ScaledProgram, *, adaptive: bool, eps: bool
) -> Classification:
    """Return the class of a network's scaling; ``adaptive`` updates have the size of the rate."""
    state, history, violated = _train(net, adaptive)
    maps, late = net.maps, history[-1]
    layers = tuple(map(_layer, maps, late, state))
    if violated:
        kind: Kind = "unstable"
    else:
        kind = _kind(maps, late)
        if kind in ("vanishing", "stuck at initialisation"):
            change = show(late[-1].change)
            violated = (f"outputs move at order one: they move by {change} at every step",)
    return Classification(
        title,
        kind,
        layers,
        outputs=tuple(orders[-1].now for orders in history),
        moved=tuple(orders[-1].change for orders in history),
        violated=violated,
        notes=_notes(maps, late, adaptive and eps),
        stable_rate=_stable_rate(net, adaptive) if kind == "unstable" else None,
    )


def _train(net: ScaledProgram, adaptive: bool) -> tuple[State, History, tuple[str, ...]]:
    """Iterate until the orders settle or something grows.

    The increments' orders are the least solution of max-plus polynomial equations, one for each
    weight and bias. A recursion of this kind that still changes after as many steps as it has
    unknowns has gone around a cycle of positive gain, and grows without bound.
    """
    maps = net.maps
    state: State = tuple(Moved() for _ in maps)
    history = [orders_of(net, state)]
    unknowns = sum(1 if layer.bias is None else 2 for layer in maps)
    for step in range(unknowns + 2):
        growing = _growing(maps, history[-1], step)
        if growing:
            return state, history, growing
        after = advance(net, state, adaptive)
        if after == state:
            return state, history, ()
        state = after
        history.append(orders_of(net, state))
    return state, history, ("stable: updates grow in order with every step",)


def _growing(
    maps: tuple[MapExponents, ...], now: tuple[MapOrders, ...], step: int
) -> tuple[str, ...]:
    when = "at initialisation" if step == 0 else f"after step {step}"
    return tuple(
        f"stable: {_what(layer)} of order {show(signal.now)} {when}"
        for layer, signal in zip(maps, now, strict=True)
        if not below(signal.now, ZERO) and signal.now != 0
    )


def _what(layer: MapExponents) -> str:
    return "outputs" if layer.role == "output" else f"preactivations of {layer.name}"


def _kind(maps: tuple[MapExponents, ...], late: tuple[MapOrders, ...]) -> Kind:
    outputs, hidden = late[-1], late[:-1]
    if below(outputs.change, ZERO):
        return "vanishing" if below(outputs.now, ZERO) else "stuck at initialisation"
    if not any(signal.change is not None and signal.change == signal.now for signal in hidden):
        return "kernel"
    everywhere = all(
        signal.direct == 0 and signal.through(layer.fan_out) == 0
        for layer, signal in zip(maps, late, strict=True)
    )
    if everywhere and all(signal.initial == 0 for signal in hidden):
        return "maximal"
    return "feature learning"


def _layer(layer: MapExponents, signal: MapOrders, moved: Moved) -> LayerScaling:
    start = layer.weight.initial
    return LayerScaling(
        layer.name,
        layer.role,
        signal.initial,
        signal.change,
        signal.direct,
        signal.through(layer.fan_out),
        None if moved.weight is None or start is None else moved.weight - start,
        signal.input_change,
    )


def _notes(
    maps: tuple[MapExponents, ...], late: tuple[MapOrders, ...], eps: bool
) -> tuple[str, ...]:
    notes = []
    small = [
        layer.name
        for layer, signal in zip(maps[:-1], late[:-1], strict=True)
        if below(signal.initial, ZERO)
    ]
    if small:
        notes.append(f"preactivations of {', '.join(small)} vanish at initialisation")
    drowned = [
        layer.name
        for layer, signal in zip(maps, late, strict=True)
        if eps and below(gradient(layer.weight, signal.backward, signal.input), layer.weight.eps)
    ]
    if drowned:
        notes.append(
            f"gradients of {', '.join(drowned)} fall below ε as the width grows; there the updates "
            "become proportional to the gradient"
        )
    return tuple(notes)


def _stable_rate(net: ScaledProgram, adaptive: bool) -> Fraction | None:
    """Return the least ρ for which N^(−ρ) times the rates is stable, if there is one.

    The first update of each layer alone must move neither its preactivations nor the outputs by
    more than order one, and both fall as N^(−ρ). The stability of the resulting rates is verified.
    """
    maps = net.maps
    start = orders_of(net, tuple(Moved() for _ in maps))
    first = advance(net, tuple(Moved() for _ in maps), adaptive)
    excess: Order = None
    for layer, signal, moved in zip(maps, start, first, strict=True):
        direct = largest(product(moved.weight, layer.fan_in, signal.input), moved.bias)
        excess = largest(excess, direct, product(signal.backward, direct, layer.fan_out))
    if excess is None or excess <= 0:
        return None
    _, _, violated = _train(net.with_smaller_rates(excess), adaptive)
    return None if violated else excess
