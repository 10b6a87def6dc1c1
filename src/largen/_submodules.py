"""Modules that are imported when they are first used as attributes of their package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def submodules(package: str, path: Iterable[str]) -> tuple[Callable[[str], ModuleType], set[str]]:
    """Return a ``__getattr__`` that imports the submodules of a package, and their names.

    Parameters
    ----------
    package, path
        ``__name__`` and ``__path__`` of the package.
    """
    names = {found.name for found in iter_modules(path) if not found.name.startswith("_")}

    def get(name: str) -> ModuleType:
        if name in names:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, names
