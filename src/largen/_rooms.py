"""Public names, which are imported when they are first used.

The stub of a module, a file ``.pyi`` of the same name, says which names it has and where they are
defined. Type checkers and editors read it, and so does :func:`attach`: no name is written twice.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Rooms whose names are no functions of the user's: pictures, and errors.
_OTHERS = ("errors", "plots")


def attach(
    module: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a module with a stub.

    ``from largen.layers import Dense as Dense`` in the stub is a name, and ``from largen import
    layers as layers`` in that of ``largen`` itself a module below it, which ``__all__`` leaves out.

    ``module``, ``file``: ``__name__`` and ``__file__`` of the module.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module or "" for node in imports for alias in node.names}

    def get(name: str) -> Any:
        from largen.interrupts import interruptible

        home = homes.get(name, module)
        # Modules that the stub does not list, such as `largen.arrays`, are attributes as well.
        if home == module and (name.startswith("_") or not _is_module(f"{module}.{name}")):
            raise AttributeError(_missing(module, name))
        # JAX's garbage-collector callbacks can swallow interrupts while modules load as well.
        with interruptible():
            if home == module:
                value = import_module(f"{module}.{name}")
            else:
                value = getattr(import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted(homes)

    return get, names, sorted(name for name, home in homes.items() if home != module)


def _missing(module: str, name: str) -> str:
    """Return the message for a name that a module does not have."""
    message = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # asked for by programs, which expect no more
        return message
    from largen._hints import hint

    return f"{message}.{hint(name)}"


def _is_module(name: str) -> bool:
    parent = sys.modules[name.rpartition(".")[0]]
    return hasattr(parent, "__path__") and find_spec(name) is not None


def addresses() -> dict[str, str]:
    """Return the address of every public name: that at the top, or else that in a room.

    >>> addresses()["Dense"], addresses()["Dropout"]
    ('largen.Dense', 'largen.layers.Dropout')
    """
    top = import_module("largen")
    rooms = [name for name in dir(top) if name not in (*top.__all__, *_OTHERS)]
    names = {name: f"largen.{name}" for name in top.__all__ if name != "__version__"}
    for room in (*rooms, "regression.large"):
        for name in getattr(import_module(f"largen.{room}"), "__all__", ()):
            names.setdefault(name, f"largen.{room}.{name}")
    return names
