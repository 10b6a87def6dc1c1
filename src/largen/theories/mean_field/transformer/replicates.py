"""Independent solutions with sampled populations, their mean and its error.

Fields on which activations act are values at S neurons, so that averages have sampling errors of
order 1/√S, which vary from one replicate to another. Directions of fields that are smaller than a
tolerance τ are omitted. Their effect is measured on one replicate, whose matrices stay the same
while τ decreases by factors of 3. If it falls at least with the first power of τ, the error that is
left at τ/3 is at most half of the change from τ to τ/3. Replicates are computed at the same time,
in as many threads as there are cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from largen.errors import InvalidInput
from largen.progress import Report
from largen.runs import Run
from largen.theories.mean_field.engine.checkpoint import Checkpoint, Found
from largen.theories.mean_field.engine.parallel import Tell, cores, one_thread_of_blas, part
from largen.theories.mean_field.engine.replicates import Goal, Replicates
from largen.theories.mean_field.engine.statistics import (
    NORMAL,
    margin,
    mean_and_error,
    ratio,
    relative,
)
from largen.theories.mean_field.options import WantedKernels
from largen.theories.mean_field.transformer.dynamics import (
    AttentionProblem,
    Drawn,
    InfiniteNetwork,
    Solved,
    train,
)
from largen.theories.mean_field.transformer.populations import TooFewNeurons

FEWEST_REPLICATES = 4
FEWEST_PARTICLES, PER_COLUMN = 2048, 64
IN_HEADS = 2  # times as many for heads, on which three matrices act
FINER = 3  # the factor by which the tolerance of directions decreases
LEAST_TOLERANCE = 1e-10
# Target errors from which on fields may be in single precision, at first, and the least tolerance
# there, far above rounding errors.
SINGLE, SINGLE_TOLERANCE = 1e-3, 1e-5


class TooCoarse(ArithmeticError):
    """Directions are wanted that are small in single precision."""


@dataclass(frozen=True)
class Settings:
    """What is wanted of a solution."""

    rtol: float  # the target relative error of the outputs
    particles: int | None  # the number of neurons of a sampled population; None to choose it
    replicates: int | None  # the number of replicates; None for as many as the error requires
    max_particles: int  # the largest number of neurons of all replicates together
    record_at: tuple[int, ...]  # time indices at which attention weights are recorded
    wanted: WantedKernels  # kernels that are recorded, and their time indices
    budget: float  # the number of bytes that the matrices of all replicates at work may take
    dtype: Any = np.float64  # the precision of fields, at first
    changes: float = 1.0  # of fields in training, in units of their size, at most


class Mean(NamedTuple):
    """The mean over replicates, or an exact solution."""

    # f, patterns: outputs (step, sample, position, output), and attention weights (record, layer,
    # sample, position, position).
    f: np.ndarray
    patterns: np.ndarray
    # f_error, patterns_error: their errors; None if the solution is exact, NaN where they are not
    # known.
    f_error: np.ndarray | None
    patterns_error: np.ndarray | None
    # The recorded kernels by name, and their errors as …_error, 0 if the solution is exact.
    kernels: dict[str, np.ndarray]
    how: str  # what was computed, in words
    # The name of the option that ended the solution before its time, if one did.
    stopped: str | None
    directions: int  # the largest number of directions of a matrix
    f_margin: np.ndarray | None = None  # half of the interval of f; None without replicates

    def with_errors(self, more: np.ndarray) -> Mean:
        """Return the mean with further errors of f, which replicates have in common."""
        if self.f_error is None:
            return self
        margin = None if self.f_margin is None else np.hypot(self.f_margin, NORMAL * more)
        return self._replace(f_error=np.hypot(self.f_error, more), f_margin=margin)


def solve_exactly(problem: AttentionProblem, run: Run, settings: Settings, tell: Any) -> Mean:
    """Return the solution of a network without activations."""
    what = settings.record_at, settings.wanted, settings.budget
    found = train(InfiniteNetwork(problem), problem, run, *what, tell)
    most = f"up to {found.directions} directions of a matrix"
    how = f"coordinates in Gaussian vectors, {most}; exact to rounding"
    kernels = found.kernels | {f"{name}_error": 0 * x for name, x in found.kernels.items()}
    return Mean(found.f, found.patterns, None, None, kernels, how, found.stopped, found.directions)


def solve_by_replicates(
    problem: AttentionProblem,
    run: Run,
    settings: Settings,  # the target error, and the numbers of neurons and replicates
    seed: np.ndarray,
    # tell, reached: called with the completed and the total percentages, summed over replicates,
    # and with the relative error that is reached.
    tell: Report,
    reached: Callable[[float], None],
    # The file that finished replicates are written to, and read from.
    saved: Checkpoint | None = None,
) -> Mean:
    """Return the mean over as many replicates as the target error requires."""
    kept = None if saved is None else saved.load()
    particles = settings.particles or wanted_particles(problem, run)
    at_once, dtype, most_allowed = cores(), np.dtype(settings.dtype), settings.max_particles
    if kept is not None:
        particles, dtype = kept.common.particles, np.dtype(kept.common.dtype)
    while True:
        last = settings.particles is not None or 2 * particles > settings.max_particles
        plan = AttentionPlan(problem, run, settings, particles, dtype, seed, at_once)
        most = settings.max_particles // particles
        goal = Goal(settings.rtol, settings.replicates, FEWEST_REPLICATES, most, reached=reached)
        replicates = Replicates(plan, plan.supposed, goal, at_once, tell, saved)
        try:
            with one_thread_of_blas():
                mean = plan.average(replicates.run(kept))
        except TooCoarse:
            dtype = np.dtype(np.float64)
            continue
        except TooFewNeurons:
            if last:
                given = settings.particles is not None
                name, got = ("particles", particles) if given else ("max_particles", most_allowed)
                raise InvalidInput(
                    f"{name}: wanted more than twice the number of inputs and biases of a "
                    f"population with activations or heads, got {got}."
                ) from None
            particles *= 2
            continue
        if mean.stopped == "particles" and not last:
            particles, kept = 2 * particles, None
        elif mean.stopped == "memory_budget" and at_once > 1:
            at_once = 1  # one replicate may take all of the budget
        else:
            return mean


def wanted_particles(problem: AttentionProblem, run: Run) -> int:
    """Return the default number of neurons of a sampled population, a power of two."""
    columns = len(run.data.x) * problem.network.positions
    wanted = PER_COLUMN * columns * (IN_HEADS if problem.network.populations.head_sizes else 1)
    return 2 ** int(np.ceil(np.log2(max(FEWEST_PARTICLES, wanted))))


def mean_over(
    found: Sequence[Solved],
    # Returns the mean over replicates of what a function takes from them, and its error.
    mean: Callable[[Callable[[Solved], np.ndarray]], tuple[np.ndarray, np.ndarray]],
    how: str,
) -> Mean:
    """Return the mean over replicates, with the interval of the outputs."""
    f, f_error = mean(lambda one: one.f)
    patterns, patterns_error = mean(lambda one: one.patterns)
    kernels = {}
    for name in found[0].kernels:
        kernels[name], kernels[f"{name}_error"] = mean(lambda one, name=name: one.kernels[name])
    count, interval = len(found), None
    if count > 1:
        random = mean_and_error(np.stack([one.f for one in found]))[1]
        interval = margin(f_error, random, count)
    directions = max(one.directions for one in found)
    errors = f_error, patterns_error
    return Mean(f, patterns, *errors, kernels, how, found[-1].stopped, directions, interval)


class Common(NamedTuple):
    """What replicates have in common."""

    particles: int  # the number of neurons of a sampled population
    dtype: str  # the precision of fields
    tolerance: float  # the tolerance of directions


# The types of what a checkpoint has: beside the replicates the first one with three times the
# tolerance.
KINDS = (Common, Solved, Solved)


class AttentionPlan:
    """Replicates of some number of neurons."""

    def __init__(
        self,
        problem: AttentionProblem,
        run: Run,
        settings: Settings,
        particles: int,
        dtype: np.dtype,
        seed: np.ndarray,
        at_once: int,  # the number of replicates that share the memory budget
    ):
        self._problem, self._run, self._settings = problem, run, settings
        self._particles, self._dtype = particles, dtype
        self._seed = (*seed.tolist(), particles)
        self._budget = settings.budget / at_once

    @property
    def supposed(self) -> Common:
        """The tolerance that is tried first, after three times as much."""
        changes = min(1.0, self._problem.gamma, self._settings.changes)
        return Common(self._particles, str(self._dtype), changes * self._settings.rtol / FINER**2)

    def begin(self, tell: Tell) -> tuple[Common, Solved, Solved]:
        """Return a sufficient tolerance, and the first replicate with three times and with it."""
        network, tolerance = self._network(0), FINER * self.supposed.tolerance
        network.restart(tolerance)
        rough = self._train(network, part(tell, 0, 2))
        while True:
            fine = rough
            if rough.stopped is None:
                tolerance /= FINER
                network.restart(tolerance)
                fine = self._train(network, part(tell, 1, 2))
            left = ratio((fine.f - rough.f) / (FINER - 1), fine.f)
            last = tolerance < LEAST_TOLERANCE or fine.stopped is not None
            if last or not np.isfinite(fine.f).all() or left <= self._settings.rtol / 2:
                return self.supposed._replace(tolerance=tolerance), rough, fine
            if self._dtype == np.float32 and tolerance < SINGLE_TOLERANCE:
                del network  # the error keeps what is known here
                raise TooCoarse
            rough = fine

    def replicate(self, common: Common, number: int, tell: Tell) -> Solved:
        """Return a replicate."""
        network = self._network(number)
        network.restart(common.tolerance)
        return self._train(network, tell)

    def ended(self, result: Solved) -> bool:
        """Whether training came to its end, with finite outputs."""
        return result.ended

    def error(self, found: Sequence[Solved]) -> float:
        """Return the relative error of the outputs by sampling."""
        f, error = mean_and_error(np.stack([one.f for one in found]))
        return relative(error, f)

    def average(self, done: Found) -> Mean:
        """Return the mean, and its errors with that of the tolerance."""
        found, rough = done.replicates, done.shown
        # One that stopped, or diverged, shows how far the others would have come.
        shown = found if self.ended(found[-1]) else found[-1:]

        def mean(of: Callable[[Solved], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            average, error = mean_and_error(np.stack([of(one) for one in shown]))
            with np.errstate(invalid="ignore", over="ignore"):
                return average, np.hypot(error, np.abs(of(found[0]) - of(rough)) / (FINER - 1))

        directions = max(one.directions for one in shown)
        how = (
            f"{len(shown)} replicates of {self._particles} neurons in sampled populations,"
            f" up to {directions} directions of a matrix"
        )
        return mean_over(shown, mean, how)

    def _network(self, number: int) -> InfiniteNetwork:
        """Return the network of a replicate."""
        samples = len(self._run.data.x) + self._problem.samples
        first = samples * self._problem.network.positions
        drawn = Drawn(self._particles, first, (*self._seed, number), self._dtype)
        return InfiniteNetwork(self._problem, drawn)

    def _train(self, network: InfiniteNetwork, tell: Tell) -> Solved:
        """Train a network."""
        what = self._problem, self._run, self._settings.record_at, self._settings.wanted
        return train(network, *what, self._budget, lambda done, total: tell(done / total))
