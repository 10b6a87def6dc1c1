"""What a call that runs as it is on a population of neurons must not do.

A call runs as it is if it acts on each neuron alone, or by means over all of them, which converge.
Others along an axis that grows with the width have no limit, or one that is random: they are
refused by name, as are all functions that a library's table does not list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import prod
from typing import Any

from largen.reading.calls import Param, Ref, leaves_of
from largen.reading.engine.calls import Pending
from largen.reading.engine.population import Engine

Table = tuple[tuple[frozenset[str], Callable[[Any, Any], None]], ...]
UNKNOWN = "there is no rule for this function on populations of neurons"


def check_by(table: Table, engine: Engine, call: Pending, otherwise: str = UNKNOWN) -> None:
    """Refuse a call that cannot run as it is, by the first rule of its name."""
    engine.check_numbers(call)
    for names, rule in table:
        if call.op in names:
            rule(engine, call)
            return
    raise engine.refused(call, otherwise)


def check_part(engine: Engine, call: Pending) -> None:
    """Refuse a part of the neurons whose number does not grow as theirs does."""
    first = next(leaves_of(call.args))
    one, two = (prod(shape) for shape in engine.widths.shapes(first))
    made = engine.widths.calls(call.index)
    if prod(made[0].shape) * two != prod(made[1].shape) * one:
        raise engine.refused(
            call, "it takes a part of the channels whose number does not grow with the width"
        )


def check_along(engine: Engine, call: Pending, tensor: Ref | Param, axes: Collection[int]) -> None:
    """Refuse a function along an axis that grows."""
    for axis in engine.widths.wide(tensor):
        if axis in axes:
            raise engine.refused(
                call, f"{call.op} over axis {axis}, which grows with the width, has no limit"
            )


def check_sum(engine: Engine, call: Pending, tensor: Ref | Param, axes: Collection[int]) -> None:
    """Refuse a sum over an axis that grows, but for a mean."""
    if set(engine.widths.wide(tensor)) & set(axes):
        engine.check_mean(call, "a sum over an axis that grows with the width")


def check_join(engine: Engine, call: Pending, parts: Iterable[Any], axis: int) -> None:
    """Refuse a concatenation of channels that grow with others that do not."""
    grow = {isinstance(x, (Ref, Param)) and axis in engine.widths.wide(x) for x in parts}
    if len(grow) > 1:
        raise engine.refused(call, "it joins channels that grow with the width and others")


def check_product(
    engine: Engine, call: Pending, summed: Iterable[tuple[Any, Collection[int]]]
) -> None:
    """Refuse a product of values that sums over neurons, but for a mean of them.

    ``summed``: the factors, with the axes of each that are summed over.
    """
    for tensor, axes in summed:
        if not isinstance(tensor, (Ref, Param)) or not set(engine.widths.wide(tensor)) & set(axes):
            continue
        # One axis of neurons: a vector of each, as learned queries are, and no matrix of them.
        matrices = [
            leaf
            for leaf in leaves_of((call.args, call.kwargs))
            if len(engine.widths.wide(leaf)) > 1
        ]
        if made := engine.of_parameters(matrices):
            raise engine.refused(
                call,
                f"its weight is computed from parameters ({made}); a transposed, tied, shared or "
                "reparameterised matrix has no rule",
            )
        engine.check_mean(
            call,
            "a sum over channels that grow with the width, as of attention heads of a growing "
            "size,",
        )
