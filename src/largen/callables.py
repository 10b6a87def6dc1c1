"""User-defined functions: their arguments and results, their source, and what it reads.

A function that JAX compiles is first traced on shapes alone, so that its errors are raised at the
call to which it was passed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.text import shown

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FOR_VALUES = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)


F = TypeVar("F", bound=Callable[..., Any])


def other_options(**remedies: str) -> Callable[[F], F]:
    """Decorate a function to answer options that other libraries have with what to do here."""

    def decorate(function: F) -> F:
        @wraps(function)
        def called(*arguments: Any, **options: Any) -> Any:
            for name in options:
                if name in remedies:
                    raise InvalidInput(f"{name}: {remedies[name]}")
            return function(*arguments, **options)

        return cast(F, called)

    return decorate


def takes(name: str, function: Any, arguments: tuple[str, ...]) -> Callable[..., Any]:
    """Check that a function takes the given positional arguments, and return it."""
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
    """Return the shapes and dtypes of a function's outputs, without computing any values."""
    try:
        return jax.eval_shape(lambda *arrays: function(*arrays), *inputs)
    except Exception as error:
        if isinstance(error, _FOR_VALUES) or "truth value of an array" in _start(error):
            raise InvalidInput(
                f"{name}: {_name_of(function)} asks for the value of an array, by a branch, "
                "float() or NumPy, which is not known when JAX compiles it. Write it with "
                "jax.numpy, and branches as jnp.where(condition, a, b)."
            ) from error
        if "must be Tensor" in _start(error):
            raise InvalidInput(
                f"{name}: {_name_of(function)} calls functions of PyTorch, which take tensors "
                "only. Write it with jax.numpy."
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


def source_of(function: types.FunctionType) -> str | None:
    """Return the text that defines a function, without decorators; None if it is not known."""
    known = _definition(function.__code__)
    return None if known is None else ast.get_source_segment(*known)


def outer_variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables of enclosing functions that a function reads."""
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    for name, cell in zip(names, cells, strict=True):
        try:
            yield f"the outer variable {name!r}", cell.cell_contents
        except ValueError:  # not assigned yet
            yield f"the outer variable {name!r}", None


def read_from_outside(
    function: types.FunctionType, installed: Callable[[str], bool]
) -> Iterator[tuple[str, Any]]:
    """Yield the outer variables, globals and imports that a function with known source reads.

    Of a module that is not installed, they are the attributes that the function reads.
    """
    code, known = function.__code__, _definition(function.__code__)
    nodes = [] if known is None else list(ast.walk(known[1]))
    yield from outer_variables(function)
    written = {node.id for node in nodes if isinstance(node, ast.Name)}
    for name in sorted(written & set(_names(code)) & set(function.__globals__)):
        held = function.__globals__[name]
        read = _attributes_of(name, nodes)
        if read and isinstance(held, types.ModuleType) and not installed(held.__name__):
            yield from ((f"{name}.{a}", getattr(held, a, None)) for a in read)
        else:
            yield f"the global {name!r}", held
    yield from _imports(nodes, function.__globals__.get("__package__"))


def _attributes_of(name: str, nodes: list[ast.AST]) -> list[str]:
    """Return the attributes that a text reads of a name, in order."""
    attributes = (node for node in nodes if isinstance(node, ast.Attribute))
    return sorted(
        node.attr
        for node in attributes
        if isinstance(node.value, ast.Name) and node.value.id == name
    )


def _imports(nodes: list[ast.AST], package: str | None) -> Iterator[tuple[str, Any]]:
    """Yield what the import statements of a text in a package bring."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, _imported(alias.name, None)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _imported("." * node.level + (node.module or ""), package)
            for alias in node.names:
                held = getattr(module, alias.name, None)
                inside = f"{node.module}.{alias.name}"
                yield inside, _imported(inside, package) if held is None else held


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _definition(code: types.CodeType) -> tuple[str, ast.AST] | None:
    """Return the text of the file that defines a function, and the node of the definition."""
    try:
        source = "".join(inspect.findsource(code)[0])
        tree, line = _parsed(source), code.co_firstlineno
    except (OSError, SyntaxError, IndexError):
        return None
    if code.co_name != "<lambda>":
        named = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
        there = [n for n in named if (n.name, _first_line(n)) == (code.co_name, line)]
        return (source, there[-1]) if there else None
    # Of several lambdas on a line, the innermost that contains all that is computed.
    lambdas = (node for node in ast.walk(tree) if isinstance(node, ast.Lambda))
    there = [node for node in lambdas if node.lineno == line and _contains(node.body, code)]
    return (source, there[-1]) if there else None


def _contains(body: Any, code: types.CodeType) -> bool:
    """Whether the text of an expression contains all that code computes."""
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    spans: Any = [at for at in code.co_positions() if None not in at and at[3]]
    inside = (start <= (at[0], at[2]) and (at[1], at[3]) <= end for at in spans)
    return bool(spans) and all(inside)


def _first_line(node: Any) -> int:
    return min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the globals and attributes that a function reads, and the functions within it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names(part)


def _imported(name: str, package: str | None) -> Any:
    """Return a module that a function imports when called, if the import succeeds."""
    try:
        return importlib.import_module(name, package)
    except Exception:  # whatever a module raises
        return None
