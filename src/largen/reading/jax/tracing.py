"""Jaxprs as one list of equations, without calls of functions inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

# Equations that do what a jaxpr among their parameters says, and nothing else.
CALLS = frozenset({
    "jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2",
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
})  # fmt: skip
CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # the names of that parameter


class Tracer:
    """The equations of a jaxpr in their order, each on what a reading keeps of its arguments.

    ``step``: a function of an equation and of what is kept of its arguments, which returns what is
    kept of its results, a list; ``constant``: the same of an array.
    """

    def __init__(
        self,
        step: Callable[[Any, list[Any]], list[Any]],
        constant: Callable[[Any], Any] = lambda array: array,
    ):
        self._step, self._constant = step, constant
        self.calls: list[Any] = []  # the calls that the equation is in, from the outermost

    def run(self, closed: ClosedJaxpr, inputs: list[Any]) -> list[Any]:
        """Return what is kept of the results of a jaxpr."""
        constants = [self._constant(each) for each in closed.consts]
        return self._run(closed.jaxpr, constants, inputs)

    def _run(self, jaxpr: Jaxpr, constants: list[Any], inputs: list[Any]) -> list[Any]:
        known = dict(zip(jaxpr.constvars, constants, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(var: Any) -> Any:
            if isinstance(var, Literal):
                return self._constant(np.asarray(var.val, _dtype(var)))
            return known[var]

        for equation in jaxpr.eqns:
            given = [read(var) for var in equation.invars]
            inner = _inner(equation)
            if inner is None:
                made = self._step(equation, given)
            else:
                self.calls.append(equation)
                made = self.run(inner, given)
                self.calls.pop()
            known.update(zip(equation.outvars, made, strict=True))
        return [read(var) for var in jaxpr.outvars]


def _dtype(literal: Any) -> Any:
    return literal.aval.dtype


def _inner(equation: Any) -> ClosedJaxpr | None:
    """Return the jaxpr that an equation calls, if it is a call."""
    if (plain := PLAIN.get(equation.primitive.name)) is not None:
        given = (var.aval for var in equation.invars)
        return jax.make_jaxpr(partial(plain, equation.params))(*given)
    if equation.primitive.name not in CALLS:
        return None
    inner = next(equation.params[name] for name in CALLED if name in equation.params)
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def _unrolled(options: Any, *given: Any) -> list[Any]:
    """Return what a loop of known length makes, with its steps written out."""
    step = jaxpr_as_fun(options["jaxpr"])
    consts, carried = options["num_consts"], options["num_consts"] + options["num_carry"]
    state, rows = given[consts:carried], []
    places = range(options["length"])
    for n in reversed(places) if options["reverse"] else places:
        each = [jax.lax.index_in_dim(x, n, 0, keepdims=False) for x in given[carried:]]
        made = step(*given[:consts], *state, *each)
        state = made[: options["num_carry"]]
        rows.append(made[options["num_carry"] :])
    rows = rows[::-1] if options["reverse"] else rows
    return [*state, *(_stacked({"axis": 0}, *each) for each in zip(*rows, strict=True))]


def _stacked(options: Any, *given: Any) -> Any:
    axis = options["axis"]
    return jax.lax.concatenate([jax.lax.expand_dims(x, [axis]) for x in given], axis)


def _unstacked(options: Any, x: Any) -> list[Any]:
    axis = options["axis"]
    return [jax.lax.index_in_dim(x, n, axis, keepdims=False) for n in range(x.shape[axis])]


def _split(options: Any, x: Any) -> list[Any]:
    ends = np.cumsum(options["sizes"])
    pairs = zip(ends - options["sizes"], ends, strict=True)
    return [jax.lax.slice_in_dim(x, int(a), int(b), axis=options["axis"]) for a, b in pairs]


# What primitives do in terms of others.
PLAIN = {"scan": _unrolled, "stack": _stacked, "unstack": _unstacked, "split": _split}


def has_own_derivatives(closed: ClosedJaxpr) -> bool:
    """Whether a jaxpr calls functions to which a user gave derivatives, not JAX itself."""
    for equation in closed.jaxpr.eqns:
        inner = _inner(equation)
        named = equation.primitive.name.startswith("custom_") and not _is_of_jax(inner)
        if named or (inner is not None and has_own_derivatives(inner)):
            return True
    return False


def _is_of_jax(inner: Any) -> bool:
    """Whether a jaxpr is that of a function of JAX, by the place where it says that it is from."""
    said = getattr(getattr(inner.jaxpr, "debug_info", None), "func_src_info", "")
    return f" at {Path(jax.__file__).parent}" in str(said)


def evaluated(equation: Any, given: list[Any]) -> list[Any]:
    """Return the results of an equation."""
    made = equation.primitive.bind(*given, **equation.params)
    return list(made) if equation.primitive.multiple_results else [made]


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
