"""User-defined functions: their arguments, their results, and the globals that they read.

A function that JAX compiles is first traced on shapes alone, so that its errors are raised at the
call to which it was passed.
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
    """Check that a function takes the given positional arguments, and return it.

    Parameters
    ----------
    name, function
        Name of the argument, and the function passed as it.
    arguments
        Names of the positional arguments that the function gets, such as ``("f", "y")``.

    Raises
    ------
    InvalidInput
        If the value is not callable, is a class, or takes another number of arguments.
    """
    wanted = f"{name}: wanted a function of ({', '.join(arguments)}), got {shown(function)}"
    if not callable(function):
        raise InvalidInput(f"{wanted}.")
    if isinstance(function, type):
        raise InvalidInput(f"{wanted}, a class. Pass one of its instances.")
    if isinstance(function, np.ufunc) and function.nin != len(arguments):
        raise InvalidInput(f"{wanted}, of {function.nin}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return function
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise InvalidInput(f"{wanted}: {error}.") from None
    return function


def outputs_on_shapes(name: str, function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the shapes and dtypes of a function's outputs, without computing any values.

    Parameters
    ----------
    name, function
        Name of the argument, and the function passed as it, which JAX compiles.
    inputs
        Trees of arrays, or of ``jax.ShapeDtypeStruct``.

    Raises
    ------
    InvalidInput
        If the function raises an exception, which becomes the cause.
    """
    try:
        return jax.eval_shape(lambda *arrays: function(*arrays), *inputs)
    except Exception as error:
        if isinstance(error, _FOR_VALUES) or "truth value of an array" in _start(error):
            raise InvalidInput(
                f"{name}: {_name_of(function)} asks for the value of an array, by a branch, "
                "float() or NumPy, which is not known when JAX compiles it. Write it with "
                "jax.numpy, and branches as jnp.where(condition, a, b)."
            ) from error
        shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(inputs)[:6])
        raise InvalidInput(
            f"{name}: {_name_of(function)} fails on JAX arrays of shape {shapes}: "
            f"{type(error).__name__}: {_start(error)}."
        ) from error


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", shown(function))


def _start(error: Exception) -> str:
    try:
        return str(error).partition("\n")[0][:200].rstrip(".")
    except Exception:  # a user-defined exception that cannot be printed
        return "no message"


def globals_read(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Return the globals that a function reads; for modules, the attributes that it reads."""
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
                path, held = step.argval, _import_quietly(step.argval)
            elif isinstance(held, types.ModuleType) and step.opname in (
                "LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM",
            ):  # fmt: skip
                inner = getattr(held, step.argval, None)
                if step.opname == "IMPORT_FROM":  # other names may be imported from the same module
                    found[f"{path}.{step.argval}"] = inner
                    continue
                found.pop(path, None)
                path, held = f"{path}.{step.argval}", inner
            else:
                held = None
                continue
            found[path] = held
    return list(found.items())


def _import_quietly(name: str) -> Any:
    """Return a module that a function imports when called, if the import succeeds."""
    try:
        return importlib.import_module(name)
    except Exception:  # relative imports, and whatever a module raises
        return sys.modules.get(name)
