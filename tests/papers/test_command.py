"""The command of the papers: what it lists, what it refuses, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from papers.command import app

ROOT = Path(__file__).parents[2]


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_figures_are_listed_and_what_is_missing_is_said(tmp_path, monkeypatch):
    listed = invoke().stdout
    assert "004-1" in listed
    assert "RMSProp" in listed
    monkeypatch.setenv("LARGEN_DATA", str(tmp_path))
    missing = invoke("004-1")
    assert missing.exit_code == 2
    assert "no images of cifar10" in missing.stdout


@pytest.mark.parametrize(
    "line", ["004-8 --data digits", "no-such-figure", "004-1 --data no/such/folder"]
)
def test_wrong_words_end_without_a_traceback(line):
    ran = invoke(*line.split())
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert ran.exit_code == 2
    assert ran.output


@pytest.mark.slow
def test_it_runs_as_a_module_of_a_clone():
    words = [sys.executable, "-m", "papers"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert listed.split() == invoke().stdout.split()
    assert "--data" in invoke("--help").stdout


def test_an_interrupt_ends_in_one_line(tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("papers.command.produce", interrupted)
    result = invoke("004-1", "--fast", "--data", "digits", "--output", str(tmp_path))
    assert result.exit_code == 130
    assert result.output.splitlines()[-1].startswith("Interrupted.")
    assert "Traceback" not in result.output
