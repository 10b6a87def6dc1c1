"""Writes ``paper.md`` and ``paper.bib``: the manuscript, with numbers from what commands wrote.

    python paper/make_paper.py

The text is in ``paper.in.md``. Its numbers come from ``docs/gallery`` and ``docs/evidence``, and
from the docstrings, as those of the documentation do; none is typed by hand.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
sys.path.insert(0, str(DOCS))

from make_equations import all_citations, tests  # noqa: E402
from make_evidence import tests_in  # noqa: E402

from largen.bibliography import references  # noqa: E402


def mutation() -> str:
    """Return a sentence on mutants, if they were measured."""
    path = DOCS / "evidence" / "mutation.json"
    if not path.exists():
        return ""
    mutants = json.loads(path.read_text())["mutants"]
    caught = sum(mutant["caught"] for mutant in mutants)
    return f"Of {len(mutants)} random changes of formulas, the quick tests notice {caught}. "


def numbers() -> dict[str, object]:
    """Return the numbers of the manuscript by their names in the text."""
    summaries = [json.loads(p.read_text()) for p in sorted((DOCS / "gallery").glob("*.json"))]
    verdicts = Counter(c["agrees"] for summary in summaries for c in summary["claims"])
    with (DOCS / "evidence" / "accuracy_of_kernels.csv").open() as file:
        single = [row for row in csv.DictReader(file) if "float32" in row["kernel"]]
    worst = max(single, key=lambda row: float(row["neural-tangents"]))
    cited = all_citations()
    return {
        "date": date.today().strftime("%d %B %Y"),
        "worst_kernel": worst["kernel"],
        "worst_theirs": worst["neural-tangents"],
        "worst_ours": worst["largen"],
        "tests": tests_in("tests")[0],
        "citations": len(cited),
        "papers": len({key for key, _ in cited}),
        "claims": verdicts.total(),
        "agree": verdicts[True],
        "disagree": verdicts[False],
        "unclear": verdicts[None],
        "mutation": mutation(),
    }


def main() -> None:
    """Write both files beside this one."""
    text = (HERE / "paper.in.md").read_text()
    for name, value in numbers().items():
        text = text.replace(f"{{{name}}}", str(value))
    (HERE / "paper.md").write_text(text)
    (HERE / "paper.bib").write_text("\n\n".join(references().values()) + "\n")
    print(f"{len(text.split())} words, {len(tests())} files of tests")


if __name__ == "__main__":
    main()
