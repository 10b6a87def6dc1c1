"""Deep linear networks: the closed equations.

In a linear network all fields are linear in the fresh vectors of their layer, and averages follow
from these being orthonormal. With C = A^(l−1) + κ tril(H^(l−1), −1)Δ and D = Bˡ + κ tril(G^(l+1),
−1)Δ over all times and samples,

    Hˡ = (1−CD)⁻¹ (H^(l−1) + C G^(l+1) Cᵀ) (1−CD)⁻ᵀ,    Aˡ = (1−CD)⁻¹C,    B^(l−1) = (1−DC)⁻¹D

and similarly for Gˡ with C and D exchanged. No matrices of that size are needed: the sweep, in
which unit vectors represent the fresh vectors, solves the equations by forward substitution.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.errors import NumericalFailure
from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import TOGETHER, Precision
from largen.theories.mean_field.deep.matrices.row_buffers import BLOCK, capacity_for
from largen.theories.mean_field.deep.sweep.advance import COPIES, BasesFull, Swept, advance
from largen.theories.mean_field.deep.sweep.schedule import Schedule
from largen.theories.mean_field.deep.sweep.start import begin, initial_matrices, unit
from largen.theories.mean_field.deep.sweep.state import NOTHING_MORE, Kept, SweepModel
from largen.theories.mean_field.record_times import Recorded

TOLERANCE = 1e-7  # relative size of omitted directions, whose squares enter averages


class Size(NamedTuple):
    """Sizes of the buffers for the directions of a linear network."""

    # rows, capacity: the number of directions per side of a matrix for which there are unit
    # vectors, and for which buffers have rows.
    rows: int
    capacity: int
    # The number of unit vectors of a layer, one for each fresh vector. Layers of a residual stream
    # share them: a network of L blocks takes L² · capacity · rows numbers.
    units: int
    held: float  # the number of bytes of all matrices during the sweep

    @classmethod
    def of(cls, problem: Problem, rows: int) -> Size:
        """Return the sizes for a number of directions."""
        most = int(np.bincount(problem.streams).max())  # layers that share their neurons
        sides, capacity = 1 + problem.taps, capacity_for(rows)
        units = sides * rows * most
        held = 8 * COPIES * len(problem.skips) * capacity * (2 * sides * units + capacity)
        return cls(rows, capacity, units, held)

    @classmethod
    def within(cls, problem: Problem, rows: int, budget: float) -> Size:
        """Return the sizes for a number of directions, or for as many as fit into a budget."""
        size = cls.of(problem, rows)
        while size.held > budget and size.rows > BLOCK:
            size = cls.of(problem, capacity_for(size.rows) - BLOCK)
        return size


def first_rows(problem: Problem, steps: float, records: int = 0) -> int:
    """Return the initial number of directions per side, which most runs do not exceed.

    A step adds at most as many directions as there are columns, and a record at most as many as
    columns times outputs, so that short runs need few. Long runs have less than a hundred
    directions, for few samples as for many.
    """
    directions = problem.columns * (steps + 2 + records * problem.outputs) + TOGETHER + 1
    return int(min(4 * problem.columns + 128, directions))


def solve_linear(
    problem: Problem,
    run: Run,
    schedule: Schedule,
    recorded: Recorded,
    tolerance: float,
    kept: Kept = NOTHING_MORE,
    budget: float = np.inf,
) -> Swept:
    """Return the solution of a linear network, in float64."""
    records = len(recorded.single | recorded.paired)
    rows = first_rows(problem, len(schedule.rates) - 1, records)
    size = Size.within(problem, rows, budget)
    with in_precision(np.zeros((), np.float64)):
        while True:
            model = SweepModel.of(problem, run, "linear", kept, size.units)
            start, used = unit(problem, size.units, np.float64)
            draws = jnp.asarray(used, jnp.int32)
            rule, matrices = (
                Precision(1.0, tolerance),
                initial_matrices(start, (size.capacity, size.capacity)),
            )
            state, constants = begin(problem, run, schedule, start, draws, rule, matrices)
            del start, matrices
            try:
                return advance(model, state, constants, problem, schedule, recorded, growth=False)
            except BasesFull as full:
                larger = Size.within(problem, 2 * size.capacity, budget)
                if larger.capacity <= size.capacity:
                    more = Size.of(problem, 2 * size.capacity)
                    raise NumericalFailure(
                        f"memory_budget: the closed equations take {more.held:.2g} bytes for "
                        f"{more.capacity} directions of each of {problem.hidden_layers} layers, "
                        f"and the budget is {budget:.2g}. Take method='sweep', or raise it.",
                        full.result,
                    ) from None
                size = larger
            del state
