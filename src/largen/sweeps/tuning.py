"""A search for constants and a rate at the base, by random draws of which few are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, isfinite
from typing import Any

import numpy as np

from largen.callables import takes
from largen.errors import InvalidInput, instance_of
from largen.identity import identity as identity_of
from largen.interrupts import check, interruptible, resume_hint
from largen.jobs import number_of_jobs, results_of
from largen.progress import reporter
from largen.scalars import integer, real
from largen.sweeps.ranges import Ranges, constants_named
from largen.sweeps.store import Store
from largen.sweeps.tuned import Tuned
from largen.text import shown
from largen.transfer.constants import Constants

Train = Callable[[Constants, float, int], float]
TENTH, THIRD = 10, 3  # shares of draws with a rate alone, and of those near the best others
CENTRES = 4  # draws around which the last ones are made
Run = tuple[int, int, float]  # a draw, a seed, and the factor of the rate
INSTEAD = (
    "To keep trainings in a folder, pass identity='…', a name that you change whenever training is "
    "another one"
)


def tune(
    train: Train,
    ranges: Ranges,
    *,
    draws: int = 80,
    seeds: int = 3,
    keep: float = 0.25,
    seed: int = 0,
    checkpoint: Any = None,
    jobs: int = 1,
    identity: str | None = None,
    progress: Any = None,
) -> Tuned:
    """Search the constants of a base model together with its rate.

    A plan keeps the faults of its base, which a rate alone cannot correct. Random draws
    of rate and factors are trained with the first seed, and then draws near the best four of them,
    a third of all. The best ``keep`` are trained with the second seed as well, and so on:
    successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943) in seeds. Not in steps, since
    a rate that is best for few steps need not be so for many: let training be a quarter as long as
    the target's or longer.

    Of the draws that were trained with all seeds, the best one is chosen that at twice its rate is
    still better than the best rate alone, or than the median of the draws that were kept after the
    first seed. One that twice the rate throws back behind both is at its edge of stability, at the
    target as well.

    Parameters
    ----------
    train
        ``train(constants, lr, seed)`` → the loss after training the base, of held-out samples if
        possible: a :class:`BaseTraining`, or a function of the user's own, in any framework, that
        passes the constants on to ``scale``. Losses that are not finite count as diverged.
    ranges
        The ranges of the rate and of the factors, such as :meth:`Ranges.of`.
    draws
        The number of draws. A tenth of them, at least one, have factors of 1 and evenly spaced
        rates: what a rate alone reaches.
    seeds
        The number of seeds of the last draws.
    keep
        The share of draws that is kept after each seed.
    seed
        The seed of the draws.
    checkpoint, jobs, identity, progress
        As in :func:`largen.sweeps.sweep`; what is stored are single trainings.

    Returns
    -------
    Tuned
        Its ``lr`` and its ``constants``, for ``scale(…, constants=…)``.

    Raises
    ------
    InvalidInput
        If every draw diverges.

    Examples
    --------
    >>> from math import log2
    >>> def train(constants, lr, seed):  # best at a factor of 4 and a rate of 2⁻⁶
    ...     return 2 + (log2(constants.output) - 2)**2 + (log2(lr) + 6)**2 + 0.001 * seed
    >>> result = tune(train, Ranges(rate=(2**-10, 2**-3)), draws=200)
    >>> bool(2 < result.constants.output < 8), bool(-7 < log2(result.lr) < -5)
    (True, True)
    """
    takes("train", train, ("constants", "lr", "seed"))
    instance_of("ranges", ranges, Ranges, "a largen.sweeps.Ranges")
    integer("draws", draws, at_least=2)
    integer("seeds", seeds, at_least=1)
    if not real("keep", keep, above=0) < 1:
        raise InvalidInput(f"keep: wanted a share between 0 and 1, got {keep}.")
    if identity is not None:
        instance_of("identity", identity, str, "a name")
    jobs = number_of_jobs(jobs)
    plain, near = max(1, draws // TENTH), draws // THIRD
    factors = ranges.draws(draws - plain - near, plain, integer("seed", seed, at_least=0))
    search = _Search(train, list(ranges.by_name), factors, Store.at(checkpoint), jobs, identity)
    goes_on = (
        "Nothing was saved; with checkpoint=… the same call would resume here."
        if checkpoint is None
        else f"Finished trainings are in {checkpoint}: the same call resumes from them."
    )
    counts = [draws]
    for _ in range(seeds):
        counts.append(ceil(keep * counts[-1]))
    with resume_hint(goes_on), reporter(progress, "tune") as report:
        return _found(search, ranges, counts, (plain, near, seed), report)


class _Search:
    """The draws of a search, and the trainings that were made."""

    def __init__(
        self,
        train: Train,
        names: Sequence[str],
        factors: np.ndarray,  # (draw, name)
        store: Store,
        jobs: int,
        identity: str | None,
    ):
        self.train, self.names, self.factors = train, names, factors
        self.store, self.jobs = store, jobs
        self.told = ""
        if store.folder is not None:
            self.told = identity or identity_of("train", train, INSTEAD)

    def losses(self, runs: Sequence[Run]) -> Iterator[tuple[Run, float]]:
        """Yield the loss of every run, stored ones first; the others are stored as they end."""
        missing = []
        for run in runs:
            kept = self.store.load(self._settings(run))
            if kept is None:
                missing.append(run)
            else:
                yield run, float(kept["loss"])
        for run, loss in self._trained(missing):
            self.store.save(self._settings(run), {"loss": np.array(loss)})
            yield run, loss

    def _trained(self, runs: Sequence[Run]) -> Iterator[tuple[Run, float]]:
        calls = [(run, self.train, *self._arguments(run)) for run in runs]
        if self.jobs != 1:
            yield from results_of([(_loss, call) for call in calls], self.jobs)
            return
        with interruptible(at_once=True):
            for call in calls:
                yield _loss(*call)
                check()

    def _arguments(self, run: Run) -> tuple[Constants, float, int]:
        draw, seed, times = run
        own = self.factors[draw]
        return constants_named(self.names, own), float(own[0] * times), seed

    def _settings(self, run: Run) -> dict[str, Any]:
        if self.store.folder is None:
            return {}
        constants, lr, seed = self._arguments(run)
        return {"tuned": 1, "train": self.told, "constants": str(constants), "lr": lr, "seed": seed}


def _loss(run: Run, train: Train, constants: Constants, lr: float, seed: int) -> tuple[Run, float]:
    """Train once; a loss that is not finite is infinite."""
    value = train(constants, lr, seed)
    try:
        loss = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"train: wanted a loss, a number, got {shown(value)}.") from None
    return run, loss if isfinite(loss) else float("inf")


def _found(
    search: _Search,
    ranges: Ranges,
    counts: Sequence[int],  # draws that are trained with each seed, and that are kept in the end
    kinds: tuple[int, int, int],  # the numbers of plain draws and near ones, and the draws' seed
    report: Callable[[int, int], object],
) -> Tuned:
    """Train the draws seed by seed, then the best ones at twice their rate until one is sound."""
    import xarray

    shape = counts[0], len(counts) - 1
    loss = np.full(shape, np.nan)
    total, done = sum(counts[:-1]) + shape[1], 0
    plain, near, own = kinds

    def train(draws: np.ndarray, seed: int) -> None:
        nonlocal done
        for (draw, _, _), value in search.losses([(int(i), seed, 1.0) for i in draws]):
            loss[draw, seed] = value
            done += 1
            report(done, total)
        if not np.isfinite(loss[draws, seed]).any():
            raise InvalidInput("ranges: every draw diverges; search smaller rates.")

    first = np.arange(shape[0] - near)
    train(first, 0)
    centres = search.factors[np.argsort(loss[first, 0], kind="stable")[:CENTRES]]
    search.factors = np.concatenate([search.factors, ranges.near(centres, near, own)])
    if near:
        train(np.arange(shape[0] - near, shape[0]), 0)
    alive = np.arange(shape[0])
    for seed, count in enumerate(counts[1:-1], 1):
        alive = alive[np.argsort(loss[alive, :seed].mean(1), kind="stable")[:count]]
        train(alive, seed)
    low, high = zip(*ranges.by_name.values(), strict=True)
    data = xarray.Dataset(
        {
            "factor": (("draw", "name"), search.factors),
            "loss": (("draw", "seed"), loss),
            "loss_at_twice": (("draw", "seed"), np.full(shape, np.nan)),
            "low": ("name", list(low)),
            "high": ("name", list(high)),
        },
        {"name": search.names, "draw": np.arange(shape[0]), "seed": np.arange(shape[1])},
        {"plain": plain, "kept": counts[1]},
    )
    found = Tuned(data)
    for draw in found.finalists:
        runs = [(draw, seed, 2.0) for seed in range(shape[1])]
        for (_, seed, _), value in search.losses(runs):
            data["loss_at_twice"].values[draw, seed] = value
        if not found.at_edge:
            break
    report(total, total)
    return found
