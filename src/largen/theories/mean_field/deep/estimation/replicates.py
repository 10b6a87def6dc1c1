"""Independent solutions with random matrices, their mean and its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.arrays import precision as in_precision
from largen.errors import NumericalFailure
from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.averages import (
    Estimate,
    average,
    extrapolation_error,
)
from largen.theories.mean_field.deep.estimation.memory import replicates_at_once
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.estimation.truncation import (
    FINER,
    Changes,
    change_of,
    uncertain,
)
from largen.theories.mean_field.deep.matrices.by_directions import Precision
from largen.theories.mean_field.deep.matrices.dense import drawn_by, stored
from largen.theories.mean_field.deep.restarts.checkpoint import Common, Shown, SweepCheckpoint
from largen.theories.mean_field.deep.sweep.advance import Swept, advance, first_capacities
from largen.theories.mean_field.deep.sweep.initial_kernels import initial_tangent
from largen.theories.mean_field.deep.sweep.kernel_records import kernel_variables
from largen.theories.mean_field.deep.sweep.layer_widths import counts
from largen.theories.mean_field.deep.sweep.linear import TOLERANCE, solve_linear
from largen.theories.mean_field.deep.sweep.schedule import Schedule, descent, extrapolate, flow
from largen.theories.mean_field.deep.sweep.start import begin, draw, initial_matrices
from largen.theories.mean_field.deep.sweep.state import Kept, SweepModel
from largen.theories.mean_field.engine.parallel import (
    Tell,
    ignore_progress,
    one_thread_of_blas,
    part,
)
from largen.theories.mean_field.engine.replicates import Goal, Replicates, Seeds
from largen.theories.mean_field.engine.statistics import ratio, relative
from largen.theories.mean_field.record_times import Recorded

FEWEST_REPLICATES, FEWEST_ROUNDS = 4, 12
LEVELS = 3  # step lengths from which gradient flow is extrapolated
LEVELS_LINEAR = 5
FIRST_STEP = 0.5  # first step length, times the curvature of the loss
MOST_REFINEMENTS = 4
LEAST_TOLERANCE = 1e-3

Known = Any  # matrices from earlier sweeps of each sweep of a replicate; or None
Sweep = Callable[..., Swept]


class Replication(NamedTuple):
    """The computation of a replicate that consists of several sweeps."""

    # The function that computes a replicate, one(settings, seed, schedule, known, tell=…).
    one: Sweep
    problem: Problem  # the problem whose layers the replicate's records have


class Stopped(Exception):
    """Raised if replicates cannot continue; carries the mean of finished ones, or a partial one."""

    def __init__(self, message: str, estimate: Estimate):
        super().__init__(message)
        self.estimate = estimate


def solve_closed(
    problem: Problem, run: Run, recorded: Recorded, kept: Kept, budget: float = np.inf
) -> Estimate:
    """Return the solution of the closed equations of a linear network."""
    try:
        return _solve_closed(problem, run, recorded, kept, budget)
    except NumericalFailure as failure:
        swept = failure.result
        assert isinstance(swept, Swept)
        raise Stopped(str(failure), _exactly(problem, run, swept, None)) from None


def _solve_closed(
    problem: Problem, run: Run, recorded: Recorded, kept: Kept, budget: float
) -> Estimate:
    """Return the solution of the closed equations, with its remaining error."""

    def one(
        tolerance: float, schedule: Schedule, known: Known = None, tell: Tell = ignore_progress
    ) -> Swept:
        return solve_linear(problem, run, schedule, recorded, tolerance, kept, budget)

    if run.steps is None:
        found, error = _flow(run, partial(one, TOLERANCE), _first_step(problem, run), LEVELS_LINEAR)
    else:
        found = one(TOLERANCE, descent(run))
        error = np.abs(found.outputs - one(30 * TOLERANCE, descent(run)).outputs)
    return _exactly(problem, run, found, error)


def _exactly(problem: Problem, run: Run, found: Swept, error: np.ndarray | None) -> Estimate:
    f = found.outputs.astype(np.float64)
    error = np.full_like(f, np.nan) if error is None else error
    kernels = kernel_variables(problem, run.output_shape, found.kernels, found.pairs)
    return Estimate(f, error, None, kernels, "closed equations of linear φ", {})


def sample_replicates(
    problem: Problem,
    run: Run,
    recorded: Recorded,
    settings: NumericalSettings,
    rng: np.random.Generator,
    saved: SweepCheckpoint | None = None,
    how: Replication | None = None,
) -> Estimate:
    """Return the mean over as many replicates as the target error requires.

    With a checkpoint, finished work is written to files, and resumed from them. By default a
    replicate is one sweep of the problem.
    """
    how = how or Replication(partial(_random, problem, run, recorded, saved=saved), problem)
    plan, widths = SweepPlan(problem, run, settings, rng, how), settings.widths
    goal = Goal(
        settings.rtol,
        settings.replicates,
        FEWEST_ROUNDS if settings.dense else FEWEST_REPLICATES,
        settings.max_particles // sum(widths),
        len(widths),
        settings.reached,
    )
    size = replicates_at_once(problem, settings)
    replicates = Replicates(plan, plan.supposed, goal, size, settings.report, saved)
    try:
        with one_thread_of_blas():
            found = replicates.run(None if saved is None else saved.load())
    except NumericalFailure as failure:
        swept = failure.result
        assert isinstance(swept, Swept)
        count = len(replicates.results)
        whole = replicates.results[: count // len(widths) * len(widths)]
        estimate = average(how.problem, run, whole or [swept], settings)
        raise Stopped(str(failure), estimate) from None
    left_out, stepping = found.shown
    results: list[Swept] = found.replicates
    if plan.ended(results[-1]):
        left = np.hypot(stepping, extrapolation_error(results))
        return average(how.problem, run, results, settings, left, left_out)
    last = widths[(len(results) - 1) % len(widths)]
    shown = results[-1:] if settings.dense else results
    return average(how.problem, run, shown, settings._replace(particles=last), stepping)


class SweepPlan:
    """Replicates of the causal sweep: a tolerance of directions, and steps of gradient flow."""

    def __init__(
        self,
        problem: Problem,
        run: Run,
        settings: NumericalSettings,
        rng: np.random.Generator,
        how: Replication,
    ):
        self._run, self._settings, self._how = run, settings, how
        self._flows, self._seeds = run.steps is None, Seeds(rng)
        longest = _first_step(problem, run) if self._flows else 0.0
        self._first = Common(settings.tolerance, longest)

    @property
    def supposed(self) -> Common | None:
        """The tolerance that is likely to suffice; the steps of gradient flow are not known."""
        return None if self._flows else self._first

    def begin(self, tell: Tell) -> tuple[Common, Shown, Swept]:
        """Find a tolerance and steps that suffice, on a trial that is replicate 0 of descent."""
        common, shown, swept = self._first, Shown({}, np.zeros(())), None
        parts = 1 + (self._flows and not self._settings.dense)
        if not self._settings.dense:
            trial = self._how, self._run, self._schedule(common), self._settings, self._seeds[0]
            tolerance, left_out, swept = _tolerance(*trial, part(tell, 0, parts))
            common, shown = common._replace(tolerance=tolerance), shown._replace(left_out=left_out)
        if self._flows:
            one, last = self._sweep(common, 0), part(tell, parts - 1, parts)
            swept, stepping, longest = _first_flow(
                self._run, one, common.longest, self._settings.rtol, last
            )
            common, shown = common._replace(longest=longest), shown._replace(stepping=stepping)
        return common, shown, swept or self.replicate(common, 0, tell)

    def replicate(self, common: Common, number: int, tell: Tell) -> Swept:
        """Return a replicate."""
        one = self._sweep(common, number)
        if self._flows:
            return _flow(self._run, one, common.longest, LEVELS, tell)[0]
        return one(self._schedule(common), tell=tell)._replace(matrices=None)

    def ended(self, result: Swept) -> bool:
        """Whether outputs are finite."""
        return bool(np.isfinite(result.outputs).all())

    def error(self, found: Sequence[Swept]) -> float:
        """Return the relative error of the outputs by sampling."""
        mean = average(self._how.problem, self._run, list(found), self._settings)
        return relative(mean.f_error, mean.f)

    def _schedule(self, common: Common) -> Schedule:
        if self._flows:
            return flow(self._run, common.longest, 0, LEVELS - 1)
        return descent(self._run)

    def _sweep(self, common: Common, number: int) -> Sweep:
        """Return the sweep of a replicate; the trial of gradient flow is none of them."""
        settings, widths = self._settings, self._settings.widths
        seed = self._seeds[number + (self._flows and not settings.dense)]
        width = widths[number % len(widths)]
        return partial(
            self._how.one, settings._replace(tolerance=common.tolerance, particles=width), seed
        )


def _tolerance(
    how: Replication,
    run: Run,
    schedule: Schedule,
    settings: NumericalSettings,
    seed: int,
    tell: Tell = ignore_progress,
) -> tuple[float, Changes, Swept]:
    """Return a sufficient tolerance, its truncation error, and a replicate with this tolerance.

    The truncation error is NaN if the replicate with the finer tolerance fails, because there are
    hardly more neurons than directions.
    """
    problem = how.problem
    swept = how.one(settings, seed, schedule, tell=part(tell, 0, 2))
    while True:
        finer = settings._replace(tolerance=settings.tolerance / FINER)
        again = how.one(finer, seed, schedule, swept.matrices, tell=part(tell, 1, 2))
        change = change_of(problem, run, swept, again)
        left = uncertain(problem, "f", change["f"])
        enough = ratio(left, swept.outputs) <= settings.rtol / 2
        if enough or finer.tolerance < LEAST_TOLERANCE or not np.isfinite(left).all():
            return settings.tolerance, change, swept._replace(matrices=None)
        settings, swept = finer, again


def _random(
    problem: Problem,
    run: Run,
    recorded: Recorded,
    settings: NumericalSettings,
    seed: int,
    schedule: Schedule,
    known: Known = None,
    *,
    tell: Tell = ignore_progress,
    saved: SweepCheckpoint | None = None,
) -> Swept:
    """Return the solution with one set of random matrices."""
    rng = np.random.default_rng(seed)
    rule = Precision(1 / settings.particles, settings.tolerance)
    model = SweepModel.of(problem, run, settings.sampling, settings.kept)
    place = None
    if saved is not None:
        times, size = recorded.at(schedule.steps_at_times), (settings.particles, settings.tolerance)
        place = saved.place(seed, size, schedule, times, fresh=known is None)
    with in_precision(np.zeros((), settings.dtype)):
        start = draw(problem, settings.sampling, settings.particles, rng, rule, settings.dtype)
        tell(0.0)
        keys = jax.random.split(jax.random.key(rng.integers(2**31)), max(problem.streams) + 1)
        if settings.dense:
            start = start._replace(anchors=None)
            sides = start.inputs, start.outputs
            own = settings.particles, start.live, drawn_by(rng), settings.dtype
            matrices = stored(*sides, *own)
        else:
            most = max(counts(problem, settings.particles))
            matrices = known or initial_matrices(start, first_capacities(problem, most))
        state, constants = begin(problem, run, schedule, start, keys, rule, matrices)
        return advance(
            model,
            state,
            constants,
            problem,
            schedule,
            recorded,
            budget=settings.budget,
            tell=tell,
            keeper=place,
        )


def _first_step(problem: Problem, run: Run) -> float:
    """Return the step of gradient descent, η₀ × time, that resolves the fastest initial mode."""
    kernel = initial_tangent(problem)[: problem.samples]
    with jax.enable_x64(True):
        f, y = np.zeros(run.output_shape), run.data.y_train[0]
        curvature = jax.jit(jax.hessian(run.loss.sample))(f, y)  # one program
        slope = float(np.abs(np.asarray(curvature)).max())
    fastest = slope * np.linalg.eigvalsh(kernel)[-1] / problem.samples
    return FIRST_STEP / (fastest + run.optimizer.weight_decay)


def _flow(
    run: Run, one: Sweep, longest: float, levels: int, tell: Tell = ignore_progress
) -> tuple[Swept, np.ndarray]:
    """Return gradient flow extrapolated from several step lengths, and its error.

    The shortest steps come first. The sweeps with longer steps reuse its random matrices, so that
    all step lengths belong to one and the same network.
    """
    found: list[Swept] = []
    known: Known = None
    for done, level in enumerate(reversed(range(levels))):
        schedule = flow(run, longest, level, levels - 1)
        swept = one(schedule, known, tell=part(tell, done, levels))
        known = swept.matrices
        found.insert(0, swept._replace(matrices=None))
    with np.errstate(invalid="ignore", over="ignore"):
        best, rougher = (
            extrapolate([(one.outputs, one.kernels, one.pairs, one.linear) for one in some])
            for some in (found, found[1:])
        )
        error = np.abs(best[0] - rougher[0])
    ranks = np.max([one.ranks for one in found], 0)
    f, kernels, pairs, linear = best
    return Swept(f, kernels, pairs, linear, found[0].linear_kernels, ranks), error


def _first_flow(
    run: Run, one: Sweep, longest: float, rtol: float, tell: Tell = ignore_progress
) -> tuple[Swept, np.ndarray, float]:
    """Return a replicate of gradient flow, with the step length that the target error requires."""
    for _ in range(MOST_REFINEMENTS):
        found, error = _flow(run, one, longest, LEVELS, tell)
        # The other half of the target error is for sampling.
        if ratio(error, found.outputs) <= rtol / 2:
            return found, error, longest
        longest /= 2
    return (*_flow(run, one, longest, LEVELS, tell), longest)
