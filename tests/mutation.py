"""Break formulas one at a time, and see whether the tests notice.

    python -m tests.mutation --mutants 20 --seed 0

changes one operator, sign or number of a formula in a copy of the sources, and runs the quick tests
of its room until one fails. Mutants are drawn at random from the files that hold formulas, as many
from each room as from any other. What survives is printed with its line: a change that means
nothing, or a test that is missing.
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
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT = 1200  # seconds of one run of tests; a mutant that takes longer is caught, too
TESTS_FAILED, NO_TESTS = 1, 5  # exit statuses of pytest

SWAPPED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*"}
SYMBOL = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


def _files(folder: str, *without: str) -> list[str]:
    """Return the files of a folder of the library, such as ``kernels/rules``."""
    every = sorted((ROOT / "src/largen" / folder).glob("*.py"))
    return [f"{folder}/{file.name}" for file in every if file.stem not in ("__init__", *without)]


# Files that hold formulas, and the tests that are held against them, the closest first.
DEEP = "tests/theories/mean_field/deep"
ROOMS = {
    "expectations": (_files("expectations", "kept_tables", "watching"), ["tests/expectations"]),
    "parameterizations": (
        ["parameterizations/weight_rules.py", "parameterizations/parameterization.py"],
        ["tests/parameterizations", "tests/networks/test_spatial.py"],
    ),
    "programs": (
        _files("programs", "refusals", "operations", "program", "signals"),
        ["tests/programs", "tests/kernels/test_kernel.py", "tests/kernels/test_spatial.py"],
    ),
    "kernels": (
        _files("kernels/rules", "dispatch", "running"),
        ["tests/kernels/test_composition.py", "tests/kernels"],
    ),
    "regression": (
        ["regression/conditioning.py", "regression/ridge.py", "regression/rates.py"],
        ["tests/regression"],
    ),
    "kernel limit": (
        ["theories/kernel_limit/descent.py", "theories/kernel_limit/flow.py"],
        ["tests/theories/kernel_limit", "tests/theories/test_schedules.py"],
    ),
    "engine": (
        [
            f"theories/mean_field/engine/{name}.py"
            for name in ("descent", "statistics", "replicates")
        ],
        [
            "tests/theories/mean_field/test_replicates.py",
            f"{DEEP}/test_linear.py",
            f"{DEEP}/test_solution.py",
            "tests/theories/mean_field/test_exact_cases.py",
            "tests/theories/test_schedules.py",
        ],
    ),
    "one hidden layer": (
        ["theories/mean_field/one_hidden_layer/dynamics.py"],
        sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("tests/theories/mean_field/test_*.py")),
    ),
    "deep mean field": (["theories/mean_field/deep/sweep/causal_sweep.py"], [DEEP]),
    "criticality": (
        ["criticality/jacobian.py", "criticality/maps.py"],
        ["tests/criticality"],
    ),
    "finite width": (
        ["finite_width/homogeneous.py", "finite_width/linear_networks.py"],
        ["tests/finite_width"],
    ),
    "transfer": (
        [f"transfer/{name}.py" for name in ("rules", "resolve", "updates", "schedules", "horizon")],
        ["tests/transfer/test_rules.py", "tests/transfer"],
    ),
}


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


def chosen(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """Draw mutants, the rooms in turn."""
    draw = random.Random(seed)
    found = []
    for i in range(count):
        room = rooms[i % len(rooms)]
        every = [m for file in ROOMS[room][0] for m in mutants_of(room, ROOT / "src/largen" / file)]
        found.append(draw.choice(every))
    return found


def is_caught(mutant: Mutant) -> bool:
    """Run the quick tests of the room with the mutant in the place of the file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)
        file = copy / mutant.file.relative_to(ROOT / "src")
        file.write_bytes(mutant.of(mutant.file.read_bytes()))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "--without-shapes"]
        command += ["-p", "no:cacheprovider", *ROOMS[mutant.room][1]]
        try:
            ended = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(copy)},
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
    if ended.returncode == NO_TESTS:
        raise RuntimeError(f"no tests were found for {mutant.room}")
    return ended.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="*", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--output", type=Path, help="a JSON file for what came out")
    wanted = parser.parse_args()
    caught, rows = 0, []
    for mutant in chosen(wanted.mutants, wanted.seed, wanted.rooms):
        began = time.monotonic()
        found = is_caught(mutant)
        caught += found
        source = mutant.file.read_bytes()
        before = source.splitlines()[mutant.line - 1].decode().strip()
        change = f"{source[mutant.start : mutant.end].decode()!r} -> {mutant.text!r}"
        word = "caught  " if found else "SURVIVED"
        place = f"{mutant.file.relative_to(ROOT)}:{mutant.line}"
        seconds = time.monotonic() - began
        print(f"{word} {seconds:5.0f} s  {place}  {change} in  {before}", flush=True)
        rows.append({"room": mutant.room, "place": place, "change": change, "caught": found})
        if wanted.output:  # after each mutant, so that an interrupt loses nothing
            summary = {"date": date.today().isoformat(), "seed": wanted.seed, "mutants": rows}
            wanted.output.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    print(f"{caught} of {wanted.mutants} caught")


if __name__ == "__main__":
    main()
