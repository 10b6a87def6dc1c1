"""The memory that replicates take, and the number that fit at the same time."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.memory import check_fits
from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.sweep.advance import COPIES, first_capacities
from largen.theories.mean_field.deep.sweep.layer_widths import counts, unit_for
from largen.theories.mean_field.deep.sweep.linear import Size, first_rows
from largen.theories.mean_field.deep.sweep.start import fewest
from largen.theories.mean_field.engine.parallel import cores

# Copies of stored matrices: as drawn, in training, and after the step.
COPIES_STORED = 3.1
AT_ONCE = 2.0**30  # largest number of bytes of all replicates that are computed at the same time


def closed_equations_fit(problem: Problem, run: Run, budget: float) -> bool:
    """Whether the expected number of directions of the closed equations fits into a budget.

    For gradient flow the number of steps is determined by the error.
    """
    rows = first_rows(problem, np.inf if run.steps is None else run.steps)
    return Size.of(problem, rows).held <= budget


def check_closed(problem: Problem, budget: float) -> None:
    """Check that the closed equations of a linear network fit into a budget, and into memory."""
    needed = Size.within(problem, first_rows(problem, 1), budget).held
    if needed > budget:
        raise InvalidInput(
            f"memory_budget: the closed equations of {problem.hidden_layers} layers take about "
            f"{needed:.2g} bytes or more, and the budget is {budget:.2g}. Take method='sweep', or "
            "raise it."
        )
    what = f"method: closed equations of {problem.hidden_layers} layers"
    check_fits(needed, what, "Take method='sweep'.")


def check_memory(method: str, problem: Problem, neurons: int, dtype: Any, budget: float) -> None:
    """Check that one replicate fits into a budget, and into memory."""
    needed = _bytes(method, problem, neurons, dtype)
    if needed <= budget:
        what = f"particles: {neurons} neurons a layer by the method {method!r}"
        check_fits(needed, what, "Take fewer.")
        return
    least = smaller = unit_for(problem, fewest(problem))
    while _bytes(method, problem, 2 * smaller, dtype) <= budget:
        smaller *= 2
    instead = (
        f"particles={smaller} would fit"
        if _bytes(method, problem, smaller, dtype) <= budget
        else f"{problem.total} samples in {problem.hidden_layers} layers do not fit with the "
        f"fewest neurons, {least}; take fewer samples or raise it"
    )
    raise InvalidInput(
        f"memory_budget: {neurons} neurons a layer take about {needed:.2g} bytes by the method "
        f"{method!r}, and the budget is {budget:.2g}; {instead}."
    )


def replicates_at_once(problem: Problem, settings: NumericalSettings) -> int:
    """Return the number of replicates computed at the same time: one per core, if memory allows."""
    if jax.default_backend() != "cpu":
        return 1
    method = "dense" if settings.dense else "sweep"
    each = _bytes(method, problem, settings.particles, settings.dtype)
    return max(1, min(cores(), int(min(settings.budget, AT_ONCE) // each)))


def _bytes(method: str, problem: Problem, neurons: int, dtype: Any) -> float:
    """Return an estimate of the bytes that one replicate takes, without the program itself."""
    layers, taps = problem.hidden_layers, problem.taps
    neurons = max(counts(problem, neurons))
    places = max(max(problem.positions), taps * problem.output_positions)
    passing = 4 * layers * problem.total * places * problem.outputs * neurons
    copies = COPIES
    if method == "dense":
        copies, stored = COPIES_STORED, (layers - 1) * taps * neurons**2
    else:
        rows = first_capacities(problem, neurons)
        stored = (layers - 1) * ((1 + taps) * neurons * sum(rows) + rows[0] * rows[1])
        # Fresh Gaussian vectors of initialisation, to which later ones are orthogonal.
        passing += layers * (2 * problem.columns + taps * problem.training_columns) * neurons
    return np.dtype(dtype).itemsize * copies * (stored + passing)
