"""Replicates that are computed at the same time.

The products of a sweep are small. Threads that share one of them wait for each other more than
they help, and hand what is in their caches to and fro: two cores take as long for a replicate as
one does, and two replicates at once take half the time of one after the other.
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
from largen.theories.mean_field.deep.sweep.listeners import Tell

Result = TypeVar("Result")
LOOK_EVERY = 0.1  # seconds, whether there was an interrupt, while threads are waited for


class Dismissed(Exception):
    """Raised where a task tells how far it is, if nobody wants it any more."""


class Team:
    """Threads that work on tasks in the order in which they are given.

    A single one does them when their results are asked for, in the thread that asks. Leaving the
    context ends what is still going on.

    Parameters
    ----------
    size
        How many threads.
    report
        Called with how many of the tasks are done, in parts of one.
    """

    def __init__(self, size: int, report: Callable[[float], object]):
        self._pool = ThreadPoolExecutor(size) if size > 1 else None
        self._report, self._lock = report, Lock()
        self._done: dict[int, float] = {}
        self._leave, self._interrupted = Event(), False
        self._device = jax.config.values["jax_default_device"]  # of the thread that gives the tasks

    def start(self, number: int, task: Callable[[Tell], Result]) -> Callable[[], Result]:
        """Let a task begin when there is a thread for it; return what waits for its result.

        Parameters
        ----------
        number
            The number of the task, which identifies its progress.
        task
            Is called with a function that it tells what fraction of it is done.
        """
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
        """Forget all tasks that have not been done."""
        self._leave.set()
        self._leave = Event()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        # Who is interrupted, unlike who is dismissed, keeps what he has got.
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
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Let BLAS, by which NumPy works and JAX decomposes, have a single thread.

    The matrices are small, and threads that wait for the next one spin for as long as it takes.
    """
    import scipy.linalg  # noqa: F401  # only what has been loaded is limited

    with threadpool_limits(1, "blas"):
        yield


def part(tell: Tell, done: int, total: int) -> Tell:
    """Return what tells the progress of one of several equal parts."""
    return lambda fraction: tell((done + fraction) / total)
