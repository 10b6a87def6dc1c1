"""Files that differ from an earlier commit in more than words."""

from __future__ import annotations

import ast
import tomllib
from pathlib import PurePosixPath
from typing import Any

from tools.selection.graph import EXAMPLES
from tools.selection.names import uses_of
from tools.selection.tree import Tree, git

# Tables of `pyproject.toml` that no test depends on: linters, types, and what is published.
OF_OTHER_TOOLS = ("ruff", "pyright", "importlinter", "coverage")
PUBLISHED = ("description", "readme", "authors", "keywords", "classifiers", "license")


def changed_since(tree: Tree, commit: str) -> set[str] | None:
    """Return what differs from a commit, committed or not; None if the commit is unknown.

    A module stands for its code. Where its docstrings alone differ, it is their examples, a node of
    their own. A deleted module is a change of its package.
    """
    if not git(tree.root, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"):
        return None
    listed = git(tree.root, "diff", "--name-only", "--no-renames", commit, "--")
    new = git(tree.root, "ls-files", "--others", "--exclude-standard")
    found: set[str] = set()
    for path in {*listed.splitlines(), *new.splitlines()}:
        if path not in tree.files:
            found.add(str(PurePosixPath(path).parent / "__init__.py"))
        elif path.endswith((".py", ".pyi", ".toml")):
            found |= _difference(path, git(tree.root, "show", f"{commit}:{path}"), tree.text(path))
        else:
            found.add(path)
    return found


def _difference(path: str, old: str, new: str) -> set[str]:
    """Return what differs between two versions of a file: the file, its examples, or nothing."""
    if not old:
        return {path}
    if path == "pyproject.toml":
        return set() if _for_tests(old) == _for_tests(new) else {path}
    if path.endswith(".toml"):
        return {path}
    try:
        before, after = ast.parse(old), ast.parse(new)
    except SyntaxError:
        return {path}
    if _code(before) == _code(after):
        return {EXAMPLES + path}
    if path.endswith(("__init__.py", ".pyi")) and _only_adds(before, after):
        return {EXAMPLES + path}
    return {path}


def _code(tree: ast.Module) -> str:
    """Return a module's syntax without docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def _only_adds(before: ast.Module, after: ast.Module) -> bool:
    """Whether a file of imports has got further names and is otherwise as it was."""
    old, new = (
        uses_of(tree, "", is_package=True, reads_strings=False).exports for tree in (before, after)
    )
    return old.items() <= new.items() and _besides_names(before) == _besides_names(after)


def _besides_names(tree: ast.Module) -> list[str]:
    """Return the statements of a module but imports and ``__all__``."""
    rest = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    return [text for text in map(ast.dump, rest) if "'__all__'" not in text.partition("value=")[0]]


def _for_tests(text: str) -> dict[str, Any]:
    """Return what tests depend on of the project's settings."""
    settings = tomllib.loads(text)
    for tool in OF_OTHER_TOOLS:
        settings.get("tool", {}).pop(tool, None)
    for name in PUBLISHED:
        settings.get("project", {}).pop(name, None)
    return settings
