"""Writes ``gallery/index.md`` from the summaries that ``run_gallery.py`` has kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from papers.registry import FIGURES

KEPT = Path(__file__).with_name("gallery")
VERDICT = {True: "agrees", False: "**disagrees**", None: "unclear"}
REFUTED = {True: "**alternative holds**", False: "alternative refuted", None: "alternative unclear"}
HEAD = """# Gallery: claims of papers, and what came out

Each figure is computed by `python -m papers NAME`, which draws the picture, measures the number
that a claim of the paper is about, with an interval of 95 %, and compares. *Unclear* means that the
interval leaves the claim open: the computation is too small to decide it. Where a factor follows,
so many times as many networks would decide, if the number stays where it is. A claim about one set
of images that was computed from another may fail for this reason alone.

Formulas are tried *as printed* where a misprint is suspected, and as they are derived. A
disagreement with a formula as printed is the evidence of the misprint. *Alternatives* are what a
paper does not claim, such as the other order of two limits: they are counted apart. Numbers
*without error* are values of formulas, of quadrature, and verdicts on a single number.

{counts}

This page is written by `make docs` from the files in `docs/gallery/`. They are made again by

```
PYTHONPATH=. .venv/bin/python docs/run_gallery.py --data FOLDER
```

with your own copy of CIFAR-10 and MNIST in the folder (`--data digits` takes scikit-learn's digits
instead). A figure that takes more than `--seconds` of processor time is computed with reduced
settings, and is left out if these take too long as well; `--fast` begins with reduced settings.
Times are those of the run that made the files, on a machine that did other work at the same time.
"""


def number(value: float | None) -> str:
    """Return a number with four digits, and a dash for what could not be resolved."""
    return "–" if value is None else f"{value:.4g}"


def cell(text: str) -> str:
    """Return a text that can stand in a table: without bars, and without markup of stars."""
    return text.replace("|", "\\|").replace("*", "\\*")


def alternative(claim: dict) -> bool:
    """Return whether a claim is not the paper's, but an alternative that is to be refuted."""
    return claim.get("whose", "paper") == "alternative"


def section(name: str, summary: dict) -> list[str]:
    """Return the lines of one figure."""
    _, words = FIGURES[name]
    images = ", ".join(each["file"] for each in summary["images"].values())
    facts = [
        "reduced settings" if summary["fast"] else "default settings",
        f"{summary['seconds']:.0f} s",
        summary["date"],
        *([f"images: {images}"] if images else []),
    ]
    lines = [f"### {name}: {words}", "", f"*{cell(summary['source'])}* ({'; '.join(facts)})", ""]
    if (KEPT / f"{name}.png").exists():
        lines += [f"![{words}]({name}.png)", ""]
    if summary["claims"]:
        lines += ["| verdict | claim | measured | value | interval |", "|---|---|---|---|---|"]
    for claim in summary["claims"]:
        low, high = claim["interval"]
        # A formula's value, a fraction of 1 and a verdict on one number have no error.
        exact = low == high is not None
        interval = "no error" if exact else f"{number(low)} … {number(high)}"
        entries = (cell(claim["claim"]), cell(claim["measured"]), number(claim["value"]))
        verdict = VERDICT[claim["agrees"]]
        if alternative(claim):
            verdict = REFUTED[claim["agrees"]]
        if claim.get("effort"):
            verdict += f", ×{claim['effort']:.2g}"
        lines.append(f"| {verdict} | {' | '.join(entries)} | {interval} |")
    notes = [f"- {cell(note)}" for note in summary["notes"]]
    return [*lines, "", *notes, "", f"`{summary['settings']}`", ""]


def counted(summaries: dict[str, dict]) -> str:
    """Return a table of how many claims were tried and what came out, by paper and in all."""
    rows = [
        "| paper | figures | claims tried | agree | of them without error | disagree | "
        "of them as printed | unclear | alternatives refuted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    papers = {}
    for name, summary in summaries.items():
        papers.setdefault(name.partition("-")[0], []).append(summary)
    for paper, found in [*papers.items(), ("all", list(summaries.values()))]:
        tried = [claim for summary in found for claim in summary["claims"]]
        claims = [claim for claim in tried if not alternative(claim)]
        refuted = sum(claim["agrees"] is False for claim in tried if alternative(claim))
        exact = sum(c["agrees"] is True and c["interval"][0] == c["interval"][1] for c in claims)
        verdicts = Counter(claim["agrees"] for claim in claims)
        misprints = sum(c["agrees"] is False and "as printed" in c["claim"] for c in claims)
        source = paper if paper == "all" else found[0]["source"].partition(",")[0]
        counts = (len(found), len(claims), verdicts[True], exact, verdicts[False], misprints)
        numbers = *counts, verdicts[None], refuted
        rows.append(f"| {cell(source)} | {' | '.join(map(str, numbers))} |")
    return "\n".join(rows)


def page() -> str:
    """Return the page."""
    kept = {name: KEPT / f"{name}.json" for name in FIGURES}
    summaries = {n: json.loads(path.read_text()) for n, path in kept.items() if path.exists()}
    lines, paper = [HEAD.format(counts=counted(summaries))], ""
    left = [name for name in FIGURES if name not in summaries]
    if left:
        lines += ["**Not computed for this page:**", ""]
        lines += [f"- {name}: {FIGURES[name][1]}" for name in left]
    for name, summary in summaries.items():
        source = summary["source"].partition(",")[0]
        if source != paper:
            lines += ["", f"## {cell(source)}", ""]
            paper = source
        lines += section(name, summary)
    return "\n".join(lines)


if __name__ == "__main__":
    (KEPT / "index.md").write_text(page())
