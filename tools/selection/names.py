"""What a file says of others: names of modules that it imports and uses, strings, and paths."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

ALL = "*"  # in the place of an attribute: any of them

# A module, and the attributes of it that are used, one of the other.
Name = tuple[str, tuple[str, ...]]

OURS = ("largen", "papers", "examples", "tools", "tests", "benchmarks", "conftest")
CODE = re.compile(r"\b(lg|largen|papers|examples|tools|tests|benchmarks)((?:\.[A-Za-z_]\w*)+)")
PUT_TOGETHER = re.compile(r"\blg\.$")  # code whose next name is filled in
FROM = re.compile(r"\bfrom ((?:largen|papers|examples|tools|tests)[\w.]*) import ([\w, ]+)")
WORD = re.compile(r"[\w.]+")


@dataclass
class Uses:
    """What a file uses.

    Attributes
    ----------
    names
        What it imports, as far as it is used.
    exports
        Names that it has from other modules: what is imported through it.
    registers_with
        What it adds itself to when it is imported, such as the rules of an operation.
    guesses
        Words of the file that may be modules of a package which it imports from by name, as a
        registry does.
    paths
        Strings that may be ends of paths, and ``folders`` those that stand in products of paths.
    """

    names: set[Name] = field(default_factory=set)
    exports: dict[str, Name] = field(default_factory=dict)
    registers_with: set[Name] = field(default_factory=set)
    guesses: dict[str, set[str]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)


def names_in_text(text: str) -> set[Name]:
    """Return what code in a text uses; a name that is filled in later may be any.

    >>> sorted(names_in_text("import largen as lg; lg.theories.solve(lg.mlp(2))"))
    [('largen', ('mlp',)), ('largen', ('theories', 'solve'))]
    """
    found: set[Name] = set()
    for root, attributes in CODE.findall(text):
        found.add(("largen" if root == "lg" else root, tuple(attributes[1:].split("."))))
    for module, names in FROM.findall(text):
        found |= {(module, (name.split()[0],)) for name in names.split(",") if name.strip()}
    if PUT_TOGETHER.search(text):
        found.add(("largen", (ALL,)))
    return found


def uses_of_examples(tree: ast.Module, package: str) -> Uses:
    """Return what the examples in docstrings use, which ``pytest --doctest-modules`` runs."""
    parser = doctest.DocTestParser()
    code = ""
    for node in _docstrings(tree):
        text = str(node.value)
        if ">>>" in text:
            code += "".join(example.source for example in parser.get_examples(text))
    return _Reader(ast.parse(code), package, reads_strings=True).found


def uses_of(tree: ast.Module, package: str, *, is_package: bool, reads_strings: bool) -> Uses:
    """Return what a module uses.

    ``package``: the name of the package that it is in; ``is_package``: whether it is the package's
    own file, whose imports are names for others; ``reads_strings``: whether strings may be code.
    """
    reader = _Reader(tree, package, reads_strings=reads_strings)
    if not is_package:
        reader.found.names |= reader.imported
    return reader.found


class _Reader:
    """One pass over a module's syntax for its imports, and one for what is made of them."""

    def __init__(self, tree: ast.Module, package: str, *, reads_strings: bool):
        self.package, self.reads_strings = package, reads_strings
        self.found = Uses()
        self.imported: set[Name] = set()
        self.aliases: dict[str, set[Name]] = {}
        self.words: set[str] = set()
        # What is not there when the module runs, or not used: imports for types, docstrings,
        # and names of which only an attribute is taken.
        apart = {id(text) for text in _docstrings(tree)}
        nodes = [*_walk(tree)]
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._bind(node)
            elif isinstance(node, ast.Attribute):
                apart.add(id(node.value))
        readers: dict[type, Callable[[Any], None]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Constant: self._constant,
            ast.BinOp: self._product,
            ast.List: self._command,
            ast.Call: self._call,
        }
        for node in nodes:
            read = readers.get(type(node))
            if read is not None and id(node) not in apart:
                read(node)
        self._registrations(tree)
        self.found.guesses = dict.fromkeys(self.found.guesses, self.words)

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                whole: Name = (alias.name, ())
                bound = alias.asname or alias.name.partition(".")[0]
                target: Name = whole if alias.asname else (bound, ())
                if _is_ours(alias.name) and "." in alias.name:
                    self.found.names.add(whole)
            else:
                bound = alias.asname or alias.name
                target = whole = (_absolute(node, self.package), (alias.name,))
            if _is_ours(target[0]):
                self.aliases.setdefault(bound, set()).add(target)
                self.imported.add(whole)
                self.found.exports[bound] = whole

    def _name(self, node: ast.Name) -> None:
        for module, chain in self.aliases.get(node.id, ()):
            self.found.names.add((module, (*chain, ALL)))

    def _attribute(self, node: ast.Attribute) -> None:
        root, attributes = _chain(node)
        if isinstance(root, ast.Name):
            for module, chain in self.aliases.get(root.id, ()):
                self.found.names.add((module, (*chain, *attributes)))

    def _constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str):
            return
        if WORD.fullmatch(node.value):
            self.words.add(node.value)
        if self.reads_strings:
            self.found.names |= names_in_text(node.value)
        if "." in node.value and not re.search(r"\s", node.value):
            self.found.paths.add(node.value)

    def _product(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Div):
            self.found.folders.add("/".join(_parts_of_path(node)))

    def _command(self, node: ast.List) -> None:
        """In commands, what follows ``-m`` is a module that is run."""
        values = [part.value for part in node.elts if isinstance(part, ast.Constant)]
        if "-m" in values[:-1]:
            module = str(values[values.index("-m") + 1])
            if _is_ours(module):
                self.found.names |= {(module, ()), (f"{module}.__main__", ())}

    def _call(self, node: ast.Call) -> None:
        """Imports by name: of a string, or of one that begins with a known package."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called != "import_module" or not node.args:
            return
        text = node.args[0]
        first = text.values[0] if isinstance(text, ast.JoinedStr) else text
        if isinstance(first, ast.Constant) and _is_ours(str(first.value)):
            if first is text:
                self.found.names.add((str(first.value), ()))
            else:
                self.found.guesses[str(first.value).rstrip(".")] = set()

    def _registrations(self, tree: ast.Module) -> None:
        for node in tree.body:
            calls: list[ast.expr] = list(getattr(node, "decorator_list", ()))
            if isinstance(node, ast.Expr):
                calls.append(node.value)
            for call in calls:
                root, attributes = _chain(call.func if isinstance(call, ast.Call) else call)
                if isinstance(root, ast.Name) and "register" in (root.id, *attributes):
                    for module, chain in self.aliases.get(root.id, ()):
                        self.found.registers_with.add((module, chain))


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes but those for type checkers only."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
            continue
        yield node
        for value in node.__dict__.values():
            if isinstance(value, list):
                waiting.extend(part for part in value if isinstance(part, ast.AST))
            elif isinstance(value, ast.AST):
                waiting.append(value)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module, its classes and their functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        body = waiting.pop().body  # pyright: ignore[reportAttributeAccessIssue]
        first = body[0].value if body and isinstance(body[0], ast.Expr) else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        waiting.extend(node for node in body if isinstance(node, kinds))


def _absolute(node: ast.ImportFrom, package: str) -> str:
    parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*parents, *([node.module] if node.module else [])])


def _chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """Return what attributes are taken of, and their names in turn."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return node, names


def _parts_of_path(node: ast.AST) -> list[str]:
    """Return the strings of a product of paths such as ``ROOT / "docs" / "guide"``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _parts_of_path(node.left) + _parts_of_path(node.right)
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OURS
