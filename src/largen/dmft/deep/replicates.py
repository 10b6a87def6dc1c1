"""Independent solutions with random matrices, their mean and its error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from largen.arrays import precision as in_precision
from largen.dmft.deep.advance import Swept, advance, first_capacities
from largen.dmft.deep.averages import Estimate, averaged, kernels_of, ratio
from largen.dmft.deep.checkpoint import Checkpoint, Done
from largen.dmft.deep.dense import stored
from largen.dmft.deep.effort import Effort
from largen.dmft.deep.initial_kernels import initial_tangent
from largen.dmft.deep.linear import TOLERANCE, solve_linear
from largen.dmft.deep.matrix import Matrices, Precision
from largen.dmft.deep.neurons import counts
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.schedule import Schedule, descent, extrapolated, flow
from largen.dmft.deep.start import begin, draw, unasked
from largen.dmft.deep.state import Kept, Model
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

    def one(tolerance: float, schedule: Schedule, known: Known = None) -> Swept:
        return solve_linear(problem, run, schedule, recorded, tolerance, kept)

    if run.steps is None:
        found, error = _flow(run, partial(one, TOLERANCE), _first_step(problem, run), LEVELS_LINEAR)
    else:
        found = one(TOLERANCE, descent(run))
        error = np.abs(found.outputs - one(30 * TOLERANCE, descent(run)).outputs)
    kernels = kernels_of(problem, run, found)
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
        return _sampled(problem, run, recorded, effort, rng, saved, found)
    except NumericalFailure as failure:
        swept = failure.result
        assert isinstance(swept, Swept)
        whole = found[: len(found) // len(effort.widths) * len(effort.widths)]
        estimate = averaged(problem, run, whole or [swept], effort, np.zeros(()))
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
    widths = effort.widths
    rounds = effort.replicates or (FEWEST_ROUNDS if effort.dense else FEWEST_REPLICATES)
    seeds = (int(seed) for seed in iter(lambda: rng.integers(2**31), None))
    longest = 0.0 if run.steps is not None else _first_step(problem, run)
    schedule = descent(run) if run.steps is not None else flow(run, longest, 0, LEVELS - 1)
    tried = None if effort.dense else next(seeds)
    kept = saved.load() if saved else None
    if kept is None:
        tolerance, left_out = effort.tolerance, np.zeros(())
        if tried is not None:
            tolerance, left_out, first = _tolerance(
                problem, run, schedule, recorded, effort, tried, saved
            )
            found += [first] if run.steps is not None else []
        stepping = np.zeros(())
    else:
        tolerance, left_out, stepping, longest, done = kept
        found += done
    effort = effort._replace(tolerance=tolerance)
    for _ in found[1:] if tried is not None and run.steps is not None else found:
        next(seeds)
    while True:
        goal = rounds * len(widths)
        while len(found) < goal:
            now = effort._replace(particles=widths[len(found) % len(widths)])
            tell = effort.part(len(found), goal)
            one = partial(_random, problem, run, recorded, now, next(seeds), tell=tell, saved=saved)
            if run.steps is not None:
                found.append(one(schedule)._replace(matrices=None))
            elif found:
                found.append(_flow(run, one, longest, LEVELS)[0])
            else:
                first, stepping, longest = _first_flow(run, one, longest, effort.rtol)
                found.append(first)
            if not np.isfinite(found[-1].outputs).all():
                shown = found[-1:] if effort.dense else found
                return averaged(problem, run, shown, now, stepping)
            if saved:
                saved.save(Done(tolerance, left_out, stepping, longest, found))
        estimate = averaged(problem, run, found, effort, np.asarray(np.hypot(stepping, left_out)))
        random = averaged(problem, run, found, effort, np.zeros(())).relative_error
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
) -> tuple[float, np.ndarray, Swept]:
    """Return the tolerance that is enough, the error that it leaves, and a replicate with it.

    A network is trained again with a third of the tolerance: it finds its earlier questions
    answered, so that the difference is that of the directions that were left out. The error is
    NaN where that fails, because there are hardly more neurons than directions.
    """
    swept = _random(problem, run, recorded, effort, seed, schedule, saved=saved)
    while True:
        finer = effort._replace(tolerance=effort.tolerance / 3)
        known = swept.matrices
        again = _random(problem, run, recorded, finer, seed, schedule, known, saved=saved)
        with np.errstate(invalid="ignore", over="ignore"):
            left_out = np.abs(again.outputs - swept.outputs).astype(np.float64)
        enough = ratio(left_out, swept.outputs) <= effort.rtol / 2
        if enough or finer.tolerance < LEAST_TOLERANCE or not np.isfinite(left_out).all():
            return effort.tolerance, left_out, swept._replace(matrices=None)
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
    tell: Callable[[float], None] = lambda fraction: None,
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
        # Threads that wait for one another take longer than these small products.
        with threadpool_limits(1, "blas"):
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


def _flow(run: Run, one: Sweep, longest: float, levels: int) -> tuple[Swept, np.ndarray]:
    """Return gradient flow from several lengths of steps, and the error of that.

    The shortest steps come first. Longer ones find their questions to the random matrices
    answered, so that the differences are those of one and the same network.
    """
    found: list[Swept] = []
    known: Known = None
    for level in reversed(range(levels)):
        swept = one(flow(run, longest, level, levels - 1), known)
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
    run: Run, one: Sweep, longest: float, rtol: float
) -> tuple[Swept, np.ndarray, float]:
    """Return a replicate of gradient flow with the length of steps that the error takes."""
    for _ in range(MOST_REFINEMENTS):
        found, error = _flow(run, one, longest, LEVELS)
        # Half of the error is left to the neurons.
        if ratio(error, found.outputs) <= rtol / 2:
            return found, error, longest
        longest /= 2
    return (*_flow(run, one, longest, LEVELS), longest)
