"""Handling of keyboard interrupts between the segments of long computations.

A compiled program cannot be stopped: Python handles an interrupt only after the program has ended,
and a process that exits while one is running may crash. An interrupt that arrives within a callback
of JAX is swallowed. Long computations are therefore divided into segments of about half a second.
Within :func:`interruptible` an interrupt is only recorded, and :func:`check` raises it between two
segments, when no compiled program is running.
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
GROWTH = 10  # largest ratio of the lengths of successive segments

Handler = Callable[[int, Any], Any]


class _Watch:
    """A signal handler that replaces the previous one and records interrupts."""

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._noted, self._at_once = False, False

    @property
    def installed(self) -> bool:
        return self._handler is not None

    def install(self, handler: Handler, at_once: bool) -> None:
        self._handler, self._noted, self._at_once = handler, False, at_once
        signal.signal(signal.SIGINT, self._note)
        # JAX reports the end of each trace or compilation, which may take seconds.
        monitoring.register_event_duration_secs_listener(self._listen)

    def remove(self) -> None:
        """Restore the previous handler, and pass it an interrupt that has not been raised."""
        handler = self._handler
        assert handler is not None
        signal.signal(signal.SIGINT, handler)
        monitoring.unregister_event_duration_listener(self._listen)
        noted, self._handler, self._noted = self._noted, None, False
        if noted:
            handler(signal.SIGINT, None)

    def forget(self) -> None:
        """Discard a recorded interrupt."""
        self._noted = False

    def raise_noted(self) -> None:
        if self._noted and self._handler is not None:
            self._noted = False
            self._handler(signal.SIGINT, None)

    def _note(self, number: int, frame: Any) -> None:
        again, self._noted = self._noted, True
        # A second interrupt is handled at once.
        if (again or self._at_once) and self._handler is not None:
            self._handler(number, frame)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        check()


_watch = _Watch()


def in_main_thread() -> bool:
    """Whether this is the main thread, in which Python runs signal handlers."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible(at_once: bool = False) -> Iterator[None]:
    """Record interrupts instead of raising them at once; :func:`check` raises them.

    :func:`check`, or the end of the context, calls the previous handler; a second interrupt is
    handled at once. No effect in other threads than the main one, in processes that ignore
    interrupts, and within another such context. ``at_once``: interrupts are handled at once, and
    :func:`check` raises those that were swallowed, as within a callback of PyTorch.
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
    """Raise a recorded interrupt; in threads other than the main one do nothing."""
    if in_main_thread():
        _watch.raise_noted()


@contextmanager
def resume_hint(words: str) -> Iterator[None]:
    """Add advice on how to resume, which is printed below the KeyboardInterrupt."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.add_note(words)
        raise


class Pace:
    """The steps of a segment of about half a second, ``first`` before their speed is known."""

    def __init__(self, first: int = 1):
        self._length = max(int(first), 1)

    def segments(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of each segment; the caller must wait for its steps to finish."""
        while start < stop:
            end = min(start + self._length, stop)
            begin = time.monotonic()
            yield start, end
            check()
            self._learn(end - start, time.monotonic() - begin)
            start = end

    def _learn(self, steps: int, seconds: float) -> None:
        """Adapt the length to the time of some steps, which may include compilation."""
        possible = int(steps * SEGMENT / max(seconds, 1e-6))
        if seconds > SEGMENT:
            self._length = max(possible, 1)
        else:
            self._length = max(self._length, min(possible, GROWTH * steps))
