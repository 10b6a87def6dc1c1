"""Independent solutions with random matrices, their mean and its error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.dmft.deep.advance import Swept, advance, first_capacities
from largen.dmft.deep.averages import Estimate, averaged, ratio
from largen.dmft.deep.checkpoint import Checkpoint, Done
from largen.dmft.deep.dense import stored
from largen.dmft.deep.effort import Effort
from largen.dmft.deep.initial_kernels import initial_tangent
from largen.dmft.deep.left_out import FINER, LeftOut, left_out, uncertain
from largen.dmft.deep.linear import TOLERANCE, solve_linear
from largen.dmft.deep.matrix import Matrices, Precision
from largen.dmft.deep.method import replicates_at_once
from largen.dmft.deep.neurons import counts
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.records import kernel_variables
from largen.dmft.deep.schedule import Schedule, descent, extrapolated, flow
from largen.dmft.deep.start import begin, draw, unasked
from largen.dmft.deep.state import Kept, Model
from largen.dmft.deep.team import Team, Tell, one_thread_of_blas, part, unheard
from largen.dmft.recorded import Recorded
from largen.errors import NumericalFailure
from largen.runs import Run

FEWEST_REPLICATES, FEWEST_ROUNDS = 4, 12
LEVELS = 3  # step lengths from which gradient flow is extrapolated
LEVELS_LINEAR = 5
FIRST_STEP = 0.5  # times the curvature of the loss
MOST_REFINEMENTS = 4
LEAST_TOLERANCE = 1e-3

Known = Matrices | None
Sweep = Callable[..., Swept]


class Stopped(Exception):
    """Replicates cannot go on: with the mean of those that are done, or what there is of one."""

    def __init__(self, message: str, estimate: Estimate):
        super().__init__(message)
        self.estimate = estimate


def closed(problem: Problem, run: Run, recorded: Recorded, kept: Kept) -> Estimate:
    """Return the solution of the closed equations of a linear network."""
    how = "closed equations of linear φ"

    def one(
        tolerance: float, schedule: Schedule, known: Known = None, tell: Tell = unheard
    ) -> Swept:
        return solve_linear(problem, run, schedule, recorded, tolerance, kept)

    if run.steps is None:
        found, error = _flow(run, partial(one, TOLERANCE), _first_step(problem, run), LEVELS_LINEAR)
    else:
        found = one(TOLERANCE, descent(run))
        error = np.abs(found.outputs - one(30 * TOLERANCE, descent(run)).outputs)
    kernels = kernel_variables(problem, run.output_shape, found.kernels, found.pairs)
    return Estimate(found.outputs.astype(np.float64), error, None, kernels, how, {})


def sampled(
    problem: Problem,
    run: Run,
    recorded: Recorded,
    effort: Effort,
    rng: np.random.Generator,
    saved: Checkpoint | None = None,
) -> Estimate:
    """Return the mean over as many replicates as the wanted error takes.

    What is done is kept in files, if there is a checkpoint, and taken up from there.

    Raises
    ------
    Stopped
        If directions outgrow the memory budget.
    """
    found: list[Swept] = []
    try:
        with one_thread_of_blas():
            return _sampled(problem, run, recorded, effort, rng, saved, found)
    except NumericalFailure as failure:
        swept = failure.result
        assert isinstance(swept, Swept)
        whole = found[: len(found) // len(effort.widths) * len(effort.widths)]
        estimate = averaged(problem, run, whole or [swept], effort)
        raise Stopped(str(failure), estimate) from None


def _sampled(
    problem: Problem,
    run: Run,
    recorded: Recorded,
    effort: Effort,
    rng: np.random.Generator,
    saved: Checkpoint | None,
    found: list[Swept],
) -> Estimate:
    """Return the same, and leave the replicates in a list on the way."""
    widths, flows, tried = effort.widths, run.steps is None, not effort.dense
    rounds = effort.replicates or (FEWEST_ROUNDS if effort.dense else FEWEST_REPLICATES)
    longest = _first_step(problem, run) if flows else 0.0
    schedule = flow(run, longest, 0, LEVELS - 1) if flows else descent(run)
    seeds = (int(seed) for seed in iter(lambda: rng.integers(2**31), None))
    trial = next(seeds) if tried else None
    drawn = [] if trial is None or flows else [trial]  # of descent, the trial is the first one

    def seed(i: int) -> int:
        while len(drawn) <= i:
            drawn.append(next(seeds))
        return drawn[i]

    def sweep(i: int) -> Sweep:
        now = effort._replace(particles=widths[i % len(widths)])
        return partial(_random, problem, run, recorded, now, seed(i), saved=saved)

    def replicate(i: int) -> Callable[[], Swept]:
        """Let a replicate begin."""
        one = sweep(i)
        if flows:
            return team.start(i, lambda tell: _flow(run, one, longest, LEVELS, tell)[0])
        return team.start(i, lambda tell: one(schedule, tell=tell)._replace(matrices=None))

    def keep() -> None:
        if saved and np.isfinite(found[-1].outputs).all():
            saved.save(Done(effort.tolerance, change, stepping, longest, found))

    size = replicates_at_once(problem, effort)
    with Team(size, lambda done: effort.report(int(100 * (done + loaded)), 100 * goal)) as team:
        goal, loaded, stepping = rounds * len(widths), 0, np.zeros(())
        change: LeftOut = {}
        begun: list[Callable[[], Swept]] = []
        kept = saved.load() if saved else None
        if kept is not None:
            tolerance, change, stepping, longest, done = kept
            effort = effort._replace(tolerance=tolerance)
            found += done
            loaded = len(done)
        elif trial is not None:
            find = partial(_tolerance, problem, run, schedule, recorded, effort, trial, saved)
            ended = team.start(0, find)
            # The tolerance is likely to do: the others begin beside its trial.
            begun = [] if flows else [replicate(i) for i in range(1, goal)]
            tolerance, change, swept = ended()
            if tolerance != effort.tolerance:
                team.dismiss()
                effort, begun = effort._replace(tolerance=tolerance), []
            if not flows:
                found.append(swept)
                keep()
        if flows and not found:
            first = partial(_first_flow, run, sweep(0), longest, effort.rtol)
            swept, stepping, longest = team.start(0, first)()
            begun = [lambda: swept]
        while True:
            goal = rounds * len(widths)
            begun += [replicate(i) for i in range(len(found) + len(begun), goal)]
            for ended in begun:
                found.append(ended())
                keep()
                if not np.isfinite(found[-1].outputs).all():
                    now = effort._replace(particles=widths[(len(found) - 1) % len(widths)])
                    shown = found[-1:] if effort.dense else found
                    return averaged(problem, run, shown, now, stepping)
            begun = []
            estimate = averaged(problem, run, found, effort, stepping, change)
            random = averaged(problem, run, found, effort).relative_error
            most = effort.max_particles // sum(widths)
            if effort.replicates or random <= effort.rtol or most <= rounds:
                return estimate
            wanted = int(np.ceil(1.1 * rounds * (random / effort.rtol) ** 2))
            rounds = min(wanted, most, 4 * rounds)


def _tolerance(
    problem: Problem,
    run: Run,
    schedule: Schedule,
    recorded: Recorded,
    effort: Effort,
    seed: int,
    saved: Checkpoint | None,
    tell: Tell = unheard,
) -> tuple[float, LeftOut, Swept]:
    """Return the tolerance that is enough, what it leaves out, and a replicate with it.

    What it leaves out is NaN where a finer one fails, because there are hardly more neurons than
    directions.
    """
    one = partial(_random, problem, run, recorded, seed=seed, schedule=schedule, saved=saved)
    swept = one(effort, tell=part(tell, 0, 2))
    while True:
        finer = effort._replace(tolerance=effort.tolerance / FINER)
        again = one(finer, known=swept.matrices, tell=part(tell, 1, 2))
        change = left_out(problem, run, swept, again)
        left = uncertain(problem, "f", change["f"])
        enough = ratio(left, swept.outputs) <= effort.rtol / 2
        if enough or finer.tolerance < LEAST_TOLERANCE or not np.isfinite(left).all():
            return effort.tolerance, change, swept._replace(matrices=None)
        effort, swept = finer, again


def _random(
    problem: Problem,
    run: Run,
    recorded: Recorded,
    effort: Effort,
    seed: int,
    schedule: Schedule,
    known: Known = None,
    *,
    tell: Tell = unheard,
    saved: Checkpoint | None = None,
) -> Swept:
    """Return the solution with one set of random matrices."""
    rng = np.random.default_rng(seed)
    rule = Precision(1 / effort.particles, effort.tolerance)
    model = Model.of(problem, run, effort.mode, effort.kept)
    place = None
    if saved is not None:
        times, size = recorded.at(schedule.entries), (effort.particles, effort.tolerance)
        place = saved.place(seed, size, schedule, times, fresh=known is None)
    with in_precision(np.zeros((), effort.dtype)):
        start = draw(problem, effort.mode, effort.particles, rng, rule, effort.dtype)
        keys = jax.random.split(jax.random.key(rng.integers(2**31)), max(problem.streams) + 1)
        if effort.dense:
            start = start._replace(anchors=None)
            sides = start.inputs, start.outputs
            matrices = stored(*sides, effort.particles, start.live, rng, effort.dtype)
        else:
            most = max(counts(problem, effort.particles))
            matrices = known or unasked(start, first_capacities(problem, most))
        state, constants = begin(problem, run, schedule, start, keys, rule, matrices)
        swept = advance(
            model,
            state,
            constants,
            problem,
            schedule,
            recorded,
            budget=effort.budget,
            tell=tell,
            place=place,
        )
    assert swept is not None
    return swept


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
    run: Run, one: Sweep, longest: float, levels: int, tell: Tell = unheard
) -> tuple[Swept, np.ndarray]:
    """Return gradient flow from several lengths of steps, and the error of that.

    The shortest steps come first. Longer ones find their questions to the random matrices
    answered, so that the differences are those of one and the same network.
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
            extrapolated([(one.outputs, one.kernels, one.pairs, one.linear) for one in some])
            for some in (found, found[1:])
        )
        error = np.abs(best[0] - rougher[0])
    ranks = np.max([one.ranks for one in found], 0)
    f, kernels, pairs, linear = best
    return Swept(f, kernels, pairs, linear, found[0].linear_kernels, ranks), error


def _first_flow(
    run: Run, one: Sweep, longest: float, rtol: float, tell: Tell = unheard
) -> tuple[Swept, np.ndarray, float]:
    """Return a replicate of gradient flow with the length of steps that the error takes."""
    for _ in range(MOST_REFINEMENTS):
        found, error = _flow(run, one, longest, LEVELS, tell)
        # Half of the error is left to the neurons.
        if ratio(error, found.outputs) <= rtol / 2:
            return found, error, longest
        longest /= 2
    return (*_flow(run, one, longest, LEVELS, tell), longest)
