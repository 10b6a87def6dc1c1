"""Functions of the user's own: what they take, what they return, and which globals they read.

A function that JAX compiles is tried on shapes alone, before anything is computed, so that what is
wrong with it is said where it was given.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.text import shown

_FOR_VALUES = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)


def takes(name: str, function: Any, arguments: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function that takes these arguments by position.

    Parameters
    ----------
    name, function
        The argument that should be such a function.
    arguments
        What it gets, in words, such as ``("f", "y")``.

    Raises
    ------
    InvalidInput
        If it is not callable, is a class, or takes another number of arguments.
    """
    wanted = f"{name}: wanted a function of ({', '.join(arguments)}), got {shown(function)}"
    if not callable(function):
        raise InvalidInput(f"{wanted}.")
    if isinstance(function, type):
        raise InvalidInput(f"{wanted}, a class. Pass one of its instances.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have none
        return function
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise InvalidInput(f"{wanted}: {error}.") from None
    return function


def outputs_on_shapes(name: str, function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the shapes and dtypes that a function makes of arrays, without computing anything.

    Parameters
    ----------
    name, function
        The argument that is a function for JAX to compile.
    inputs
        Trees of arrays, or of ``jax.ShapeDtypeStruct``.

    Raises
    ------
    InvalidInput
        If it fails, with its own exception as the cause.
    """
    try:
        return jax.eval_shape(lambda *arrays: function(*arrays), *inputs)
    except Exception as error:
        if isinstance(error, _FOR_VALUES) or "truth value of an array" in _start(error):
            raise InvalidInput(
                f"{name}: {_called(function)} asks for the value of an array, by a branch, float() "
                "or NumPy, which is not known when JAX compiles it. Write it with jax.numpy, and "
                "branches as jnp.where(condition, a, b)."
            ) from error
        shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(inputs)[:6])
        raise InvalidInput(
            f"{name}: {_called(function)} fails on JAX arrays of shape {shapes}: "
            f"{type(error).__name__}: {_start(error)}."
        ) from error


def _called(function: Any) -> str:
    return getattr(function, "__name__", shown(function))


def _start(error: Exception) -> str:
    try:
        return str(error).partition("\n")[0][:200].rstrip(".")
    except Exception:  # an exception of the user's own that cannot be printed
        return "no message"


def globals_read(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Return the globals that a function reads; of modules, what is taken out of them."""
    found: dict[str, Any] = {}
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        held: Any = None
        path = ""
        for step in dis.get_instructions(code):
            if step.opname == "EXTENDED_ARG":
                continue
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                path = step.argval
                held = function.__globals__.get(path, vars(builtins).get(path))
            elif step.opname == "IMPORT_NAME":
                path, held = step.argval, _imported(step.argval)
            elif isinstance(held, types.ModuleType) and step.opname in (
                "LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM",
            ):  # fmt: skip
                inner = getattr(held, step.argval, None)
                if step.opname == "IMPORT_FROM":  # others may be taken out of the same module
                    found[f"{path}.{step.argval}"] = inner
                    continue
                found.pop(path, None)
                path, held = f"{path}.{step.argval}", inner
            else:
                held = None
                continue
            found[path] = held
    return list(found.items())


def _imported(name: str) -> Any:
    """Return a module that a function is going to import, if it can."""
    try:
        return importlib.import_module(name)
    except Exception:  # relative ones, and whatever a module raises
        return sys.modules.get(name)
