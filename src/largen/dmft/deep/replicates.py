"""Independent solutions with random matrices, their mean and its error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from largen.arrays import precision as in_precision
from largen.dmft.deep.advance import Swept, advance, first_capacities
from largen.dmft.deep.checkpoint import Checkpoint, Done
from largen.dmft.deep.control_variate import corrected
from largen.dmft.deep.dense import stored
from largen.dmft.deep.initial_kernels import initial_tangent
from largen.dmft.deep.innovations import Mode
from largen.dmft.deep.linear import TOLERANCE, solve_linear
from largen.dmft.deep.matrix import Matrices, Precision
from largen.dmft.deep.neurons import counts
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.records import pair_variables, site_variables, trajectory_variables
from largen.dmft.deep.schedule import Schedule, descent, extrapolated, flow
from largen.dmft.deep.start import begin, draw, unasked
from largen.dmft.deep.state import NOTHING_MORE, Kept, Model
from largen.dmft.deep.widths import at_infinite_width
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


class Estimate(NamedTuple):
    """Means over replicates, their errors (``name_error`` of a kernel), how they were got, and
    the neurons that were kept of the first one."""

    f: np.ndarray
    f_error: np.ndarray
    f_std: np.ndarray | None
    kernels: dict[str, np.ndarray]
    how: str
    sites: dict[str, np.ndarray]

    @property
    def relative_error(self) -> float:
        """|error|/|f| over all entries and samples; NaN if no error is known."""
        return np.nan if np.isnan(self.f_error).all() else _ratio(self.f_error, self.f)


class Stopped(Exception):
    """Replicates cannot go on: with the mean of those that are done, or what there is of one."""

    def __init__(self, message: str, estimate: Estimate):
        super().__init__(message)
        self.estimate = estimate


class Effort(NamedTuple):
    """What is spent on a solution.

    Attributes
    ----------
    rtol
        Wanted relative error of the outputs.
    particles, replicates, max_particles
        Neurons of a layer, or per unit of width; how many times (None: as the error takes); bound
        on their product.
    mode
        Of the innovations.
    tolerance
        Of directions.
    dtype
        Of the neurons.
    dense
        Whether matrices are stored: networks of the given number of neurons and of half of it.
    budget
        Bytes that the matrices of one replicate may take.
    kept
        At records.
    report
        Called with how much is done, and how much there is to do.
    """

    rtol: float
    particles: int
    replicates: int | None
    max_particles: int
    mode: Mode
    tolerance: float
    dtype: Any
    dense: bool = False
    budget: float = np.inf
    kept: Kept = NOTHING_MORE
    report: Callable[[int, int], None] = lambda done, total: None

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the networks that a round of replicates is made of."""
        return (self.particles, self.particles // 2) if self.dense else (self.particles,)

    def part(self, done: int, total: int) -> Callable[[float], None]:
        """Return what tells the progress of one of several replicates."""
        return lambda fraction: self.report(int(100 * (done + fraction)), 100 * total)


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
    kernels = _kernels(problem, run, found)
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
        estimate = _averaged(problem, run, whole or [swept], effort, np.zeros(()))
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
                return _averaged(problem, run, shown, now, stepping)
            if saved:
                saved.save(Done(tolerance, left_out, stepping, longest, found))
        estimate = _averaged(problem, run, found, effort, np.asarray(np.hypot(stepping, left_out)))
        random = _averaged(problem, run, found, effort, np.zeros(())).relative_error
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
    answered, so that the difference is that of the directions that were left out.
    """
    swept = _random(problem, run, recorded, effort, seed, schedule, saved=saved)
    while True:
        finer = effort._replace(tolerance=effort.tolerance / 3)
        known = swept.matrices
        again = _random(problem, run, recorded, finer, seed, schedule, known, saved=saved)
        with np.errstate(invalid="ignore", over="ignore"):
            left_out = np.abs(again.outputs - swept.outputs).astype(np.float64)
        enough = _ratio(left_out, swept.outputs) <= effort.rtol / 2
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
        if _ratio(error, found.outputs) <= rtol / 2:
            return found, error, longest
        longest /= 2
    return (*_flow(run, one, longest, LEVELS), longest)


def _averaged(
    problem: Problem, run: Run, found: list[Swept], effort: Effort, systematic: np.ndarray
) -> Estimate:
    widths = effort.widths if len(found) > 1 else effort.widths[:1]
    count = len(found) // len(widths)
    each = "per unit of width" if problem.unequal else "a layer"
    with np.errstate(invalid="ignore", over="ignore"):
        same_width = [found[i :: len(widths)] for i in range(len(widths))]
        levels = [_means_and_errors(problem, run, some) for some in same_width]
        if len(levels) > 1:
            fine, rough = levels
            both = {name: at_infinite_width(fine[name], rough[name]) for name in fine}
            means = {name: part[:2] for name, part in both.items()}
            how = (
                f"{count} dense networks each of {widths[0]} and {widths[1]} neurons {each}; of "
                f"the way from there to 1/N = 0, {both['f'][2]:.0%} is extrapolated"
            )
        else:
            ranks = np.max([one.ranks for one in found], 0)
            rank = f", ranks up to {ranks.max()}" if ranks.size else ""
            means = levels[0]
            how = f"{count} replicates of {effort.particles} neurons {each} ({effort.mode}{rank})"
        std = levels[0]["f"][1] * count**0.5
        f, error = means.pop("f")
        error = np.sqrt(error**2 + systematic**2)
    kernels = {name: mean for name, (mean, _) in means.items()}
    if count > 1:
        kernels |= {f"{name}_error": off for name, (_, off) in means.items()}
    sites = {}
    if effort.kept.sites and found[0].kernels:
        sites = site_variables(problem, run.output_shape, found[0].kernels)
    one = std if effort.mode == "finite_width" else None
    return Estimate(f, error, one, kernels, how, sites)


def _means_and_errors(
    problem: Problem, run: Run, found: list[Swept]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the means of replicates and their standard errors; NaN for a single one."""
    parts = [{"f": one.outputs} | _kernels(problem, run, one) for one in found]
    values = {name: np.stack([part[name] for part in parts]).astype(float) for name in parts[0]}
    if len(found[0].linear_kernels):
        outputs = np.stack([one.linear for one in found]).swapaxes(1, 2)
        kernels = np.stack([one.linear_kernels for one in found])[:, :, None]
        train, test = np.split(kernels, [problem.samples], 3)
        for name, linear in (("f", outputs), ("ntk", train), ("ntk_test", test)):
            if name in values:
                exact, own = linear.swapaxes(0, 1)
                shape = *exact.shape[:2], *values[name].shape[2:]
                values[name] = corrected(values[name], exact.reshape(shape), own.reshape(shape))
    means = {}
    for name, each in values.items():
        lone = np.full(each.shape[1:], np.nan)
        error = each.std(0, ddof=1) / len(each) ** 0.5 if len(each) > 1 else lone
        means[name] = each.mean(0), error
    return means


def _kernels(problem: Problem, run: Run, found: Swept) -> dict[str, np.ndarray]:
    kept, shape = {}, run.output_shape
    if found.kernels:
        kept = trajectory_variables(problem, shape, found.kernels)
    return kept | (pair_variables(problem, shape, found.pairs) if found.pairs else {})


def _ratio(errors: np.ndarray, values: np.ndarray) -> float:
    """Return the norm of some arrays over that of others; 0/0 is 0."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        above, below = np.sqrt(np.nansum(errors**2)), np.sqrt(np.nansum(values**2))
        return float(above / below) if above else 0.0
