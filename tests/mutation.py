"""Break formulas one at a time, and see whether the tests notice.

    python -m tests.mutation --mutants 20 --seed 0

changes one operator, sign or number of a formula in a copy of the sources, and runs what a change
of its file would run (`tools.selection`) until a test fails: quick tests before slow ones, those of
the room before others. Mutants are drawn at random from all files, as many from each room as from
any other. What survives is printed with its line: a change that means nothing, or a test that is
missing. If tests still run after ``--limit`` seconds, the mutant is undecided.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from tools.selection.graph import Graph
from tools.selection.selected import is_test, is_top
from tools.selection.tree import Tree

ROOT = Path(__file__).parent.parent
NO_TESTS = 5  # an exit status of pytest
BORDER = "border"  # modules of largen that are in no package

SWAPPED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*"}
SYMBOL = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    room: str
    file: Path
    start: int
    end: int
    text: str
    line: int

    def of(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(room: str, file: Path) -> list[Mutant]:
    """Return every mutant of a file: operators swapped, signs dropped, numbers moved by one."""
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    found = []
    for node in _formulas(ast.parse(source)):
        if isinstance(node, ast.BinOp):
            begin = at(node.left.end_lineno or 0, node.left.end_col_offset or 0)
            end = at(node.right.lineno, node.right.col_offset)
            old, new = SYMBOL[type(node.op)], SWAPPED[type(node.op)]
            where = source.find(old.encode(), begin, end)
            change = (where, where + len(old), new)
        elif isinstance(node, ast.UnaryOp):
            where = at(node.lineno, node.col_offset)
            change = (where, where + 1, " ")
        else:
            assert isinstance(node, ast.Constant)
            where = at(node.lineno, node.col_offset)
            change = (
                where,
                at(node.end_lineno or 0, node.end_col_offset or 0),
                repr(node.value + 1),  # pyright: ignore[reportOperatorIssue]
            )
        found.append(Mutant(room, file, *change, node.lineno))
    return found


def _formulas(tree: ast.Module) -> list[ast.expr]:
    """Return operators, signs and numbers of functions, but not of indices, bounds and options."""
    found: list[ast.expr] = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, (ast.Subscript, ast.JoinedStr, ast.Raise, ast.Compare)):
            return
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
            return
        inside = inside or isinstance(node, ast.FunctionDef)
        if inside and _counts(node):
            found.append(node)  # pyright: ignore[reportArgumentType]
        if isinstance(node, ast.FunctionDef):
            for part in node.body:
                visit(part, inside)
            return
        for part in ast.iter_child_nodes(node):
            visit(part, inside)

    visit(tree, False)
    return found


def _counts(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        texts = (isinstance(side, (ast.Constant, ast.Tuple)) for side in (node.left, node.right))
        return type(node.op) in SWAPPED and not all(texts)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


@cache
def mutants_by_room() -> dict[str, dict[Path, list[Mutant]]]:
    """Return every mutant of every file that has any, by the packages of largen."""
    found: dict[str, dict[Path, list[Mutant]]] = {}
    sources = ROOT / "src/largen"
    for file in sorted(sources.rglob("*.py")):
        parts = file.relative_to(sources).parts
        room = parts[0] if len(parts) > 1 else BORDER
        mutants = mutants_of(room, file)
        if mutants:
            found.setdefault(room, {})[file] = mutants
    return found


def chosen(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """Draw mutants, the rooms in turn; a file as often as it has formulas."""
    draw = random.Random(seed)
    found = []
    for i in range(count):
        files = mutants_by_room()[rooms[i % len(rooms)]]
        found.append(draw.choice([mutant for own in files.values() for mutant in own]))
    return found


@cache
def _graph() -> Graph:
    return Graph(Tree())


def tests_of(mutant: Mutant) -> list[str]:
    """Return the modules of tests that a change of a mutant's file runs, the closest first."""
    path = mutant.file.relative_to(ROOT).as_posix()
    reached = _graph().reaching([path])
    tests = [test for test in _graph().tree.files if is_test(test)]
    tests = [test for test in tests if test in reached or is_top(test)]
    folders = PurePosixPath(path).parent.parts[2:]

    def distance(test: str) -> tuple[bool, int]:
        """Tests of the whole library last; before them those in folders of another name."""
        own = PurePosixPath(test).parent.parts[1:]
        pairs = zip(folders, own, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return is_top(test), -alike

    return sorted(tests, key=distance)


def is_caught(mutant: Mutant, limit: float) -> bool | None:
    """Run tests with the mutant in the place of its file; None if they take longer than a limit."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)
        file = copy / mutant.file.relative_to(ROOT / "src")
        file.write_bytes(mutant.of(mutant.file.read_bytes()))
        for which in ("not slow", "slow"):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", which, "--without-shapes"]
            try:
                ended = subprocess.run(
                    [*command, "-p", "no:cacheprovider", *tests_of(mutant)],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(copy)},
                    capture_output=True,
                    timeout=max(limit - (time.monotonic() - began), 1),
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None
            if ended.returncode not in (0, NO_TESTS):
                return True
    return False


WORDS = {True: "caught   ", False: "SURVIVED ", None: "undecided"}


def main() -> None:
    rooms = [*mutants_by_room()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="*", choices=rooms, default=rooms)
    parser.add_argument("--limit", type=float, default=1200, help="seconds for each mutant")
    parser.add_argument("--output", type=Path, help="a JSON file for what came out")
    wanted = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for mutant in chosen(wanted.mutants, wanted.seed, wanted.rooms):
        began = time.monotonic()
        found = is_caught(mutant, wanted.limit)
        source = mutant.file.read_bytes()
        before = source.splitlines()[mutant.line - 1].decode().strip()
        change = f"{source[mutant.start : mutant.end].decode()!r} -> {mutant.text!r}"
        place = f"{mutant.file.relative_to(ROOT)}:{mutant.line}"
        seconds = time.monotonic() - began
        print(f"{WORDS[found]} {seconds:5.0f} s  {place}  {change} in  {before}", flush=True)
        rows.append({"room": mutant.room, "place": place, "change": change, "caught": found})
        if wanted.output:  # after each mutant, so that an interrupt loses nothing
            decided = [row for row in rows if row["caught"] is not None]
            summary = {"date": date.today().isoformat(), "seed": wanted.seed, "mutants": decided}
            wanted.output.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    counts = Counter(WORDS[row["caught"]].strip() for row in rows)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
    main()
