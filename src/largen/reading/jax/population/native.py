"""Which primitives run as they are at a population of neurons, and which must not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from largen.reading.calls import leaves_of
from largen.reading.engine.native import (
    UNKNOWN,
    Table,
    check_along,
    check_by,
    check_join,
    check_part,
    check_product,
    check_sum,
)
from largen.reading.jax.elementwise import FUNCTIONS

if TYPE_CHECKING:
    from largen.reading.engine.calls import Pending
    from largen.reading.jax.population.run import Population

ELEMENTWISE = frozenset(FUNCTIONS) | {
    "select_n", "stop_gradient", "convert_element_type", "reduce_precision", "nextafter", "rem",
    "real", "round", "lgamma", "digamma", "erf_inv", "copy_p", "population_count", "iota",
    "broadcast_in_dim", "optimization_barrier", "tile",
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
SCATTERS = frozenset({"scatter", "scatter-add", "scatter-sub", "scatter-mul"})
AXES = ("axes", "axis", "dimension", "dimensions")  # the options that say along which axes


LOOPS: dict[str, str] = dict.fromkeys(
    ("while", "cond"), "what it does depends on values; a loop of known length has a rule"
)


def check(population: Population, call: Pending) -> None:
    """Refuse a primitive that cannot run as it is."""
    check_by(_TABLE, population, call, LOOPS.get(call.op, UNKNOWN))


def _anywhere(population: Population, call: Pending) -> None:
    """Elementwise functions act on each neuron alone."""


def _along(population: Population, call: Pending) -> None:
    (tensor,) = leaves_of(call.args)
    if call.op == "top_k":
        axes: Any = (len(population.widths.shapes(tensor)[0]) - 1,)
    else:
        axes = next(call.kwargs[name] for name in AXES if name in call.kwargs)
    check_along(population, call, tensor, axes if isinstance(axes, tuple) else (axes,))


def _sum(population: Population, call: Pending) -> None:
    (tensor,) = leaves_of(call.args)
    check_sum(population, call, tensor, call.kwargs["axes"])


def _window(population: Population, call: Pending) -> None:
    tensor = next(leaves_of(call.args))
    if any(call.kwargs["window_dimensions"][axis] != 1 for axis in population.widths.wide(tensor)):
        raise population.refused(call, "its windows are along an axis that grows with the width")


def _scatter(population: Population, call: Pending) -> None:
    its = call.kwargs["dimension_numbers"]
    axes = (*its.scatter_dims_to_operand_dims, *its.inserted_window_dims)
    _check_written(population, call, {int(axis) for axis in axes})


def _update(population: Population, call: Pending) -> None:
    whole, part, *_ = population.shapes
    _check_written(population, call, {i for i, n in enumerate(part) if n != whole[i]})


def _check_written(population: Population, call: Pending, axes: Collection[int]) -> None:
    """Refuse new values at places along axes, if one of these grows."""
    one, two = (made.shape for made in population.widths.calls(call.index))
    if any(one[axis] != two[axis] for axis in axes):
        raise population.refused(
            call, "it writes into a part of the channels; wanted all of them at a position"
        )


def _join(population: Population, call: Pending) -> None:
    check_join(population, call, call.args, call.kwargs["dimension"])


def _contraction(population: Population, call: Pending) -> None:
    summed, _ = call.kwargs["dimension_numbers"]
    check_product(population, call, zip(call.args, summed, strict=True))


_TABLE: Table = (
    (ELEMENTWISE, _anywhere),
    (VIEWS, check_part),
    (ALONG, _along),
    (frozenset({"reduce_sum"}), _sum),
    (WINDOWS, _window),
    (SCATTERS, _scatter),
    (frozenset({"dynamic_update_slice"}), _update),
    (frozenset({"concatenate"}), _join),
    (frozenset({"dot_general"}), _contraction),
)
