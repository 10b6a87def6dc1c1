"""A type checker finds the misspellings in a user's file, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import largen

FILE = """
import numpy as np

import largen as lg

data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=lg.gd(lr=0.5), steps=5)
limit = lg.solve(run, theory=lg.theories.MeanField(particles=64))
nets = lg.train(run, width=16, record_at=[0])
print(limit.loss_test, lg.compare(limit, nets).plot("picture.png"), lg.load("limit.nc"))
"""
MISSPELLED = {
    "limit.loss_test": "limit.loss_tset",
    "record_at=[0]": "recrd_at=[0]",
    "particles=64": "partcles=64",
}


def errors_in(text, folder):
    """Return the lines with errors, and their messages."""
    file = folder / "user.py"
    file.write_text(text)
    source = Path(largen.__file__).parents[1]
    settings = {"include": ["user.py"], "extraPaths": [str(source)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    program = shutil.which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    if program is None:
        pytest.skip("pyright is not installed")
    command = [program, "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not run here: {done.stderr[:200]}")
    return [
        (text.splitlines()[each["range"]["start"]["line"]], each["message"])
        for each in found
        if each["severity"] == "error"
    ]


@pytest.mark.slow
def test_three_misspellings_are_found(tmp_path):
    text = FILE
    for right, wrong in MISSPELLED.items():
        text = text.replace(right, wrong)
    found = errors_in(text, tmp_path)
    assert len(found) == 3, found
    for wrong in MISSPELLED.values():
        assert any(wrong in line for line, _ in found), (wrong, found)


@pytest.mark.slow
def test_the_right_spelling_is_clean(tmp_path):
    assert errors_in(FILE, tmp_path) == []
