"""A sweep from the first to the last step, with stops for records and for more room."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from largen.dmft.deep.matrix import Matrices
from largen.dmft.deep.place import Place
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.records import Along, Fields, Kernels, fields, look, measure
from largen.dmft.deep.rows import capacity_for
from largen.dmft.deep.schedule import Schedule
from largen.dmft.deep.state import Constants, Model, State, grown, has_room
from largen.dmft.deep.sweep import looks_while_training, sweep
from largen.dmft.deep.team import Tell, unheard
from largen.dmft.recorded import Recorded
from largen.errors import NumericalFailure
from largen.memory import give_back

FEW_SAMPLES = 100
COPIES = 2.5  # of the buffers, while a compiled loop runs
PAUSES = 20  # of a sweep, to tell how far it is
PLACES = 200  # the same, where its state may be kept


class Swept(NamedTuple):
    """What one sweep found.

    Attributes
    ----------
    outputs
        f of all samples, ``(step, sample, output)``; NaN after the outputs have escaped.
    kernels, pairs
        At the records, and between the pairs of times.
    linear, linear_kernels
        Outputs of the models that are linear in their parameters, ``(step, model, sample,
        output)``, and their kernels, all samples by training samples.
    ranks
        Of each matrix, features and gradients.
    matrices
        As they are in the end, with all that they have answered; None if they are stored.
    """

    outputs: np.ndarray
    kernels: list[Kernels]
    pairs: list[Kernels]
    linear: np.ndarray
    linear_kernels: np.ndarray
    ranks: np.ndarray
    matrices: Matrices | None = None


def first_capacities(problem: Problem, neurons: int) -> tuple[int, int]:
    """Return capacities, of features and of gradients, that most runs do not exceed.

    For smooth activations ranks are 3 to 6 times the samples for features, 5 to 10 for gradients;
    less the more samples there are, whose buffers are also what fills the memory.
    """
    per_feature, per_gradient = (7, 10) if problem.columns <= FEW_SAMPLES else (5, 7)
    columns, training = problem.columns, problem.training_columns
    features = min(per_feature * columns, problem.taps * neurons + columns)
    gradients = min(per_gradient * training, neurons + training)
    return capacity_for(features + 64), capacity_for(gradients + 64)


def advance(
    model: Model,
    state: State,
    constants: Constants,
    problem: Problem,
    schedule: Schedule,
    recorded: Recorded,
    *,
    growth: bool = True,
    budget: float = np.inf,
    tell: Tell = unheard,
    place: Place | None = None,
) -> Swept | None:
    """Train to the last entry and keep kernels on the way.

    Bases that are full are grown, which compiles the sweep anew, as long as they take no more
    bytes than the budget. Returns None instead if ``growth`` is False. ``tell`` is called with
    the fraction of steps that is done. With a place the sweep goes on from the state that is kept
    there, and keeps its own: every minute, before the last entry, and if it has to stop.

    Raises
    ------
    NumericalFailure
        If the bases outgrow the budget; with what was found until then.
    """
    last = int(schedule.entries[-1])
    times, along = recorded.at(schedule.entries), Along.nothing()
    if place is not None:
        state, along = place.taken_up(state, along, last)
    end, parts = last + 1, PAUSES if place is None else PLACES
    pauses = {end * part // parts for part in range(1, parts + 1)}
    columns, training = problem.columns, problem.training_columns
    # Gradients that a record asks for.
    most = (columns if model.kept.test else training) * problem.outputs

    def found() -> Swept:
        return _found(model, state, constants, problem, schedule, times, along)

    compiles = True  # first of all, and where bases have grown
    for stop in sorted(times.single | times.paired | pauses | {last}):
        if stop < int(state.step):
            continue  # before the state that was taken up
        tell(int(state.step) / end)
        recording = stop in times.single | times.paired
        while True:
            state, _ = sweep(model, state, constants, stop)
            reached = int(state.step) == stop
            if compiles:
                give_back()  # what compilation has freed; bases take as much
                compiles = False
            gradients = most if reached else training
            if (reached and not recording) or has_room(state, columns, gradients, model):
                break  # arrived, or the outputs have escaped
            if not growth:
                return None
            # Bases that are full early on will not stay small.
            factor = 4.0 if 10 * int(state.step) < end and not reached else 1.5
            larger = grown(state, columns, gradients, factor)
            if COPIES * _held(larger) > budget:
                if place is not None:
                    place.write(state, along)
                raise NumericalFailure(_too_large(larger, budget, place is not None), found())
            state, compiles = larger, True
        if int(state.step) < stop:
            break
        if place is not None and stop <= last and (stop == last or place.due):
            place.write(state, along)
        if not recording:
            continue
        if looks_while_training(model, constants):
            state, seen = sweep(model, state, constants, stop + 1)
            if int(state.step) == stop:
                break  # the outputs have escaped
        else:
            state, seen = look(model, state, constants)
        if stop in times.single:
            kernels = measure(model, state, constants, seen)
            along.kernels[stop] = Kernels(*(np.asarray(kernel) for kernel in kernels))
        if stop in times.paired:
            now = fields(model, state, constants, seen)
            weight = float(constants.precision.weight)
            along.meet(stop, Fields(*map(np.asarray, now)), times, weight)
    return found()


def _found(
    model: Model,
    state: State,
    constants: Constants,
    problem: Problem,
    schedule: Schedule,
    times: Recorded,
    along: Along,
) -> Swept:
    """Return what was found until now, and NaN for the rest."""
    p, c, layers = problem.samples, problem.outputs, problem.hidden_layers
    rows, sites = problem.total if model.kept.test else p, model.kept.sites

    alone = rows, sites, max(problem.positions)

    def nothing(rows: int, sites: int, places: int) -> Kernels:
        shapes = (
            (layers, rows, p),
            (layers, rows, p, c, c),
            (rows, p, c, c),
            (layers, p, places, sites),
            (layers, p, c, places, sites),
            (layers, p, c, places, sites),
        )
        return Kernels(*(np.full(shape, np.nan) for shape in shapes))

    outputs = np.asarray(state.outputs)[schedule.entries]
    return Swept(
        outputs[:, 0],
        [along.kernels.get(step, nothing(*alone)) for step in times.alone.tolist()],
        [along.pairs.get((t, s), nothing(p, 0, 1)) for t, s in times.pairs.tolist()],
        outputs[:, 1:],
        np.asarray(constants.kernels),
        state.matrices.ranks,
        state.matrices if isinstance(state.matrices, Matrices) else None,
    )


def _held(state: State) -> int:
    return sum(part.nbytes for part in jax.tree.leaves(state.matrices))


def _too_large(state: State, budget: float, kept: bool) -> str:
    features, gradients = state.matrices.ranks.max(0)
    go_on = (
        "The checkpoint has the state: the same call with a larger budget goes on from there"
        if kept
        else "With a checkpoint, a call with a larger budget would go on from there"
    )
    return (
        f"memory_budget: before step {int(state.step)} the network has been asked in {features} "
        f"directions of features and {gradients} of gradients, which with room for more take "
        f"about {COPIES * _held(state):.2g} bytes; the budget is {budget:.2g}. Take "
        "method='dense', a larger rtol (which leaves more directions out), fewer particles, or "
        f"raise it. {go_on}."
    )
