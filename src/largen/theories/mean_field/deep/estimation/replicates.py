"""Independent solutions with random matrices, their mean and its error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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
from largen.theories.mean_field.deep.matrices.dense import stored
from largen.theories.mean_field.deep.restarts.checkpoint import Checkpoint, Done
from largen.theories.mean_field.deep.sweep.advance import Swept, advance, first_capacities
from largen.theories.mean_field.deep.sweep.initial_kernels import initial_tangent
from largen.theories.mean_field.deep.sweep.kernel_records import kernel_variables
from largen.theories.mean_field.deep.sweep.layer_widths import counts
from largen.theories.mean_field.deep.sweep.linear import TOLERANCE, solve_linear
from largen.theories.mean_field.deep.sweep.schedule import Schedule, descent, extrapolate, flow
from largen.theories.mean_field.deep.sweep.start import begin, draw, initial_matrices
from largen.theories.mean_field.deep.sweep.state import Kept, SweepModel
from largen.theories.mean_field.engine.parallel import (
    Team,
    Tell,
    ignore_progress,
    one_thread_of_blas,
    part,
)
from largen.theories.mean_field.engine.statistics import ratio
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
    saved: Checkpoint | None = None,
    how: Replication | None = None,
) -> Estimate:
    """Return the mean over as many replicates as the target error requires.

    With a checkpoint, finished work is written to files, and resumed from them. By default a
    replicate is one sweep of the problem.
    """
    found: list[Swept] = []
    how = how or Replication(partial(_random, problem, run, recorded, saved=saved), problem)
    try:
        with one_thread_of_blas():
            return _sample_replicates(problem, run, settings, rng, saved, how, found)
    except NumericalFailure as failure:
        swept = failure.result
        assert isinstance(swept, Swept)
        whole = found[: len(found) // len(settings.widths) * len(settings.widths)]
        estimate = average(how.problem, run, whole or [swept], settings)
        raise Stopped(str(failure), estimate) from None


def _sample_replicates(
    problem: Problem,
    run: Run,
    settings: NumericalSettings,
    rng: np.random.Generator,
    saved: Checkpoint | None,
    how: Replication,
    found: list[Swept],
) -> Estimate:
    """Return the mean over replicates, and append the replicates to a list as they finish."""
    widths, flows, tried = settings.widths, run.steps is None, not settings.dense
    rounds = settings.replicates or (FEWEST_ROUNDS if settings.dense else FEWEST_REPLICATES)
    longest = _first_step(problem, run) if flows else 0.0
    schedule = flow(run, longest, 0, LEVELS - 1) if flows else descent(run)
    seeds = (int(seed) for seed in iter(lambda: rng.integers(2**31), None))
    trial = next(seeds) if tried else None
    drawn = [] if trial is None or flows else [trial]  # for descent, the trial is replicate 0

    def seed(i: int) -> int:
        while len(drawn) <= i:
            drawn.append(next(seeds))
        return drawn[i]

    def sweep(i: int) -> Sweep:
        now = settings._replace(particles=widths[i % len(widths)])
        return partial(how.one, now, seed(i))

    def replicate(i: int) -> Callable[[], Swept]:
        """Submit a replicate."""
        one = sweep(i)
        if flows:
            return team.start(i, lambda tell: _flow(run, one, longest, LEVELS, tell)[0])
        return team.start(i, lambda tell: one(schedule, tell=tell)._replace(matrices=None))

    def keep() -> None:
        if saved and np.isfinite(found[-1].outputs).all():
            saved.save(Done(settings.tolerance, change, stepping, longest, found))

    size = replicates_at_once(problem, settings)
    with Team(size, lambda done: settings.report(int(100 * (done + loaded)), 100 * goal)) as team:
        goal, loaded, stepping = rounds * len(widths), 0, np.zeros(())
        change: Changes = {}
        begun: list[Callable[[], Swept]] = []
        kept = saved.load() if saved else None
        if kept is not None:
            tolerance, change, stepping, longest, done = kept
            settings = settings._replace(tolerance=tolerance)
            found += done
            loaded = len(done)
        elif trial is not None:
            find = partial(_tolerance, how, run, schedule, settings, trial)
            ended = team.start(0, find)
            # The tolerance is likely to suffice: other replicates start together with its trial.
            begun = [] if flows else [replicate(i) for i in range(1, goal)]
            tolerance, change, swept = ended()
            if tolerance != settings.tolerance:
                team.dismiss()
                settings, begun = settings._replace(tolerance=tolerance), []
            if not flows:
                found.append(swept)
                keep()
        if flows and not found:
            first = partial(_first_flow, run, sweep(0), longest, settings.rtol)
            swept, stepping, longest = team.start(0, first)()
            begun = [lambda: swept]
        while True:
            goal = rounds * len(widths)
            begun += [replicate(i) for i in range(len(found) + len(begun), goal)]
            for ended in begun:
                found.append(ended())
                keep()
                if not np.isfinite(found[-1].outputs).all():
                    now = settings._replace(particles=widths[(len(found) - 1) % len(widths)])
                    shown = found[-1:] if settings.dense else found
                    return average(how.problem, run, shown, now, stepping)
            begun = []
            left = np.hypot(stepping, extrapolation_error(found))
            estimate = average(how.problem, run, found, settings, left, change)
            random = average(how.problem, run, found, settings).relative_error
            settings.reached(random)
            most = settings.max_particles // sum(widths)
            if settings.replicates or random <= settings.rtol or most <= rounds:
                return estimate
            wanted = int(np.ceil(1.1 * rounds * (random / settings.rtol) ** 2))
            rounds = min(wanted, most, 4 * rounds)


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
    saved: Checkpoint | None = None,
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
            matrices = stored(*sides, settings.particles, start.live, rng, settings.dtype)
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
        f = jnp.zeros((problem.samples, *run.output_shape))
        curvature = jax.hessian(run.loss.sample)(f[0], jnp.asarray(run.data.y_train[0]))
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
