"""Ctrl-C, answered soon and at a moment at which nothing is lost.

A compiled program cannot be stopped: Python hears of an interrupt when the program has ended, and
a process that ends while one is running may crash. And an interrupt that reaches Python within a
callback of JAX's is swallowed. So long computations are made of segments of about half a second.
Within :func:`interruptible` an interrupt is only noted, and :func:`check` raises it between two
segments, when nothing is running.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jax import monitoring

SEGMENT = 0.5  # seconds
GROWTH = 10  # times, of one segment over the one before

Handler = Callable[[int, Any], Any]


class _Watch:
    """The handler that notes interrupts while it is installed, and the one that it stands for."""

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._noted, self._at_once = False, False

    @property
    def installed(self) -> bool:
        return self._handler is not None

    def install(self, handler: Handler, at_once: bool) -> None:
        self._handler, self._noted, self._at_once = handler, False, at_once
        signal.signal(signal.SIGINT, self._note)
        # JAX tells when it has traced or compiled something, which may take seconds.
        monitoring.register_event_duration_secs_listener(self._listen)

    def remove(self) -> None:
        """Restore the handler that was there before, and hand it what nobody has asked for."""
        handler = self._handler
        assert handler is not None
        signal.signal(signal.SIGINT, handler)
        monitoring.unregister_event_duration_listener(self._listen)
        noted, self._handler, self._noted = self._noted, None, False
        if noted:
            handler(signal.SIGINT, None)

    def forget(self) -> None:
        """Take an interrupt for answered."""
        self._noted = False

    def raise_noted(self) -> None:
        if self._noted and self._handler is not None:
            self._noted = False
            self._handler(signal.SIGINT, None)

    def _note(self, number: int, frame: Any) -> None:
        again, self._noted = self._noted, True
        # The second time, whoever asks cannot wait.
        if (again or self._at_once) and self._handler is not None:
            self._handler(number, frame)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        check()


_watch = _Watch()


def in_main_thread() -> bool:
    """Whether this is the thread that Python's signal handlers run in."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible(at_once: bool = False) -> Iterator[None]:
    """Note interrupts instead of raising them at once; :func:`check` raises them.

    What handled them before does so then: it is Python's own handler, which raises
    KeyboardInterrupt, or one of the user's. A second interrupt is handled at once. Other threads
    than the main one, and processes that ignore interrupts, are left alone; within another such
    context, the outer one goes on.

    Parameters
    ----------
    at_once
        For computations that may stop anywhere: interrupts are handled at once, and
        :func:`check` raises them if they were swallowed, as within a callback of PyTorch's.

    Examples
    --------
    >>> import os, signal
    >>> done = []
    >>> try:
    ...     with interruptible():
    ...         for begin, end in Pace(first=1).segments(0, 1000):
    ...             done.append(end)
    ...             os.kill(os.getpid(), signal.SIGINT)
    ... except KeyboardInterrupt:
    ...     print("stopped after step", done[-1])
    stopped after step 1
    """
    handler = signal.getsignal(signal.SIGINT) if in_main_thread() else None
    if _watch.installed or not callable(handler):
        yield
        return
    _watch.install(handler, at_once)
    try:
        yield
    except KeyboardInterrupt:
        _watch.forget()
        raise
    finally:
        _watch.remove()


def check() -> None:
    """Raise an interrupt that has been noted; in other threads than the main one do nothing."""
    if in_main_thread():
        _watch.raise_noted()


@contextmanager
def go_on_with(words: str) -> Iterator[None]:
    """Tell who interrupts how to go on: the words are printed below the KeyboardInterrupt."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.add_note(words)
        raise


class Pace:
    """How many steps of a computation make a segment of about half a second.

    Parameters
    ----------
    first
        Of the first segment, whose speed is not known yet.
    """

    def __init__(self, first: int = 1):
        self._length = max(int(first), 1)

    def segments(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield where segments begin and end, for steps that are waited for before the next one.

        Raises
        ------
        KeyboardInterrupt
            Between two segments, if there was an interrupt within :func:`interruptible`.
        """
        while start < stop:
            end = min(start + self._length, stop)
            begin = time.monotonic()
            yield start, end
            check()
            self._learn(end - start, time.monotonic() - begin)
            start = end

    def _learn(self, steps: int, seconds: float) -> None:
        """Adapt the length to how long some steps took, which may include compilation."""
        possible = int(steps * SEGMENT / max(seconds, 1e-6))
        if seconds > SEGMENT:
            self._length = max(possible, 1)
        else:
            self._length = max(self._length, min(possible, GROWTH * steps))
