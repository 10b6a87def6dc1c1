"""The graph of files: which use which, and from where a changed one can be reached."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

from tools.selection.names import ALL, Name, Uses, names_in_text, uses_of, uses_of_examples
from tools.selection.tree import Tree

# They import any public name, by the stubs that this graph reads as well.
NAME_TABLES = ("src/largen/_rooms.py", "src/largen/_hints.py")
# What `conftest.py` loads: a fault there changes which tests run, not what they find.
APART = "tools/selection/"
EXAMPLES = "examples in "  # before the path of a module: a node of its own
# What every test depends on, beside the `conftest.py` of the folders above it.
SETTINGS = ("pyproject.toml",)


class Graph:
    """Edges between the files of a tree: imports that are used, registrations, pages and data."""

    def __init__(self, tree: Tree):
        self.tree = tree
        self._resolved = lru_cache(maxsize=None)(self._resolve)

    def reaching(self, changed: Iterable[str]) -> set[str]:
        """Return the files that can reach any of some files, with themselves.

        A module stands for its code, ``"examples in " + path`` for those in its docstrings.
        """
        found, waiting = set(changed), [*changed]
        while waiting:
            for user in self.users.get(waiting.pop(), ()):
                if user not in found:
                    found.add(user)
                    waiting.append(user)
        return found

    @cached_property
    def users(self) -> dict[str, set[str]]:
        """Return the files that use a file, by its path."""
        found: dict[str, set[str]] = defaultdict(set)
        for path in self.tree.modules.values():
            for used in self._edges(path, self._uses[path]):
                found[used].add(path)
            for module in self._registries(self._uses[path]):
                found[path].add(module)
            examples = uses_of_examples(self.tree.parsed(path), _package(path))
            for used in {path, *self._edges(path, examples), *self._settings(path)}:
                found[used].add(EXAMPLES + path)
            if PurePosixPath(path).name.startswith("test_"):
                for used in self._settings(path):
                    found[used].add(path)
        for path in self.tree.documents:
            if path.endswith((".md", ".ipynb")):
                for module, chain in names_in_text(self.tree.text(path)):
                    for used in self._resolved(module, chain):
                        found[used].add(path)
        return found

    @cached_property
    def _uses(self) -> dict[str, Uses]:
        found = {}
        for name, path in self.tree.modules.items():
            is_package = path.endswith("__init__.py")
            package = name if is_package else name.rpartition(".")[0]
            found[path] = uses_of(
                self.tree.parsed(path),
                package,
                is_package=is_package,
                reads_strings=not path.startswith("src/"),
            )
        return found

    def _edges(self, path: str, uses: Uses) -> set[str]:
        found: set[str] = set()
        for module, chain in uses.names:
            found |= self._resolved(module, chain)
        if path not in NAME_TABLES:
            for package, words in uses.guesses.items():
                found |= self._guessed(package, words)
        found |= self._paths(path, uses)
        if path == "conftest.py":
            found = {file for file in found if not file.startswith(APART)}
        return found - {path}

    def _guessed(self, package: str, words: set[str]) -> set[str]:
        """Return what may be imported by name: modules of a package, and names in them.

        The words of a registry are both. If none is a module, it may be any module of the package.
        """
        modules = [
            f"{package}.{word}" for word in words if f"{package}.{word}" in self.tree.modules
        ]
        if not modules:
            return self._below(package)
        found: set[str] = set()
        for module in modules:
            names = words & self._exports(module).keys()
            for name in names or {ALL}:
                found |= self._resolved(module, (name,))
        return found

    def _registries(self, uses: Uses) -> Iterator[str]:
        """Yield the modules in which names are defined that a module registers something with."""
        for module, chain in uses.registers_with:
            for path in self._resolved(module, chain):
                if not path.endswith(("__init__.py", ".pyi")):
                    yield path

    def _resolve(self, module: str, chain: tuple[str, ...]) -> frozenset[str]:
        """Return the files that a name comes from: packages above it, tables, and its home."""
        found = self._packages(module)
        if not chain:
            return frozenset(found)
        name, rest = chain[0], chain[1:]
        below = f"{module}.{name}"
        home = self._exports(module).get(name, (module, (name,)))
        if home != (module, (name,)):
            found |= self._resolved(home[0], (*home[1], *rest))
        elif self._is_package(below) or below in self.tree.modules:
            found |= self._resolved(below, rest)
        elif self._is_package(module) and not self._defines(module, name):
            found |= self._below(module)  # of any name, or of one that is unknown
        return frozenset(found)

    def _packages(self, module: str) -> set[str]:
        """Return the files that are run when a module is imported."""
        parts = module.split(".")
        names = [".".join(parts[: i + 1]) for i in range(len(parts))]
        found = {self.tree.modules[name] for name in names if name in self.tree.modules}
        stub = self._stub(module)
        return found | ({stub} if stub else set())

    def _stub(self, module: str) -> str | None:
        path = self.tree.modules.get(module, "")
        return f"{path}i" if f"{path}i" in self._documents else None

    def _exports(self, module: str) -> dict[str, Name]:
        """Return the names that a package, or a module with a stub, has from elsewhere."""
        stub = self._stub(module)
        if stub:
            return uses_of(
                self.tree.parsed(stub), module, is_package=True, reads_strings=False
            ).exports
        path = self.tree.modules.get(module, "")
        return self._uses[path].exports if path.endswith("__init__.py") else {}

    def _is_package(self, module: str) -> bool:
        return module in self._folders

    def _defines(self, module: str, name: str) -> bool:
        path = self.tree.modules.get(module)
        if path is None or name == ALL or name.startswith("__"):
            return False
        return any(name in _bound(node) for node in self.tree.parsed(path).body)

    def _below(self, package: str) -> set[str]:
        """Return all files of a package."""
        names = [n for n in self.tree.modules if n == package or n.startswith(f"{package}.")]
        return {self.tree.modules[name] for name in names}

    def _paths(self, path: str, uses: Uses) -> set[str]:
        """Return files whose path ends as a string does, and all those of folders."""
        found = set()
        for text in uses.paths | uses.folders:
            name = text.rpartition("/")[2]
            for file in self._by_file_name.get(name, ()):
                if file == text or file.endswith(f"/{text}"):
                    found.add(file)
        for text in uses.folders:
            folder = text.strip("/")
            places = (folder, str(PurePosixPath(path).parent / folder))
            for place in places if folder else ():
                found |= {file for file in self.tree.files if file.startswith(f"{place}/")}
        return {file for file in found if not file.endswith("__init__.py")}

    def _settings(self, path: str) -> set[str]:
        """Return what every test of a file depends on."""
        folders = [str(folder) for folder in PurePosixPath(path).parents]
        near = {f"{folder}/conftest.py".removeprefix("./") for folder in folders}
        return {file for file in (*near, *SETTINGS) if file in self._every}

    @cached_property
    def _every(self) -> set[str]:
        return set(self.tree.files)

    @cached_property
    def _documents(self) -> set[str]:
        return set(self.tree.documents)

    @cached_property
    def _folders(self) -> set[str]:
        parents = {name.rpartition(".")[0] for name in self.tree.modules}
        return parents | {name.rpartition(".")[0] for name in parents} - {""}

    @cached_property
    def _by_file_name(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for file in self.tree.files:
            found[PurePosixPath(file).name].append(file)
        return found


def _package(path: str) -> str:
    return ".".join(PurePosixPath(path.removeprefix("src/")).parent.parts)


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement gives a value."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return {node.name}
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {part.id for part in names if isinstance(part.ctx, ast.Store)}
