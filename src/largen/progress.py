"""Progress of long calls, as a bar in terminals and notebooks, as lines, or by a callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from typing import Any

from largen.callables import takes
from largen.compilation import mentioned
from largen.errors import InvalidInput
from largen.text import duration, shown

Report = Callable[[int, int], object]
Cheaper = Callable[[float], str]
PATIENCE = 2.0  # seconds before a bar is drawn
IN_NOTEBOOKS, IN_CELLS = "ipykernel", "ipywidgets"  # what runs cells, and what draws bars in them
SILENCE = 30.0  # seconds between lines where there is no bar
LONG = 30.0  # seconds; of longer calls the duration is said beforehand
FEWEST = 3  # number of reports needed to announce the duration of a call
SETTLED = 2.0  # seconds between the first and the last report from which the rest is estimated
STRETCHES = 8  # stretches of work whose rates are compared


def check_progress(progress: Any) -> None:
    """Check that progress is True, False, None or a function of (done, total)."""
    if progress is None or isinstance(progress, bool):
        return
    if not callable(progress):
        raise InvalidInput(
            "progress: wanted True, False, None or a function of (done, total), got "
            f"{shown(progress)}."
        )
    takes("progress", progress, ("done", "total"))


class Forecast:
    """Estimated duration of a call, from the time that its steps have taken so far.

    The time before the first report is that of compilation. Further steps take the median over
    stretches of the second half of the steps so far: it follows steps that become slower, and
    ignores a stretch that waits for another compilation. Several steps make up a stretch, since
    those of threads are reported in pairs. If the call needs more work than announced, the estimate
    is made again.
    ``cheaper``: called with the estimated seconds; returns a suggestion for a faster call, or "".
    """

    def __init__(self, cheaper: Cheaper | None = None):
        self._cheaper, self._begin = cheaper, time.monotonic()
        self._total, self._marks, self._said = 0, [], False

    def words(self, done: int, total: int) -> str | None:
        """Return the announcement of a long call, once; otherwise None."""
        now, more = time.monotonic(), 0 < self._total < total
        if more:
            self._said, self._begin = False, now
        self._total = total
        if self._marks and done < self._marks[-1][1]:  # another round of the same work
            self._said, self._begin, self._marks = False, now, []
        if done > (self._marks[-1][1] if self._marks else 0):
            self._marks.append((now, done))
        if self._said or len(self._marks) < FEWEST or done >= total:
            return None
        left = self.left()
        if left is None or left < LONG / 2 or now - self._begin + left < LONG:
            return None
        self._said = True
        hint = self._cheaper(left) if self._cheaper else ""
        said = f"about {duration(now - self._begin + left)}"
        return f"{said}; {hint}" if hint else said

    def left(self) -> float | None:
        """Return the seconds that remain; None as long as reports do not tell."""
        if len(self._marks) < 2 or self._marks[-1][0] - self._marks[0][0] < SETTLED:
            return None
        recent = self._marks[max(len(self._marks) // 2 - 1, 0) :]
        steps = len(recent) - 1
        ends = recent[:: -min(steps, max(2, -(-steps // STRETCHES)))]  # from the last back
        pairs = pairwise(ends)
        rates = [(last - first) / (after - before) for (last, after), (first, before) in pairs]
        return (self._total - self._marks[-1][1]) * median(rates)


@contextmanager
def reporter(progress: Any, what: str, cheaper: Cheaper | None = None) -> Iterator[Report]:
    """Yield a function to be called with (done, total).

    ``progress`` switches the bar; by default it is drawn in terminals, and notebooks with
    ipywidgets, after two seconds, and elsewhere is a line every half minute; a function is called
    instead. A call of more than half a minute is announced after its first steps, with ``cheaper``
    as in :class:`Forecast`.
    """
    check_progress(progress)
    if callable(progress):
        yield progress
        return
    if progress is False:
        yield lambda done, total: None
        return
    notebook = IN_NOTEBOOKS in sys.modules
    seen = find_spec(IN_CELLS) is not None if notebook else sys.stderr.isatty()
    if not seen and (notebook or progress is None):
        with mentioned(lambda words: _print(what, words)):
            yield lines(what, cheaper)
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    bar, begin = Progress(console=Console(stderr=True), transient=True), time.monotonic()
    task: list[TaskID] = []
    forecast = Forecast(cheaper)

    def report(done: int, total: int) -> None:
        if not task and done < total and time.monotonic() - begin > PATIENCE:
            bar.start()
            task.append(bar.add_task(what, total=total))
        if task:
            bar.update(task[0], completed=done, total=total)
            announcement = forecast.words(done, total)
            if announcement is not None:
                said(announcement)

    def said(words: str) -> None:
        bar.console.print(f"{what}: {words}", highlight=False, markup=False)

    with mentioned(said):
        try:
            yield report
        finally:
            bar.stop()


def lines(what: str, cheaper: Cheaper | None = None) -> Report:
    """Return a function that prints the progress of a call, at most every half minute."""
    begin = last = time.monotonic()
    forecast = Forecast(cheaper)

    def report(done: int, total: int) -> None:
        nonlocal last
        announcement = forecast.words(done, total)
        if announcement is not None:
            _print(what, announcement)
        now = time.monotonic()
        if now - last < SILENCE or done >= total:
            return
        last, left = now, forecast.left()
        rest = "" if left is None else f", about {duration(left)} left"
        _print(what, f"{done / total:.0%} after {duration(now - begin)}{rest}")

    return report


def _print(what: str, words: str) -> None:
    print(f"{what}: {words}", file=sys.stderr, flush=True)
