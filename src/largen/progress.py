"""Progress of long calls, as a bar in terminals and notebooks, as lines, or by a callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from largen.callables import takes
from largen.errors import InvalidInput
from largen.text import shown

Report = Callable[[int, int], object]
PATIENCE = 2.0  # seconds before a bar is drawn
IN_NOTEBOOKS = "ipykernel"  # the package that runs the cells of notebooks
SILENCE = 30.0  # seconds between lines where there is no bar


def check_progress(progress: Any) -> None:
    """Check that progress is True, False, None or a function of (done, total).

    Raises
    ------
    InvalidInput
        If it is none of these.
    """
    if progress is None or isinstance(progress, bool):
        return
    if not callable(progress):
        raise InvalidInput(
            "progress: wanted True, False, None or a function of (done, total), got "
            f"{shown(progress)}."
        )
    takes("progress", progress, ("done", "total"))


@contextmanager
def reporter(progress: Any, what: str) -> Iterator[Report]:
    """Yield a function to be called with (done, total).

    Parameters
    ----------
    progress
        True or False switches the bar on or off. The default is a bar in terminals and notebooks,
        drawn after two seconds, and elsewhere, as in the log of a batch job, a line every half
        minute. A function of (done, total) is called instead of drawing a bar.
    what
        The text in front of the bar.

    Raises
    ------
    InvalidInput
        If ``progress`` is none of these.
    """
    check_progress(progress)
    if callable(progress):
        yield progress
        return
    if progress is False:
        yield lambda done, total: None
        return
    if progress is None and not (sys.stderr.isatty() or IN_NOTEBOOKS in sys.modules):
        yield lines(what)
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    bar, begin = Progress(console=Console(stderr=True), transient=True), time.monotonic()
    task: list[TaskID] = []

    def report(done: int, total: int) -> None:
        if not task and done < total and time.monotonic() - begin > PATIENCE:
            bar.start()
            task.append(bar.add_task(what, total=total))
        if task:
            bar.update(task[0], completed=done)

    try:
        yield report
    finally:
        bar.stop()


def lines(what: str) -> Report:
    """Return a function that prints the progress of a call, at most every half minute.

    Parameters
    ----------
    what
        The text in front of the numbers.
    """
    begin = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SILENCE or done >= total:
            return
        last, share = now, done / total
        left = f", about {(now - begin) * (1 / share - 1):.0f} s left" if share else ""
        print(f"{what}: {share:.0%} after {now - begin:.0f} s{left}", file=sys.stderr, flush=True)

    return report
