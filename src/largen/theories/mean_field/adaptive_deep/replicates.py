"""Independent solutions at two numbers of neurons, their mean and its error.

Errors of a solution with S neurons are random ones of order 1/√S, which vary from one replicate to
another, and a shift of order 1/S. Each replicate is solved with S and with S/2 neurons, so that the
mean difference estimates the shift; as far as it is not significant it counts as noise.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import Any

import numpy as np

from largen.errors import InvalidInput
from largen.runs import Run
from largen.theories.mean_field.deep.estimation.averages import ratio
from largen.theories.mean_field.deep.estimation.parallel import (
    Team,
    cores,
    one_thread_of_blas,
    part,
)
from largen.theories.mean_field.transformer.dynamics import (
    AttentionProblem,
    Drawn,
    InfiniteNetwork,
    Solved,
    train,
)
from largen.theories.mean_field.transformer.populations import TooFewNeurons
from largen.theories.mean_field.transformer.replicates import Mean, Settings
from largen.theories.mean_field.transformer.saved import Kept, SavedReplicates

FEWEST_REPLICATES = 8
FEWEST_PARTICLES, MOST_PARTICLES = 1024, 4096
PER_COLUMN = 32
COARSEST = 3e-3  # the target error down to which the fewest particles suffice
PER_PAIR = 12  # bytes: an entry and its two averages in single precision


def wanted_particles(problem: AttentionProblem, run: Run, rtol: float) -> int:
    """Return the default number of neurons per unit of width."""
    columns = len(run.data.x) * problem.network.positions
    fewest = FEWEST_PARTICLES * min(MOST_PARTICLES / FEWEST_PARTICLES, max(1.0, COARSEST / rtol))
    wanted = 2 ** int(np.ceil(np.log2(max(fewest, PER_COLUMN * columns))))
    step = _step(problem)
    return -(-wanted // step) * step


def bytes_of(problem: AttentionProblem, particles: int) -> float:
    """Return the bytes of all matrices of a replicate."""
    network = problem.network
    pairs = (
        network.nodes[read].ratio * node.ratio
        for node in network.nodes[1:-1]
        for read in node.reads
        if network.is_matrix(node)
    )
    return 1.25 * PER_PAIR * sum(pairs) * particles**2


def solve_by_replicates(
    problem: AttentionProblem,
    run: Run,
    settings: Settings,  # the target error, and the numbers of neurons and replicates
    seed: np.ndarray,
    # Called with parts of the work that are finished, and all of them.
    tell: Callable[[int, int], Any],
    # The file that finished replicates are written to, and read from.
    saved: SavedReplicates | None = None,
) -> Mean:
    """Return the mean over as many replicates as the target error requires."""
    kept = None if saved is None else saved.load()
    particles = settings.particles or wanted_particles(problem, run, settings.rtol)
    if settings.particles and particles % _step(problem):
        raise InvalidInput(
            f"particles: wanted a multiple of {_step(problem)}, so that there are integers of "
            f"neurons in all layers, at half of them as well, got {particles}."
        )
    at_once = int(min(cores(), max(1, settings.budget // bytes_of(problem, particles))))
    found = [] if kept is None else kept.found
    goal = settings.replicates or FEWEST_REPLICATES

    def solve(number: int, neurons: int, tell: Callable[[float], None]) -> Solved:
        first = (len(run.data.x) + problem.samples) * problem.network.positions
        drawn = Drawn(neurons, first, (*seed.tolist(), neurons, number))
        network = InfiniteNetwork(problem, drawn)
        return train(
            network,
            problem,
            run,
            settings.record_at,
            settings.wanted,
            settings.budget / at_once,
            lambda done, total: tell(done / total),
        )

    def both(number: int, tell: Callable[[float], None]) -> list[Solved]:
        return [
            solve(number, particles, part(tell, 0, 2)),
            solve(number, particles // 2, part(tell, 1, 2)),
        ]

    while True:
        before = len(found) // 2
        total = goal - before

        def report(done: float, total: int = total) -> None:
            tell(int(100 * done), 100 * total)

        try:
            with one_thread_of_blas(), Team(at_once, report) as team:
                tasks = [
                    team.start(i, lambda tell, i=i: both(i, tell)) for i in range(before, goal)
                ]
                for ended in tasks:
                    found = [*found, *ended()]
                    if not all(_whole(one) for one in found[-2:]):
                        return _mean(found, particles)
                    if saved is not None:
                        saved.save(Kept(particles, np.dtype(float), 0.0, found[0], found))
        except TooFewNeurons:
            raise InvalidInput(
                f"particles: the first passes of {len(run.data.x)} samples need more neurons, got "
                f"{particles}."
            ) from None
        mean = _mean(found, particles)
        error = mean.relative_error
        if np.isfinite(error):
            settings.reached(error)
        if settings.replicates or not np.isfinite(error) or error <= settings.rtol:
            return mean
        most = settings.max_particles // particles
        wanted = min(int(np.ceil(1.1 * goal * (error / settings.rtol) ** 2)), most, 2 * goal)
        if wanted <= goal:
            return mean
        goal = wanted


def _step(problem: AttentionProblem) -> int:
    """Return the number of which the neurons per unit of width are a multiple."""
    weights = problem.network.program.weights
    heads = problem.network.populations.head_sizes.values()
    return 2 * lcm(*(weight.width_ratio.denominator for weight in weights), *heads)


def _whole(one: Solved) -> bool:
    """Whether a solution came to its end."""
    return one.stopped is None and bool(np.isfinite(one.f).all())


def _mean(found: list[Solved], particles: int) -> Mean:
    """Return the mean of replicates, and its error by their spread and by the shift."""
    if not all(map(_whole, found)):
        # One that stopped, or diverged, shows how far the others would have come.
        found = next([one, one] for one in found[-2:] if not _whole(one))
    fine, rough = found[::2], found[1::2]

    def mean(of: Callable[[Solved], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return _mean_and_error(np.stack(list(map(of, fine))), np.stack(list(map(of, rough))))

    f, f_error = mean(lambda one: one.f)
    patterns, patterns_error = mean(lambda one: one.patterns)
    kernels = {}
    for name in fine[0].kernels:
        kernels[name], kernels[f"{name}_error"] = mean(lambda one, name=name: one.kernels[name])
    how = f"{len(fine)} replicates of {particles} neurons per unit of width, and of half as many"
    stopped = fine[0].stopped
    directions = max(one.directions for one in fine)
    return Mean(f, patterns, f_error, patterns_error, kernels, how, stopped, directions)


def _mean_and_error(fine: np.ndarray, rough: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of replicates, and its error by their spread and by the shift of S neurons.

    A shift of order 1/S is the mean difference between S/2 and S neurons. Its square is reduced by
    that of noise.
    """
    count = len(fine)
    if count < 2:
        return fine.mean(0), np.full_like(fine[0], np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        shift = (rough - fine).mean(0)
        noise = (rough - fine).std(0, ddof=1) / count**0.5
        share = ratio(noise, shift)
        left = np.sqrt(max(0.0, 1 - share**2)) if share else float(bool(shift.any()))
        error = fine.std(0, ddof=1) / count**0.5
        return fine.mean(0), np.hypot(error, left * shift)
