"""The seconds that XLA compiles for in a long call, and how to wait for them once only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
from jax import monitoring

from largen.text import duration

EVENT = "/jax/core/compile/backend_compile_duration"
LONG = 5.0  # seconds of compilation in a call, from which on it is mentioned
_mentioned = False


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
