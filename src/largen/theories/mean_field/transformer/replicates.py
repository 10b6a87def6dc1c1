"""Independent solutions with sampled populations, their mean and its error.

Fields on which activations act are values at S neurons, so that averages have sampling errors of
order 1/√S, which vary from one replicate to another. Directions of fields that are smaller than a
tolerance τ are omitted. Their effect is measured on one replicate, whose matrices stay the same
while τ decreases by factors of 3. If it falls at least with the first power of τ, the error that is
left at τ/3 is at most half of the change from τ to τ/3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from largen.errors import InvalidInput
from largen.runs import Run
from largen.theories.mean_field.deep.estimation.averages import ratio
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
FINER = 3  # the factor by which the tolerance of directions decreases
LEAST_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Settings:
    """What is wanted of a solution.

    Attributes
    ----------
    rtol
        The target relative error of the outputs.
    particles
        The number of neurons of a sampled population; None to choose it.
    replicates
        The number of replicates; None for as many as the error requires.
    max_particles
        The largest number of neurons of all replicates together.
    record_at
        Time indices at which attention weights are recorded.
    budget
        The number of bytes that matrices may take.
    reached
        Called with the relative error by sampling after each round of replicates.
    """

    rtol: float
    particles: int | None
    replicates: int | None
    max_particles: int
    record_at: tuple[int, ...]
    budget: float
    reached: Callable[[float], object]


class Mean(NamedTuple):
    """The mean over replicates, or an exact solution.

    Attributes
    ----------
    f, patterns
        Outputs (step, sample, position, output), and attention weights (record, layer, sample,
        position, position).
    f_error, patterns_error
        Their errors; None if the solution is exact, NaN where they are not known.
    how
        What was computed, in words.
    stopped
        The name of the option that ended the solution before its time, if one did.
    directions
        The largest number of directions of a matrix.
    """

    f: np.ndarray
    patterns: np.ndarray
    f_error: np.ndarray | None
    patterns_error: np.ndarray | None
    how: str
    stopped: str | None
    directions: int

    @property
    def relative_error(self) -> float:
        """|error|/|f| over all time indices and samples; NaN if an error is not known."""
        if self.f_error is None:
            return 0.0
        unknown = np.isnan(self.f_error) & np.isfinite(self.f)
        return np.nan if unknown.any() else ratio(self.f_error, self.f)


def solve_exactly(problem: AttentionProblem, run: Run, settings: Settings, tell: Any) -> Mean:
    """Return the solution of a network without activations."""
    found = train(InfiniteNetwork(problem), problem, run, settings.record_at, settings.budget, tell)
    most = f"up to {found.directions} directions of a matrix"
    how = f"coordinates in Gaussian vectors, {most}; exact to rounding"
    patterns = _patterns(problem, run, settings, found)
    return Mean(found.f, patterns, None, None, how, found.stopped, found.directions)


def solve_by_replicates(
    problem: AttentionProblem,
    run: Run,
    settings: Settings,
    rng: np.random.Generator,
    tell: Callable[[int, int], Any],
) -> Mean:
    """Return the mean over as many replicates as the target error requires.

    Parameters
    ----------
    problem, run
        The problem, and its run.
    settings
        The target error, and the numbers of neurons and replicates.
    rng
        The source of the seeds of replicates.
    tell
        Called with the numbers of finished and of all time indices.

    Raises
    ------
    InvalidInput
        If the initial weights alone have more vectors than there are neurons for.
    """
    particles = settings.particles or wanted_particles(problem, run)
    while True:
        last = settings.particles is not None or 2 * particles > settings.max_particles
        try:
            found = _Replicates(problem, run, settings, particles, rng, tell).mean()
            if found.stopped != "particles" or last:
                return found
        except TooFewNeurons:
            if last:
                raise InvalidInput(
                    "particles: wanted more than twice the number of inputs and biases of a "
                    f"population with activations, got {particles}."
                ) from None
        particles *= 2


def wanted_particles(problem: AttentionProblem, run: Run) -> int:
    """Return the default number of neurons of a sampled population, a power of two."""
    columns = len(run.data.x) * problem.program.positions
    return 2 ** int(np.ceil(np.log2(max(FEWEST_PARTICLES, PER_COLUMN * columns))))


class _Replicates:
    """Replicates of some number of neurons."""

    def __init__(
        self,
        problem: AttentionProblem,
        run: Run,
        settings: Settings,
        particles: int,
        rng: np.random.Generator,
        tell: Callable[[int, int], Any],
    ):
        self._problem, self._run, self._settings = problem, run, settings
        self._particles, self._rng, self._tell = particles, rng, tell
        self._tolerance = settings.rtol / FINER
        self._goal = (settings.replicates or FEWEST_REPLICATES) + 1
        self._trained = 0
        self._found: list[Solved] = []

    def mean(self) -> Mean:
        """Return the mean over as many replicates as are wanted."""
        settings = self._settings
        change = self._refine()
        while True:
            rounds = self._goal - self._trained + len(self._found)
            while len(self._found) < rounds and self._go_on():
                self._found.append(self._solve(self._network()))
            found = self._average(change)
            most = settings.max_particles // self._particles
            random = self._average(None).relative_error
            if np.isfinite(random):
                settings.reached(random)
            enough = settings.replicates or random <= settings.rtol or most <= rounds
            if enough or not np.isfinite(random) or not self._go_on():
                return found
            wanted = int(np.ceil(1.1 * rounds * (random / settings.rtol) ** 2))
            self._goal += max(1, min(wanted, most, 4 * rounds) - rounds)

    def _refine(self) -> Solved:
        """Find a sufficient tolerance; return the first replicate with three times of it."""
        network = self._network()
        rough = self._solve(network)
        while True:
            fine = rough
            if rough.stopped is None:
                self._tolerance /= FINER
                network.restart(self._tolerance)
                fine = self._solve(network)
            left = ratio((fine.f - rough.f) / (FINER - 1), fine.f)
            last = self._tolerance < LEAST_TOLERANCE or fine.stopped is not None
            if last or not np.isfinite(fine.f).all() or left <= self._settings.rtol / 2:
                self._found.append(fine)
                return rough
            self._goal += 1
            rough = fine

    def _go_on(self) -> bool:
        """Whether all replicates came to their end."""
        return all(one.stopped is None and np.isfinite(one.f).all() for one in self._found)

    def _network(self) -> InfiniteNetwork:
        """Return another network."""
        samples = len(self._run.data.x) + self._problem.samples
        first = samples * self._problem.program.positions
        drawn = Drawn(self._particles, first, int(self._rng.integers(2**31)))
        network = InfiniteNetwork(self._problem, drawn)
        network.restart(self._tolerance)
        return network

    def _solve(self, network: InfiniteNetwork) -> Solved:
        """Train a network."""
        times = len(self._run.times)
        before, goal = self._trained * times, self._goal * times

        def tell(done: int, total: int) -> Any:
            return self._tell(before + done, max(goal, before + total))

        settings = self._settings
        found = train(network, self._problem, self._run, settings.record_at, settings.budget, tell)
        self._trained += 1
        return found

    def _average(self, rough: Solved | None) -> Mean:
        """Return the mean, its errors with those of a rougher first replicate if it is given."""
        found = self._found
        # One that stopped, or diverged, shows how far the others would have come.
        shown = found if self._go_on() else found[-1:]

        def of(one: Solved) -> np.ndarray:
            return _patterns(self._problem, self._run, self._settings, one)

        first = None if rough is None else (rough.f, of(rough))
        f, patterns = ([one.f for one in shown], [of(one) for one in shown])
        f, f_error = _mean_and_error(f, found[0].f, first and first[0])
        patterns, patterns_error = _mean_and_error(patterns, of(found[0]), first and first[1])
        directions = max(one.directions for one in shown)
        how = (
            f"{len(shown)} replicates of {self._particles} neurons in sampled populations,"
            f" up to {directions} directions of a matrix"
        )
        stopped = shown[-1].stopped
        return Mean(f, patterns, f_error, patterns_error, how, stopped, directions)


def _mean_and_error(
    values: list[np.ndarray], fine: np.ndarray, rough: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of replicates, and its error by their spread and by omitted directions."""
    with np.errstate(invalid="ignore", over="ignore"):
        each = np.stack(values)
        error = (
            each.std(0, ddof=1) / len(each) ** 0.5 if len(each) > 1 else np.full_like(fine, np.nan)
        )
        if rough is not None:
            error = np.hypot(error, np.abs(fine - rough) / (FINER - 1))
        return each.mean(0), error


def _patterns(problem: AttentionProblem, run: Run, settings: Settings, found: Solved) -> np.ndarray:
    """Return recorded attention weights as an array, NaN where there are none."""
    program, records = problem.program, len(settings.record_at)
    sides = program.positions, program.positions
    patterns = np.full((records, program.attentions, len(run.data.x), *sides), np.nan)
    if program.attentions and found.patterns:
        patterns[: len(found.patterns)] = found.patterns
    return patterns
