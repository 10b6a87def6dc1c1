"""A sweep from the first to the last step, with stops for records and for more room."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from largen.dmft.deep.matrix import Matrices
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.records import Kernels, measure
from largen.dmft.deep.rows import capacity_for
from largen.dmft.deep.schedule import Schedule
from largen.dmft.deep.state import Constants, Model, State, grown, has_room
from largen.dmft.deep.sweep import sweep
from largen.errors import NumericalFailure

FEW_SAMPLES = 100
COPIES = 2.5  # of the buffers, while a compiled loop runs
PAUSES = 20  # of a sweep, to tell how far it is


class Swept(NamedTuple):
    """What one sweep found.

    Attributes
    ----------
    outputs
        f of all samples, ``(step, sample, output)``; NaN after the outputs have escaped.
    kernels
        At the records.
    frozen_kernel
        Tangent kernel of what stands still, all samples by training samples.
    ranks
        Of each matrix, features and gradients.
    matrices
        As they are in the end, with all that they have answered; None if they are stored.
    """

    outputs: np.ndarray
    kernels: list[Kernels]
    frozen_kernel: np.ndarray
    ranks: np.ndarray
    matrices: Matrices | None = None


def first_capacities(problem: Problem, neurons: int) -> tuple[int, int]:
    """Return capacities, of features and of gradients, that most runs do not exceed.

    For smooth activations ranks are 3 to 6 times the samples for features, 5 to 10 for gradients;
    less the more samples there are, whose buffers are also what fills the memory.
    """
    per_feature, per_gradient = (7, 10) if problem.columns <= FEW_SAMPLES else (5, 7)
    features = capacity_for(min(per_feature * problem.columns, neurons + problem.columns) + 64)
    gradients = capacity_for(min(per_gradient * problem.samples, neurons + problem.samples) + 64)
    return features, gradients


def advance(
    model: Model,
    state: State,
    constants: Constants,
    problem: Problem,
    schedule: Schedule,
    recorded: np.ndarray,
    *,
    growth: bool = True,
    budget: float = np.inf,
    tell: Callable[[float], None] = lambda fraction: None,
) -> Swept | None:
    """Train to the last entry and keep kernels on the way.

    Bases that are full are grown, which compiles the sweep anew, as long as they take no more
    bytes than the budget. Returns None instead if ``growth`` is False. ``tell`` is called with
    the fraction of steps that is done.

    Raises
    ------
    NumericalFailure
        If the bases outgrow the budget.
    """
    kernels: list[Kernels] = []
    end = int(schedule.entries[-1]) + 1
    records = {int(schedule.entries[entry]) for entry in recorded}
    pauses = {end * part // PAUSES for part in range(1, PAUSES + 1)}
    for stop in sorted(records | pauses):
        tell(int(state.step) / end)
        while int(state.step) < stop:
            state = sweep(model, state, constants, stop)
            if int(state.step) == stop:
                break
            if has_room(state, problem.columns, problem.samples, model):
                break  # the outputs have escaped
            if not growth:
                return None
            # Bases that are full early on will not stay small.
            early = 10 * int(state.step) < end
            state = grown(state, problem.columns, problem.samples, 4.0 if early else 1.5)
            _check_size(state, budget, stop)
        if int(state.step) < stop:
            kernels += [_nothing(problem, model)] * (len(recorded) - len(kernels))
            break
        if stop in records:
            rows = problem.columns if model.kept.test else problem.samples
            gradients = rows * problem.outputs
            if not has_room(state, problem.columns, gradients, model):
                if not growth:
                    return None
                state = grown(state, problem.columns, gradients, 1.5)
                _check_size(state, budget, stop)
            state, found = measure(model, state, constants)
            kernels.append(Kernels(*(np.asarray(kernel) for kernel in found)))
    return Swept(
        np.asarray(state.outputs)[schedule.entries],
        kernels,
        np.asarray(constants.frozen_kernel),
        state.matrices.ranks,
        state.matrices if isinstance(state.matrices, Matrices) else None,
    )


def _check_size(state: State, budget: float, stop: int) -> None:
    held = sum(part.nbytes for part in jax.tree.leaves(state.matrices))
    if COPIES * held > budget:
        features, gradients = state.matrices.ranks.max(0)
        raise NumericalFailure(
            f"memory_budget: before step {stop} the network has been asked in {features} "
            f"directions of features and {gradients} of gradients, which with room for more take "
            f"about {COPIES * held:.2g} bytes; the budget is {budget:.2g}. Take method='dense', a "
            "larger rtol (which leaves more directions out), fewer particles, or raise it."
        )


def _nothing(problem: Problem, model: Model) -> Kernels:
    p, c, layers = problem.samples, problem.outputs, problem.hidden_layers
    rows, sites = problem.columns if model.kept.test else p, model.kept.sites
    shapes = ((rows, p), (rows, p, c, c), (p, sites), (p, c, sites))
    return Kernels(*(np.full((layers, *shape), np.nan) for shape in shapes))
