"""Independent pieces of work: here one after the other, in processes, or on other machines.

The engines are joblib's: processes of this machine by default, and within
``joblib.parallel_config(backend="ray")`` or ``"dask"`` the workers of that cluster.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from largen.errors import InvalidInput
from largen.scalars import integer


def number_of_jobs(jobs: Any) -> int:
    """Return the number of pieces to work on at once, −1 for one on each core."""
    if integer("jobs", jobs, at_least=-1024, at_most=1024) == 0:
        raise InvalidInput("jobs: wanted at least 1, or -1 for one on each core, got 0.")
    return jobs


class OncePerWorker:
    """A value that each worker unpickles once and keeps.

    Functions of scripts and notebooks travel by their code. If each piece brought its own copy,
    JAX, to which copies are different functions, would compile for each piece again.

    >>> one, other = (pickle.loads(pickle.dumps(sent)) for sent in 2 * [OncePerWorker(lambda x: x)])
    >>> one.value is other.value
    True
    """

    def __init__(self, value: Any):
        from joblib import wrap_non_picklable_objects

        self.content = pickle.dumps(wrap_non_picklable_objects(value, keep_wrapper=False))

    @property
    def value(self) -> Any:
        """The value, the same object each time."""
        return _unpickled(self.content)


@lru_cache(maxsize=8)
def _unpickled(content: bytes) -> Any:
    return pickle.loads(content)


def results_of(work: Iterable[tuple[Callable[..., Any], tuple]], jobs: int) -> Iterator[Any]:
    """Yield what functions return for their arguments, in the order in which they end.

    Pieces are taken from ``work`` and handed out one by one, so that no worker waits for another;
    neither arguments nor results are held.

    >>> sorted(results_of([(pow, (2, 3)), (pow, (3, 2))], jobs=1))
    [8, 9]
    """
    from joblib import Parallel, delayed, effective_n_jobs

    calls = (delayed(function)(*arguments) for function, arguments in work)
    first = list(islice(calls, 1))
    if not first:
        return  # no workers are needed
    calls = chain(first, calls)
    one_by_one: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1}
    try:
        workers = Parallel(n_jobs=jobs, **one_by_one)
    except ValueError:  # a backend that returns when all is done, as Ray's: round by round
        many = effective_n_jobs(jobs)
        with Parallel(n_jobs=jobs) as workers:  # the same for all rounds: starting them takes long
            while together := list(islice(calls, many)):
                results: Any = workers(together)
                yield from results
    else:
        finished: Any = workers(calls)
        yield from finished
