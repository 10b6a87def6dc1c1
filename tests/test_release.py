"""The version and its date are the same wherever they are written."""

import re
from pathlib import Path

import largen as lg

ROOT = Path(__file__).parents[1]


def test_version_and_date_agree():
    heading = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(
        r"^version: (\S+)\ndate-released: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE
    )
    assert heading
    assert cited
    assert heading.groups() == cited.groups()
    assert heading[1] == lg.__version__
