"""The seconds that XLA compiles for: how to spend fewer, and how to wait for them once only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np
from jax import monitoring

from largen.text import duration

EVENT = "/jax/core/compile/backend_compile_duration"
LONG = 5.0  # seconds of compilation in a call, from which on it is mentioned
_mentioned = False

# Without optimizations and by the older generator of code XLA compiles in a third of the time for
# the CPU; loops over numbers then take up to three times as long.
SHORT = 2**12  # numbers of an array up to which a call takes less than what it saves, often
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


OFTEN = 256  # calls of one form, after which what each loses adds up to a compilation


class Compiled:
    """A function compiled by JAX, with a form that is compiled ``quickly``, for short calls.

    ``options``: those of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any):
        self._function, self._options = function, options
        self._full = jax.jit(function, **options)
        self._calls: Counter[tuple[Any, ...]] = Counter()  # by static arguments and shapes

    def __call__(self, *values: Any) -> Any:
        """Return the function's value."""
        return self._full(*values)

    def quickly(self, *values: Any) -> Any:
        """Return the function's value, without optimizations unless it is called often."""
        form = self._form(values)
        self._calls[form] += 1
        return (self._full if self._calls[form] > OFTEN else self._quick)(*values)

    @cached_property
    def _quick(self) -> Callable[..., Any]:
        return jax.jit(self._function, compiler_options=_quick_options(), **self._options)

    def _form(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        static = np.atleast_1d(self._options["static_argnums"])
        fixed = tuple(hash(values[i]) for i in static)
        arrays = jax.tree.leaves([x for i, x in enumerate(values) if i not in static])
        return fixed, *map(np.shape, arrays)


@cache
def _quick_options() -> dict[str, Any] | None:
    """Return the options of quick compilation; None for devices and versions that lack them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=QUICK).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return QUICK


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
