"""The seconds that XLA compiles for: how to spend fewer, and how to wait for them once only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from threading import Lock
from typing import Any

import jax
import numpy as np
from jax import monitoring

from largen.text import duration

EVENT = "/jax/core/compile/backend_compile_duration"
LONG = 5.0  # seconds of compilation in a call, from which on it is mentioned
_mentioned = False

# The older generator of code compiles sooner for the CPU, and loops over products of matrices take
# as long. Without optimizations XLA compiles in a third of the time, and loops over numbers take up
# to three times as long.
OLDER = {"xla_cpu_use_fusion_emitters": False}
QUICK = OLDER | {"xla_backend_optimization_level": 0}
SHORT = 2**12  # numbers of an array up to which a call takes less than what it saves, often
OFTEN = 256  # calls of one form, after which what each loses adds up to a compilation


class Sooner:
    """A function that JAX compiles with options of XLA which make that quicker on the CPU.

    ``xla``: these options; ``options``: those of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], xla: dict[str, Any] = OLDER, **options: Any):
        update_wrapper(self, function)
        self._function, self._xla, self._options = function, xla, options
        self._compiled: Callable[..., Any] | None = None
        self._lock = Lock()

    def __call__(self, *values: Any) -> Any:
        """Return the function's value."""
        with self._lock:  # threads share what is compiled
            if self._compiled is None:
                chosen = _accepted(tuple(self._xla.items()))
                self._compiled = jax.jit(self._function, compiler_options=chosen, **self._options)
        return self._compiled(*values)


class Compiled:
    """A function compiled by JAX, with a form that is compiled ``quickly``, for short calls.

    ``options``: those of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], *, static_argnums: Any, **options: Any):
        self._static = np.atleast_1d(static_argnums).tolist()
        self._full = jax.jit(function, static_argnums=static_argnums, **options)
        self._quick = Sooner(function, QUICK, static_argnums=static_argnums, **options)
        self._calls: Counter[tuple[Any, ...]] = Counter()  # by static arguments and shapes

    def __call__(self, *values: Any) -> Any:
        """Return the function's value."""
        return self._full(*values)

    def quickly(self, *values: Any) -> Any:
        """Return the function's value, without optimizations unless it is called often."""
        fixed = tuple(hash(values[i]) for i in self._static)
        arrays = jax.tree.leaves([x for i, x in enumerate(values) if i not in self._static])
        form = fixed, *map(np.shape, arrays)
        self._calls[form] += 1
        return (self._full if self._calls[form] > OFTEN else self._quick)(*values)


@cache
def _accepted(options: tuple[tuple[str, Any], ...]) -> dict[str, Any] | None:
    """Return options of XLA; None for devices and versions that lack them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return dict(options)


@contextmanager
def mentioned(say: Callable[[str], None]) -> Iterator[None]:
    """Mention JAX's cache of compiled programs after a call that compiled for long.

    It is mentioned once in a process, and only if JAX keeps no programs between processes.
    """
    global _mentioned
    seconds = 0.0

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        nonlocal seconds
        seconds += duration_secs if event == EVENT else 0.0

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield
    finally:
        monitoring.unregister_event_duration_listener(listen)
    kept = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if seconds > LONG and not _mentioned and kept is None:
        _mentioned = True
        say(
            f"{duration(seconds)} of it was compilation; after lg.keep_programs() the next process "
            "finds the programs in ~/.cache/largen"
        )
