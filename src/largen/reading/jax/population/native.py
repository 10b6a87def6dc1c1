"""Which primitives run as they are on a population of neurons, and what they must not do.

A primitive runs as it is if it acts on each neuron alone, or by means over all of them, which
converge. Others along an axis that grows with the width have no limit, or one that is random.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from largen.reading.calls import Param, Ref, leaves_of
from largen.reading.jax.elementwise import FUNCTIONS

if TYPE_CHECKING:
    from largen.reading.engine.calls import Pending
    from largen.reading.jax.population.run import Population

ELEMENTWISE = frozenset(FUNCTIONS) | {
    "select_n", "stop_gradient", "convert_element_type", "reduce_precision", "nextafter", "rem",
    "real", "round", "lgamma", "digamma", "erf_inv", "copy_p", "population_count", "iota",
    "broadcast_in_dim", "optimization_barrier",
}  # fmt: skip
VIEWS = frozenset({
    "reshape", "transpose", "squeeze", "expand_dims", "slice", "dynamic_slice", "rev", "pad",
    "gather",
})  # fmt: skip
ALONG = frozenset({
    "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin",
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort", "top_k",
})  # fmt: skip
WINDOWS = frozenset({
    "reduce_window_sum", "reduce_window_max", "reduce_window_min", "reduce_window",
})  # fmt: skip
AXES = ("axes", "axis", "dimension", "dimensions")  # the options that say along which axes


LOOPS: dict[str, str] = dict.fromkeys(
    ("while", "cond"), "what it does depends on values; a loop of known length has a rule"
)


def check(population: Population, call: Pending) -> None:
    """Refuse a primitive that cannot run as it is."""
    population.check_numbers(call)
    for names, rule in _TABLE:
        if call.op in names:
            rule(population, call)
            return
    why = "there is no rule for this function on populations of neurons"
    raise population.refused(call, LOOPS.get(call.op, why))


def _anywhere(population: Population, call: Pending) -> None:
    """Elementwise functions act on each neuron alone."""


def _view(population: Population, call: Pending) -> None:
    """Refuse a part of the neurons whose number does not grow as theirs does."""
    first = next(leaves_of(call.args))
    one, two = (prod(shape) for shape in population.widths.shapes(first))
    made = population.widths.calls(call.index)
    if prod(made[0].shape) * two != prod(made[1].shape) * one:
        raise population.refused(
            call, "it takes a part of the channels whose number does not grow with the width"
        )


def _along(population: Population, call: Pending) -> None:
    (tensor,) = leaves_of(call.args)
    if call.op == "top_k":
        axes: Any = (len(population.widths.shapes(tensor)[0]) - 1,)
    else:
        axes = next(call.kwargs[name] for name in AXES if name in call.kwargs)
    axes = axes if isinstance(axes, tuple) else (axes,)
    for axis in population.widths.wide(tensor):
        if axis in axes:
            raise population.refused(
                call, f"{call.op} over axis {axis}, which grows with the width, has no limit"
            )


def _sum(population: Population, call: Pending) -> None:
    (tensor,) = leaves_of(call.args)
    if set(population.widths.wide(tensor)) & set(call.kwargs["axes"]):
        population.check_mean(call, "a sum over an axis that grows with the width")


def _window(population: Population, call: Pending) -> None:
    tensor = next(leaves_of(call.args))
    if any(call.kwargs["window_dimensions"][axis] != 1 for axis in population.widths.wide(tensor)):
        raise population.refused(call, "its windows are along an axis that grows with the width")


def _join(population: Population, call: Pending) -> None:
    """Refuse a concatenation of channels that grow with others that do not."""
    axis = call.kwargs["dimension"]
    grow = {
        isinstance(each, (Ref, Param)) and axis in population.widths.wide(each)
        for each in call.args
    }
    if len(grow) > 1:
        raise population.refused(call, "it joins channels that grow with the width and others")


def _contraction(population: Population, call: Pending) -> None:
    """Refuse a product of two values that sums over neurons, but for a mean of them."""
    summed, _ = call.kwargs["dimension_numbers"]
    for tensor, axes in zip(call.args, summed, strict=True):
        grows = isinstance(tensor, (Ref, Param)) and set(population.widths.wide(tensor)) & set(axes)
        if not grows:
            continue
        if made := population.of_parameters(list(leaves_of(call.args))):
            raise population.refused(
                call,
                f"its weight is computed from parameters ({made}); a transposed, tied, shared or "
                "reparameterised matrix has no rule",
            )
        population.check_mean(
            call,
            "a sum over channels that grow with the width, as of attention heads of a growing "
            "size,",
        )


_TABLE: tuple[tuple[frozenset[str], Callable[[Any, Any], None]], ...] = (
    (ELEMENTWISE, _anywhere),
    (VIEWS, _view),
    (ALONG, _along),
    (frozenset({"reduce_sum"}), _sum),
    (WINDOWS, _window),
    (frozenset({"concatenate"}), _join),
    (frozenset({"dot_general"}), _contraction),
)
