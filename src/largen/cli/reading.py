"""``largen read``: the report of a model that is somewhere on the path."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from largen.errors import InvalidInput, LargenError


def run_read(
    where: str, shape: str, widths: str, check: bool, apply: str, console: Console
) -> None:
    """Print the report of a model, and draws of it if asked for."""
    from largen.reading import read

    try:
        sample, pair = _integers("--input", shape), _integers("--widths", widths)
        x = np.random.default_rng(0).standard_normal((3, *sample))
        forward = _found(apply) if apply else None
        net = read(_found(where), x, pair, apply=forward)
        console.print(escape(str(net)), soft_wrap=True)
        if check:
            console.print(escape(repr(net.check())), soft_wrap=True)
    except LargenError as error:
        console.print(escape(str(error)), soft_wrap=True)
        raise typer.Exit(2) from None


def _integers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"{name}: wanted integers such as 3,32,32, got {text!r}.") from None


def _found(where: str) -> Any:
    """Return the object at ``package.module:name``, from the current folder as well."""
    module, _, name = where.partition(":")
    if not module or not name:
        raise InvalidInput(f"model: wanted module:factory, such as mine.nets:make, got {where!r}.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"model: {where!r} cannot be imported: {error}.") from None
