"""Progress of an ensemble: a bar for people, a callback for programs."""

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
PATIENCE = 2.0


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
        True or False for a bar or none; by default a bar in a terminal, once two seconds have
        passed. A function is called instead.
    what
        The words before the bar.

    Raises
    ------
    InvalidInput
        If ``progress`` is none of these.
    """
    check_progress(progress)
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda done, total: None
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
