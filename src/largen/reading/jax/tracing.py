"""What is read of jaxprs in every reading: which calls are gone into, lines, and precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from largen.traces.walk import OWN_JVP, OWN_VJP, PLAIN_CALLS, called, written_out

CALLS = PLAIN_CALLS | OWN_JVP | OWN_VJP


def inside(equation: Any, given: list[Any]) -> ClosedJaxpr | None:
    """Return the jaxpr that stands for an equation: of all calls, and of loops written out."""
    plain = written_out(equation)
    if plain is not None:
        return plain
    return called(equation) if equation.primitive.name in CALLS else None


def has_own_derivatives(closed: ClosedJaxpr) -> bool:
    """Whether a jaxpr calls functions to which a user gave derivatives, not JAX itself."""
    for equation in closed.jaxpr.eqns:
        inner = inside(equation, [])
        named = equation.primitive.name.startswith("custom_") and not _is_of_jax(inner)
        if named or (inner is not None and has_own_derivatives(inner)):
            return True
    return False


def _is_of_jax(inner: Any) -> bool:
    """Whether a jaxpr is that of a function of JAX, by the place where it says that it is from."""
    said = getattr(getattr(inner.jaxpr, "debug_info", None), "func_src_info", "")
    return f" at {Path(jax.__file__).parent}" in str(said)


@contextmanager
def computed() -> Iterator[None]:
    """Compute at once and in double precision, inside a ``jit`` of the caller as well."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        yield


def line_of(equations: list[Any], file: str) -> str:
    """Return the line of a file that the first of equations is from that has one, or nothing."""
    lines = (line for equation in equations for line in _lines(equation, file))
    return next((f"line {line} of {Path(file).name}" for line in lines), "")


def _lines(equation: Any, file: str) -> Iterator[int]:
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    for frame in getattr(traceback, "frames", ()):
        if frame.file_name == file:
            yield frame.line_num
