"""The files of a clone by their paths, and those that are modules of Python by their names."""

from __future__ import annotations

import ast
import subprocess
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
# Folders whose modules have names: the library's from `src`, all others from the root.
PACKAGES = ("src/largen", "papers", "examples", "tools", "tests", "benchmarks")


def git(root: Path, *words: str) -> str:
    """Return what a command of git prints; an empty text if it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


class Tree:
    """Files of a clone: those that git tracks, and new ones that it does not ignore."""

    def __init__(self, root: Path = ROOT):
        self.root = root
        listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
        self.files = sorted(path for path in set(listed.splitlines()) if (root / path).is_file())
        self._parsed: dict[str, ast.Module] = {}

    @cached_property
    def modules(self) -> dict[str, str]:
        """Paths of modules by their names, such as ``largen.kernels``; of packages by theirs."""
        found = {}
        for path in self.files:
            inside = path.startswith(tuple(f"{folder}/" for folder in PACKAGES))
            if path.endswith(".py") and (inside or path == "conftest.py"):
                found[module_name(path)] = path
        return found

    @cached_property
    def documents(self) -> list[str]:
        """Paths of all other files: pages, data, stubs."""
        modules = set(self.modules.values())
        return [path for path in self.files if path not in modules]

    def parsed(self, path: str) -> ast.Module:
        """Return the syntax of a file."""
        if path not in self._parsed:
            self._parsed[path] = ast.parse(self.text(path))
        return self._parsed[path]

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return (self.root / path).read_text(encoding="utf-8")


def module_name(path: str) -> str:
    """Return the name of a module by its path.

    >>> module_name("src/largen/kernels/__init__.py"), module_name("tests/test_docs.py")
    ('largen.kernels', 'tests.test_docs')
    """
    parts = PurePosixPath(path).with_suffix("").parts
    if parts[0] == "src":
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)
