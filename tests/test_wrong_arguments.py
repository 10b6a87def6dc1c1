"""What is wrong with an argument is said by largen, for every public name.

The table is generated: for each name a call that works, in which each argument is replaced by
values of a pool. It runs in a process of its own, without the type checker of the tests, which
would be faster than largen's own checks.
"""

import json
import os
import subprocess
import sys
from inspect import isclass
from pathlib import Path
from pkgutil import resolve_name

import pytest
from typer.testing import CliRunner

from largen._rooms import addresses
from largen.cli.app import app

ROOT = Path(__file__).parents[1]
# Functions for layers, theories and activations from outside, whose tests are those of rooms, and
# those of transfer and sweeps, which have a table of their own.
OF_EXTENSIONS = {
    *("build", "weightless", "by_name", "choose", "register", "registered", "unregister"),
    "solve_by_replicates",
    *("elu", "gaussian", "hermite", "leaky_relu", "monomial", "polynomial", "rbf", "with_kinks"),
    *("derivative_second_moment", "gaussian_mean", "gaussian_mean_error", "mean", "moment_error"),
    *("pair_error", "pair_moments", "second_moment"),
    *("channels_behind", "rule"),
    *("ROLES", "constant", "forecast", "plan_from_json", "rule_table", "sweep", "tune"),
    "warmup_cosine",
}
# Arguments that have another name in messages.
CALLED = {
    "spec": ("activation", "loss"),
    "function": ("activation",),
    "gammas": ("gamma",),
    "X_test": ("X",),
}
# Errors of what the argument does to the rest of the call.
CONSEQUENCES = ("path: ", "net: ", "params", "x_", "y_", "y: ", "f: ", "tokens", "q_sigma")


def outcomes(folder, *what):
    """Return (name, argument, value, outcome) of each row, from a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.wrong_arguments", *what],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not list(folder.iterdir()), "something was written where the table was made"
    lines = [line.split("\t") for line in ran.stdout.splitlines() if line.startswith("[")]
    assert ran.returncode == 0, f"the process ended in {lines[-1]}: {ran.stderr[-2000:]}"
    return [(*json.loads(row), json.loads(found)) for row, found in lines]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("table"), "table")


def faults(found):
    return [row for row in found if row[3].startswith("FAULT")]


@pytest.mark.slow
def test_every_public_name_has_an_example_that_works(found):
    working = {name.partition(".")[0] for name, argument, _, what in found if what == "result"}
    public = {name for name, address in addresses().items() if not isclass(resolve_name(address))}
    assert not public - OF_EXTENSIONS - working
    assert not [row for row in found if not row[1] and row[3] != "result"]


@pytest.mark.slow
def test_no_argument_ends_in_a_traceback_or_a_number_that_is_none(found):
    assert len(found) > 2000
    assert not faults(found)


@pytest.mark.slow
def test_messages_name_an_argument(found):
    silent = [
        row
        for row in found
        if row[3].startswith("InvalidInput")
        and not any(called in row[3] for called in (row[1], *CALLED.get(row[1], ())))
        and not any(words in row[3] for words in CONSEQUENCES)
    ]
    assert not silent


@pytest.mark.parametrize(
    "line",
    [
        "quickstart --output {file}/folder",
        "quickstart --output",
        "quickstart --output {null}",
        "quickstart --fast=maybe",
        "forecast {file}/none.csv --size 8",
        "forecast {file} --size 8",
        "forecast {file} --size 8 --column size",
        "monitor {file} {file} --lr 0.1",
        "no-such-command",
        "--no-such-option",
    ],
)
def test_the_command_line_ends_without_a_traceback(tmp_path, line):
    file = tmp_path / "file"
    file.write_text("nothing")
    words = [word.format(file=file, null="a\0b") for word in line.split()]
    ran = CliRunner().invoke(app, words)
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    assert ran.exit_code == 2
    assert ran.output


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_two_wrong_arguments_at_once(tmp_path, seed):
    assert not faults(outcomes(tmp_path, "pairs", str(seed), "1000"))
