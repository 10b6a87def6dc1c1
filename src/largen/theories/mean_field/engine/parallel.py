"""Replicates that are computed at the same time.

The matrix products of a sweep are small. Threads that share a product spend their time on
synchronisation and cache transfers: two cores take as long for one replicate as one core does,
whereas two replicates at the same time take half the time of two in sequence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Any, TypeVar

import jax
from threadpoolctl import threadpool_limits

from largen.interrupts import check

Result = TypeVar("Result")
Tell = Callable[[float], None]  # called with the completed fraction of a task
LOOK_EVERY = 0.1  # seconds between checks for an interrupt while waiting for threads


def ignore_progress(fraction: float) -> None:
    """Do not report progress."""


class Dismissed(Exception):
    """Raised when a task reports its progress after it has been cancelled."""


class Team:
    """Threads that work on tasks in the order in which they are submitted.

    With size 1 a task is executed in the calling thread when its result is requested. Leaving the
    context cancels the running tasks.
    """

    def __init__(self, size: int, report: Callable[[float], object]):
        self._pool = ThreadPoolExecutor(size) if size > 1 else None
        self._report, self._lock = report, Lock()
        self._done: dict[int, float] = {}
        self._leave, self._interrupted = Event(), False
        self._device = jax.config.values["jax_default_device"]  # that of the submitting thread

    def start(self, number: int, task: Callable[[Tell], Result]) -> Callable[[], Result]:
        """Submit a task, and return a function that waits for its result."""
        leave = self._leave

        def tell(fraction: float) -> None:
            if leave.is_set():
                raise KeyboardInterrupt if self._interrupted else Dismissed
            with self._lock:
                self._done[number] = fraction
                self._report(sum(self._done.values()))

        def done() -> Result:
            tell(0.0)
            with jax.default_device(self._device):
                found = task(tell)
            tell(1.0)
            return found

        return done if self._pool is None else partial(_result, self._pool.submit(done))

    def dismiss(self) -> None:
        """Cancel all tasks that are not finished."""
        self._leave.set()
        self._leave = Event()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        # An interrupted task, unlike a cancelled one, saves its state.
        self._interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._leave.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _result(task: Future[Result]) -> Result:
    """Wait for the result of a thread's task, and for interrupts meanwhile."""
    while not wait([task], LOOK_EVERY).done:
        check()
    check()
    return task.result()


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Restrict BLAS, which NumPy and JAX's matrix decompositions use, to a single thread.

    The matrices are small, and idle BLAS threads spin while they wait for the next one.
    """
    import scipy.linalg  # noqa: F401  # only loaded libraries are restricted

    with threadpool_limits(1, "blas"):
        yield


def part(tell: Tell, done: int, total: int) -> Tell:
    """Return the progress function of one of several equal parts of a task."""
    return lambda fraction: tell((done + fraction) / total)
