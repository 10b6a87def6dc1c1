"""The script that measures on an accelerator, on whatever JAX sees here."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_numbers_and_speeds_of_this_machine(tmp_path, monkeypatch):
    file = tmp_path / "on_device.json"
    script = ROOT / "benchmarks" / "on_device.sh"
    subprocess.run([script, file, "--small"], check=True, capture_output=True)
    found = json.loads(file.read_text())
    assert len(found["numbers"]) == 5
    for row in found["numbers"]:
        assert row["float32"] < 1e-5, row
        assert row["float64"] < 1e-12, row
    assert [row["again"] > 0 for row in found["speeds"]] == [True] * 6
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import make_evidence

    monkeypatch.setattr(make_evidence, "KEPT", tmp_path)
    page = make_evidence.page()
    assert f"Measured on {found['device']}" in page
    assert page.count("| NTK of a finite network |") == 1
