"""Independent solutions at two numbers of neurons, their mean and its error.

Errors of a solution with S neurons are random ones of order 1/√S, which vary from one replicate to
another, and a shift of order 1/S. Each replicate is solved with S and with S/2 neurons, so that the
mean difference estimates the shift; as far as it is not significant it counts as noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm
from typing import NamedTuple, cast

import numpy as np

from largen.errors import InvalidInput
from largen.memory import check_fits
from largen.progress import Report
from largen.runs import Run
from largen.theories.chains.decay import degree
from largen.theories.mean_field.adaptive_deep.weights import AdaptiveUpdates, bytes_per_entry
from largen.theories.mean_field.engine.checkpoint import Checkpoint
from largen.theories.mean_field.engine.parallel import Tell, cores, one_thread_of_blas, part
from largen.theories.mean_field.engine.replicates import Goal, Replicates
from largen.theories.mean_field.engine.statistics import mean_and_error, ratio, relative
from largen.theories.mean_field.transformer.dynamics import (
    AttentionProblem,
    Drawn,
    InfiniteNetwork,
    Solved,
    train,
)
from largen.theories.mean_field.transformer.populations import TooFewNeurons
from largen.theories.mean_field.transformer.replicates import Mean, Settings, mean_over

FEWEST_REPLICATES = 8
FEWEST_PARTICLES, MOST_PARTICLES = 1024, 4096
PER_COLUMN = 32
COARSEST = 3e-3  # the target error down to which the fewest particles suffice


def wanted_particles(
    problem: AttentionProblem, run: Run, rtol: float, fewest: float = FEWEST_PARTICLES
) -> int:
    """Return the default number of neurons per unit of width, and at least ``fewest``."""
    columns = len(run.data.x) * problem.network.positions
    fewest *= min(MOST_PARTICLES / FEWEST_PARTICLES, max(1.0, COARSEST / rtol))
    wanted = 2 ** int(np.ceil(np.log2(max(fewest, PER_COLUMN * columns))))
    step = _step(problem)
    return -(-wanted // step) * step


def bytes_of(problem: AttentionProblem, particles: int) -> float:
    """Return the bytes of all matrices of a replicate, and of at least a neuron's numbers."""
    network = problem.network
    pairs = (
        network.nodes[read].ratio * node.ratio
        for node in network.nodes[1:-1]
        for read in node.reads
        if network.is_matrix(node)
    )
    each = bytes_per_entry(cast("AdaptiveUpdates", problem.updates).average)
    return 1.25 * each * (sum(pairs) * particles**2 + particles)


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
    fewest: float = FEWEST_PARTICLES,
    # A root of the covariance of random initial outputs, (sample, noise).
    root: np.ndarray | None = None,
) -> Mean:
    """Return the mean over as many replicates as the target error requires."""
    kept = None if saved is None else saved.load()
    particles = settings.particles or wanted_particles(problem, run, settings.rtol, fewest)
    if settings.particles and particles % _step(problem):
        raise InvalidInput(
            f"particles: wanted a multiple of {_step(problem)}, so that there are integers of "
            f"neurons in all layers, at half of them as well, got {particles}."
        )
    if kept is not None:
        particles = kept.common.particles
    while True:
        at_once = int(min(cores(), max(1, settings.budget // bytes_of(problem, particles))))
        plan = AdaptivePlan(problem, run, settings, particles, seed, at_once, root)
        most = settings.max_particles // particles
        goal = Goal(settings.rtol, settings.replicates, FEWEST_REPLICATES, most, reached=reached)
        replicates = Replicates(plan, plan.common, goal, at_once, tell, saved)
        try:
            with one_thread_of_blas():
                return plan.average(replicates.run(kept).replicates)
        except TooFewNeurons:
            particles *= 2
            _check_enough(problem, run, settings, particles)


def _check_enough(problem: AttentionProblem, run: Run, settings: Settings, particles: int) -> None:
    """Check that twice as many neurons as did not suffice may be taken."""
    need = f"the first passes of {len(run.data.x)} samples need more neurons"
    if settings.particles:
        raise InvalidInput(f"particles: {need}, got {settings.particles}.")
    if particles > settings.max_particles:
        raise InvalidInput(f"max_particles: {need}, got {settings.max_particles}.")
    check_fits(
        bytes_of(problem, particles),
        f"net: {need}, whose matrices and averages",
        "Take fewer samples, or a network of fewer layers.",
    )


def _step(problem: AttentionProblem) -> int:
    """Return the number of which the neurons per unit of width are a multiple."""
    weights = problem.network.program.weights
    heads = problem.network.populations.head_sizes.values()
    return 2 * lcm(*(weight.width_ratio.denominator for weight in weights), *heads)


class Common(NamedTuple):
    """What replicates have in common."""

    particles: int  # S, the number of neurons per unit of width


class Both(NamedTuple):
    """A replicate with S neurons, and with half as many; twice the same one if that has no end."""

    fine: Solved
    rough: Solved


# The types of what a checkpoint has. The first replicate shows nothing beside itself.
KINDS = (Common, Solved | None, Both)


class AdaptivePlan:
    """Replicates of some number of neurons, and of half as many."""

    def __init__(
        self,
        problem: AttentionProblem,
        run: Run,
        settings: Settings,
        particles: int,
        seed: np.ndarray,
        at_once: int,  # the number of replicates that share the memory budget
        root: np.ndarray | None = None,  # of the covariance of initial outputs
    ):
        self._problem, self._run, self._settings = problem, run, settings
        self.common, self._seed = Common(particles), tuple(seed.tolist())
        self._budget, self._root = settings.budget / at_once, root

    def begin(self, tell: Tell) -> tuple[Common, None, Both]:
        """Return the number of neurons, and the first replicate."""
        return self.common, None, self.replicate(self.common, 0, tell)

    def replicate(self, common: Common, number: int, tell: Tell) -> Both:
        """Return a replicate."""
        solved = []
        for i, neurons in enumerate((common.particles, common.particles // 2)):
            solved.append(self._averaged(number, neurons, part(tell, i, 2)))
            if not solved[-1].ended:
                return Both(*solved[-1:] * 2)
        return Both(*solved)

    def ended(self, result: Both) -> bool:
        """Whether training came to its end, with finite outputs."""
        return result.fine.ended

    def error(self, found: Sequence[Both]) -> float:
        """Return the relative error of the outputs, by sampling and by the shift."""
        mean = self.average(found)
        assert mean.f_error is not None
        return relative(mean.f_error, mean.f)

    def average(self, found: Sequence[Both]) -> Mean:
        """Return the mean, and its errors with that by the shift."""
        # One that stopped, or diverged, shows how far the others would have come.
        shown = found if self.ended(found[-1]) else found[-1:]
        how = (
            f"{len(shown)} replicates of {self.common.particles} neurons per unit of width, and of "
            "half as many"
        )

        def mean(of: Callable[[Solved], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            return _mean_and_error(
                np.stack([of(both.fine) for both in shown]),
                np.stack([of(both.rough) for both in shown]),
            )

        return mean_over([both.fine for both in shown], mean, how)

    def _averaged(self, number: int, neurons: int, tell: Tell) -> Solved:
        """Return the solution with some number of neurons.

        Where initial outputs are random it is the mean of two, from opposite ones, so that the odd
        part of their effect cancels.
        """
        if self._root is None:
            return self.solved(number, neurons, tell)
        shape = self._root.shape[1], 1, self._problem.outputs
        noise = np.random.default_rng((*self._seed, number)).standard_normal(shape)
        start = np.tensordot(self._root, noise, 1)
        one = self.solved(number, neurons, part(tell, 0, 2), start)
        two = self.solved(number, neurons, part(tell, 1, 2), -start)
        return one._replace(f=(one.f + two.f) / 2, stopped=one.stopped or two.stopped)

    def solved(
        self, number: int, neurons: int, tell: Tell, start: np.ndarray | float = 0.0
    ) -> Solved:
        """Return the solution with some number of neurons, from some initial outputs.

        Weight decay shrinks the part of outputs that they are by a power of its factor.
        """
        if np.ndim(start) and (decay := self._run.optimizer.weight_decay):
            power = degree(self._run.program, self._problem.network.form)
            left = np.cumprod(1 - decay * np.asarray(self._run.rates, float)) ** power
            start = np.concatenate([[1.0], left])[:, None, None, None] * start
        first = (len(self._run.data.x) + self._problem.samples) * self._problem.network.positions
        network = InfiniteNetwork(
            self._problem, Drawn(neurons, first, (*self._seed, neurons, number))
        )
        what = self._problem, self._run, self._settings.record_at, self._settings.wanted
        solved = train(network, *what, self._budget, lambda done, total: tell(done / total), start)
        if solved.stopped == "particles":
            raise TooFewNeurons
        return solved


def _mean_and_error(fine: np.ndarray, rough: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of replicates, and its error by their spread and by the shift of S neurons.

    A shift of order 1/S is the mean difference between S/2 and S neurons. Its square is reduced by
    that of noise.
    """
    mean, error = mean_and_error(fine)
    if len(fine) < 2:
        return mean, error
    with np.errstate(invalid="ignore", over="ignore"):
        shift, noise = mean_and_error(rough - fine)
        share = ratio(noise, shift)
        left = np.sqrt(max(0.0, 1 - share**2)) if share else float(bool(shift.any()))
        return mean, np.hypot(error, left * shift)
