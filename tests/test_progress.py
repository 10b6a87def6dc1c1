"""Who waits for a long call sees how far it is: a bar, or lines where there is no terminal."""

import sys
from types import ModuleType

import pytest

from largen import progress
from largen.progress import reporter


def test_lines_in_the_log_of_a_batch_job(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    with reporter(None, "networks") as report:
        for done in range(5):
            report(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" after")[0] for line in lines] == [
        "networks: 0%",
        "networks: 25%",
        "networks: 50%",
        "networks: 75%",
    ]
    assert "left" not in lines[0]
    assert all("s left" in line for line in lines[1:])


@pytest.mark.parametrize("choice", [None, False])
def test_short_calls_say_nothing(choice, capsys):
    with reporter(choice, "networks") as report:
        report(1, 4)
        report(4, 4)
    assert capsys.readouterr().err == ""


def test_notebooks_have_bars_instead_of_lines(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    with reporter(None, "networks") as report:
        report(1, 4)
    assert "networks: 25%" not in capsys.readouterr().err
