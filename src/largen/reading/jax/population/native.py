"""Which primitives run as they are at a population of neurons, and which must not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

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
from largen.traces.primitives import (
    ALONG_AXES,
    COPIES,
    ELEMENTWISE,
    GATHERS,
    SCATTERS,
    VIEWS,
    WINDOWS,
    axes_of,
)

if TYPE_CHECKING:
    from largen.reading.engine.calls import Pending
    from largen.reading.jax.population.run import Population

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
    rank = len(population.widths.shapes(tensor)[0])
    check_along(population, call, tensor, axes_of(call.op, call.kwargs, rank))


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
    (ELEMENTWISE | COPIES | {"to_float", "optimization_barrier"}, _anywhere),
    (VIEWS | GATHERS, check_part),
    (frozenset({"reduce_sum"}), _sum),
    (ALONG_AXES, _along),
    (WINDOWS, _window),
    (frozenset({"dynamic_update_slice"}), _update),
    (SCATTERS, _scatter),
    (frozenset({"concatenate"}), _join),
    (frozenset({"dot_general"}), _contraction),
)
