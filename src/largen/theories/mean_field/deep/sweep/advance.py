"""A sweep from the first to the last step, with stops for records and for growing the bases."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from largen.errors import NumericalFailure
from largen.interrupts import Pace
from largen.memory import give_back
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import Matrices
from largen.theories.mean_field.deep.matrices.row_buffers import capacity_for
from largen.theories.mean_field.deep.sweep.causal_sweep import looks_while_training, sweep
from largen.theories.mean_field.deep.sweep.kernel_records import (
    Along,
    Fields,
    RecordedKernels,
    fields,
    look,
    measure,
)
from largen.theories.mean_field.deep.sweep.outliers import MOST, largest
from largen.theories.mean_field.deep.sweep.schedule import Schedule
from largen.theories.mean_field.deep.sweep.state import (
    SweepConstants,
    SweepModel,
    SweepState,
    enlarge,
    has_room,
)
from largen.theories.mean_field.engine.parallel import Tell, ignore_progress
from largen.theories.mean_field.record_times import Recorded

FEW_SAMPLES = 100
COPIES = 2.5  # copies of the buffers in memory while a compiled loop runs


class BasesFull(NumericalFailure):
    """Raised if a basis is full and must not grow; carries the partial result."""


class Swept(NamedTuple):
    """The result of one sweep."""

    # f of all samples, (step, sample, output); NaN after the outputs have diverged.
    outputs: np.ndarray
    # kernels, pairs: kernels at the recorded times, and between the recorded pairs of times.
    kernels: list[RecordedKernels]
    pairs: list[RecordedKernels]
    # linear, linear_kernels: outputs of the models that are linear in their parameters, (step,
    # model, sample, output), and their kernels, all samples by training samples.
    linear: np.ndarray
    linear_kernels: np.ndarray
    ranks: np.ndarray  # the numbers of directions of each matrix, for features and gradients
    # The random matrices at the end, with all their directions; None if matrices are stored. For a
    # replicate that consists of several sweeps, those of each sweep.
    matrices: Matrices | tuple[Any, ...] | None = None
    # Outputs of an extrapolation with one term less, if there is one; the difference estimates the
    # error.
    rougher: np.ndarray | None = None


@runtime_checkable
class Keeper(Protocol):
    """A place where the state of one sweep is stored, and from which the sweep resumes."""

    @property
    def due(self) -> bool:
        """Whether the next state should be written."""
        ...

    def write(self, state: SweepState, along: Along) -> None:
        """Write the state before its next step, and the records so far."""

    def restore(self, state: SweepState, along: Along, last: int) -> tuple[SweepState, Along]:
        """Return the stored state and records, or the given ones if none are stored."""
        ...


def first_capacities(problem: Problem, neurons: int) -> tuple[int, int]:
    """Return capacities, for features and for gradients, that most runs do not exceed.

    For smooth activations ranks are 3 to 6 times the number of samples for features, and 5 to 10
    times for gradients. The factors are smaller for many samples, where buffers dominate memory.
    """
    per_feature, per_gradient = (7, 10) if problem.columns <= FEW_SAMPLES else (5, 7)
    columns, training = problem.columns, problem.training_columns
    features = min(per_feature * columns, problem.taps * neurons + columns)
    gradients = min(per_gradient * training, neurons + training)
    return capacity_for(features + 64), capacity_for(gradients + 64)


def advance(
    model: SweepModel,
    state: SweepState,
    constants: SweepConstants,
    problem: Problem,
    schedule: Schedule,
    recorded: Recorded,
    *,
    growth: bool = True,
    budget: float = np.inf,
    tell: Tell = ignore_progress,
    keeper: Keeper | None = None,
) -> Swept:
    """Train to the last time index, and record kernels at the chosen times.

    Full bases are enlarged, which compiles the sweep anew, as long as they do not exceed the memory
    budget, and unless ``growth`` is False. ``tell`` is called with the completed fraction of steps.
    With a keeper the sweep resumes from the state that the keeper holds, and writes its own state
    every minute, before the last time index, and if the sweep is stopped. Interrupts are handled
    between two segments of steps.
    """
    course = _Course(model, constants, problem, schedule, recorded, budget, tell, keeper, state)
    end = course.end
    try:
        for stop in sorted(course.times.single | course.times.paired | {end - 1, end}):
            if stop < course.step:
                continue  # before the state from which the sweep has resumed
            course.reach(stop, growth)
            if course.step < stop:
                break  # the outputs have diverged
            if keeper is not None and stop < end and (stop == end - 1 or keeper.due):
                course.keep()
            if course.wanted(stop) and not course.record(stop):
                break
    except KeyboardInterrupt:
        course.stopped()
        raise
    return course.found()


class _Course:
    """A running sweep: its state, its records so far, and the keeper of its state."""

    def __init__(
        self,
        model: SweepModel,
        constants: SweepConstants,
        problem: Problem,
        schedule: Schedule,
        recorded: Recorded,
        budget: float,
        tell: Tell,
        keeper: Keeper | None,
        state: SweepState,
    ):
        self.model, self.constants, self.problem = model, constants, problem
        self.schedule, self.budget, self.tell, self.keeper = schedule, budget, tell, keeper
        self.end = int(schedule.steps_at_times[-1]) + 1
        self.times, self.state, self.along = (
            recorded.at(schedule.steps_at_times),
            state,
            Along.nothing(),
        )
        if keeper is not None:
            self.state, self.along = keeper.restore(state, self.along, self.end - 1)
        self.pace = Pace()
        self.compiles = True  # at the first step, and after bases have grown
        self.recording = False

    @property
    def step(self) -> int:
        """Number of steps that have been taken."""
        return int(self.state.step)

    def wanted(self, stop: int) -> bool:
        """Whether there are records at a step."""
        return stop in self.times.single or stop in self.times.paired

    def keep(self) -> None:
        """Write the state to its file, if there is one."""
        if self.keeper is not None:
            self.keeper.write(self.state, self.along)

    def stopped(self) -> None:
        """Write the state if a sweep can resume from it.

        It cannot while kernels are recorded, since the state then contains directions of an
        unfinished record, nor after the last time index, before which the state was written.
        """
        if not self.recording and not self.state.step.is_deleted() and self.step < self.end:
            self.keep()

    def reach(self, stop: int, growth: bool) -> None:
        """Advance to a step, with free rows for its records, or until the outputs diverge.

        Raises :class:`BasesFull` if bases are full and must not grow.
        """
        problem, model = self.problem, self.model
        columns, training = problem.columns, problem.training_columns
        # The largest number of gradients that a record multiplies.
        most = (columns if model.kept.test else training) * problem.outputs
        while True:
            if not self.compiles:  # the time until a report counts as that of its progress
                self.tell(self.step / self.end)
            self._steps(stop)
            reached = self.step == stop
            gradients = most if reached else training
            if reached and not self.wanted(stop):
                return
            if has_room(self.state, columns, gradients, model):
                return  # arrived, or the outputs have diverged
            if not growth:
                raise BasesFull("a basis is full", self.found())
            self._grow(gradients, reached)

    def _steps(self, stop: int) -> None:
        """Take steps in segments, until a basis is full or the outputs have diverged."""
        for _, goal in self.pace.segments(self.step, stop):
            self.state, _ = sweep(self.model, self.state, self.constants, goal)
            if self.step < goal:
                return
            if self.compiles:
                give_back()  # return memory freed by compilation; bases take as much
                self.compiles = False
            if self.keeper is not None and goal < stop and self.keeper.due:
                self.keep()
            self.tell(goal / self.end)

    def _grow(self, gradients: int, reached: bool) -> None:
        """Enlarge the bases; raise if they outgrow the budget."""
        # Bases that are full early in training will have to grow further.
        factor = 4.0 if 10 * self.step < self.end and not reached else 1.5
        larger = enlarge(self.state, self.problem.columns, gradients, factor)
        if COPIES * _held(larger) > self.budget:
            self.keep()
            words = _too_large(larger, self.budget, self.keeper is not None)
            raise NumericalFailure(words, self.found())
        self.state, self.compiles = larger, True

    def record(self, stop: int) -> bool:
        """Record the kernels at the current step; return False if the outputs have diverged."""
        model, constants = self.model, self.constants
        self.recording = True
        if looks_while_training(model, constants):
            self.state, seen = sweep(model, self.state, constants, stop + 1)
            if self.step == stop:
                return False
        else:
            self.state, seen = look(model, self.state, constants)
        if stop in self.times.single:
            kernels = measure(model, self.state, constants, seen)
            kernels = RecordedKernels(*(np.asarray(kernel) for kernel in kernels))
            if model.kept.outliers:
                found = largest(self.problem, model, self.state, constants, seen)
                kernels = kernels._replace(outliers=found)
            self.along.kernels[stop] = kernels
        if stop in self.times.paired:
            now = fields(model, self.state, constants, seen)
            weight = float(constants.precision.weight)
            self.along.meet(stop, Fields(*map(np.asarray, now)), self.times, weight)
        self.recording = False
        return True

    def found(self) -> Swept:
        """Return the result so far, with NaN for the remaining steps."""
        problem, times, along = self.problem, self.times, self.along
        p, c, layers = problem.samples, problem.outputs, problem.hidden_layers
        rows = problem.total if self.model.kept.test else p
        alone = rows, self.model.kept.sample_neurons, max(problem.positions)

        def nothing(rows: int, sample_neurons: int, places: int) -> RecordedKernels:
            shapes = (
                (layers, rows, p),
                (layers, rows, p, c, c),
                (rows, p, c, c),
                (layers, p, places, sample_neurons),
                (layers, p, c, places, sample_neurons),
                (layers, p, c, places, sample_neurons),
                (self.model.kept.outliers * (layers - 1), 4, MOST),
            )
            return RecordedKernels(*(np.full(shape, np.nan) for shape in shapes))

        outputs, matrices = (
            np.asarray(self.state.outputs)[self.schedule.steps_at_times],
            self.state.matrices,
        )
        return Swept(
            outputs[:, 0],
            [along.kernels.get(step, nothing(*alone)) for step in times.alone.tolist()],
            [along.pairs.get((t, s), nothing(p, 0, 1)) for t, s in times.pairs.tolist()],
            outputs[:, 1:],
            np.asarray(self.constants.kernels),
            matrices.ranks,
            matrices if isinstance(matrices, Matrices) else None,
        )


def _held(state: SweepState) -> int:
    return sum(part.nbytes for part in jax.tree.leaves(state.matrices))


def _too_large(state: SweepState, budget: float, kept: bool) -> str:
    features, gradients = state.matrices.ranks.max(0)
    go_on = (
        "The checkpoint has the state: the same call with a larger budget resumes from it"
        if kept
        else "With a checkpoint, a call with a larger budget would resume from this step"
    )
    return (
        f"memory_budget: before step {int(state.step)} matrices are represented by {features} "
        f"directions of features and {gradients} of gradients, which with room for more take "
        f"about {COPIES * _held(state):.2g} bytes; the budget is {budget:.2g}. Take "
        "method='dense', a larger rtol (which truncates more directions), fewer particles, or "
        f"raise it. {go_on}."
    )
