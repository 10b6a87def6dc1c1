"""The loop over independent replicates: the first is refined, the others added as they are needed.

What replicates have in common, such as the tolerance below which directions are omitted, is
determined on the first one. Others start with it at the same time, with what is likely to suffice,
and again if it does not. Then replicates are added until the interval of the mean is that of the
target error. Each one is written to a file as it finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from largen.interrupts import resume_hint
from largen.progress import Report, reporter
from largen.theories.mean_field.engine.checkpoint import Checkpoint, Found
from largen.theories.mean_field.engine.parallel import Team, Tell
from largen.theories.mean_field.engine.statistics import GROWTH, replicates_for, widening

Common = TypeVar("Common")  # what replicates have in common: a hashable value
Shown = TypeVar("Shown", covariant=True)  # what the first replicate has shown beside that
Result = TypeVar("Result")

FORESEEN = 4  # rounds from which on, before the error decides, the number of all is foreseen


@runtime_checkable
class Plan(Protocol[Common, Shown, Result]):
    """What a theory says of its replicates. Threads call the first two methods concurrently."""

    def begin(self, tell: Tell) -> tuple[Common, Shown, Result]:
        """Return what replicates have in common, what was seen of it, and the first replicate."""
        ...

    def replicate(self, common: Common, number: int, tell: Tell) -> Result:
        """Return a replicate; they are counted from 0."""
        ...

    def ended(self, result: Result) -> bool:
        """Whether a replicate came to its end, with finite outputs."""
        ...

    def error(self, found: Any) -> float:
        """Return the relative standard error of the mean of all that was appended."""
        ...


@dataclass(frozen=True)
class Goal:
    """How many replicates are wanted."""

    rtol: float  # the relative error to which the mean is wanted
    rounds: int | None  # the number of rounds of replicates; None for as many as rtol requires
    fewest: int  # the number of rounds from which the error is first estimated
    most: int  # the largest number of rounds
    in_round: int = 1  # the number of replicates in a round
    # Called with the error that is reached after each estimate.
    reached: Callable[[float], object] = lambda error: None

    def wanted(self, rounds: int, error: float) -> int:
        """Return the number of rounds that is wanted in all, given the error of some."""
        return self.rounds or replicates_for(self.rtol, rounds, error, self.most)


@contextmanager
def watched(
    progress: Any, what: str, checkpoint: Any
) -> Iterator[tuple[Report, Callable[[float], None]]]:
    """Yield functions to be told of progress, (done, total), and of the error that is reached.

    ``progress``, ``checkpoint``: the theory's options; an interrupt says how the call resumes.
    """
    errors: list[float] = []

    def cheaper(seconds: float) -> str:
        return f"rtol={errors[-1]:.1e} is reached already" if errors else ""

    goes_on = "Nothing was saved; with checkpoint=… the same call would resume here."
    if checkpoint is not None:
        goes_on = f"The state is in {checkpoint}: the same call resumes from it."
    with reporter(progress, what, cheaper) as report, resume_hint(goes_on):
        yield report, errors.append


class Seeds:
    """Seeds of replicates by their number, whichever thread asks first."""

    def __init__(self, rng: np.random.Generator):
        self._rng, self._drawn, self._lock = rng, [], Lock()

    def __getitem__(self, number: int) -> int:
        with self._lock:
            while len(self._drawn) <= number:
                self._drawn.append(int(self._rng.integers(2**31)))
            return self._drawn[number]


class Replicates(Generic[Common, Shown, Result]):
    """Replicates of a plan.

    ``supposed``: what replicates are likely to have in common; None if they have to wait for it.
    ``at_once``: the number of replicates that are computed at the same time. ``report``: called
    with the completed and the total percentages. ``saved``: where finished replicates are written
    to. ``results``: what replicates are appended to, a list or sums over them.
    """

    def __init__(
        self,
        plan: Plan[Common, Shown, Result],
        supposed: Common | None,
        goal: Goal,
        at_once: int,
        report: Report,
        saved: Checkpoint | None = None,
        results: Any = None,
    ):
        self._plan, self._supposed, self._goal = plan, supposed, goal
        self._at_once, self._report, self._saved = at_once, report, saved
        # The number of replicates that are wanted, and that to which it is likely to grow.
        self._count = self._foreseen = (goal.rounds or goal.fewest) * goal.in_round
        self._loaded = self._said = 0
        self.results: Any = [] if results is None else results

    def run(self, kept: Found | None = None) -> Found:
        """Return as many replicates as are wanted, or those up to the first that does not end.

        ``kept``: replicates of an earlier call, if there are any.
        """
        with Team(self._at_once, self._tell) as team:
            if kept is None:
                common, shown, waiting = self._begin(team)
            else:
                (common, shown, self.results), waiting = kept, []
                self._loaded = len(self.results)
                self._count = self._foreseen = self._recounted()
            while True:
                new = range(len(self.results) + len(waiting), self._count)
                for result in waiting + [self._start(team, common, i) for i in new]:
                    last = result()
                    self.results.append(last)
                    found = Found(common, shown, self.results)
                    if not self._plan.ended(last):
                        return found
                    if self._saved is not None:
                        self._saved.save(found)
                    self._foresee()
                waiting, there = [], len(self.results)
                self._foreseen = max(self._wanted(self.results), there)
                self._count = min(self._foreseen, GROWTH * there)
                if self._count <= there:
                    self._report(100 * self._count, 100 * self._count)
                    return Found(common, shown, self.results)

    def _begin(self, team: Team) -> tuple[Common, Shown, list[Callable[[], Result]]]:
        """Begin with the first replicate, and return also those that have begun meanwhile."""
        first = team.start(0, self._plan.begin)
        waiting = []
        if self._supposed is not None:
            others = range(1, self._count)
            waiting = [self._start(team, self._supposed, i) for i in others]
        common, shown, result = first()
        if waiting and common != self._supposed:
            team.dismiss()
            waiting = []
        return common, shown, [lambda: result, *waiting]

    def _start(self, team: Team, common: Common, number: int) -> Callable[[], Result]:
        """Begin a replicate, and return the function that waits for it."""
        return team.start(number, lambda tell: self._plan.replicate(common, number, tell))

    def _recounted(self) -> int:
        """Return the number of replicates that the call that began them would have come to."""
        count = self._count
        while count < self._loaded and (wanted := self._wanted(self.results[:count])) > count:
            count = min(wanted, GROWTH * count)
        return count

    def _wanted(self, found: Any) -> int:
        """Return the number of replicates that the target error requires, as far as allowed."""
        error, each = self._plan.error(found), self._goal.in_round
        if np.isfinite(error):
            self._goal.reached(float(widening(len(found) // each)) * error)
        return self._goal.wanted(len(found) // each, error) * each

    def _foresee(self) -> None:
        """Foresee the number of all replicates, at 4, 8, … rounds."""
        done = len(self.results)
        rounds, rest = divmod(done, self._goal.in_round)
        due = rounds >= FORESEEN and not (rest or rounds & (rounds - 1)) and done < self._count
        if due and self._goal.rounds is None:
            self._foreseen = max(self._count, self._wanted(self.results))

    def _tell(self, done: float) -> None:
        """Report progress, which does not fall where replicates start again.

        Before replicates are added to those of a file nothing is: it would count as their time.
        """
        self._said = max(self._said, int(100 * (done + self._loaded)))
        if self._said > 100 * self._loaded or not self._loaded:
            self._report(self._said, 100 * max(self._count, self._foreseen))
