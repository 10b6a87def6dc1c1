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
interval leaves the claim open: the computation is too small to decide it. It has a price: so many
times as many networks would decide, if the number stays where it is, in the time that follows, of
one processor at the figure's settings. A claim about one set of images that was computed from
another may fail for this reason alone.

Numbers agree with those of a paper if their whole interval is within a tolerance about them, which
the figure's script names, and disagree if all of it is outside. A small interval beside the number
that still agrees is what finite sizes leave. Behind newer intervals are the bounds at which the
verdict turns.

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


def duration(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> [duration(each) for each in (40.0, 1000.0, 7000.0, 3e5)]
    ['40 s', '17 min', '1.9 h', '3.5 days']
    """
    for unit, words in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            found = seconds / unit
            return f"{found:.{0 if found >= 10 else 1}f} {words}"
    return f"{seconds:.0f} s"


def computing_time(summary: dict, summaries: dict[str, dict]) -> float:
    """Return a figure's processor time, with that of the figure whose parts it shares."""
    shared = summaries.get(summary.get("shares", ""))
    return summary["seconds"] + (computing_time(shared, summaries) if shared else 0.0)


def alternative(claim: dict) -> bool:
    """Return whether a claim is not the paper's, but an alternative that is to be refuted."""
    return claim.get("whose", "paper") == "alternative"


def section(name: str, summary: dict, summaries: dict[str, dict]) -> list[str]:
    """Return the lines of one figure, of all summaries by name."""
    _, words = FIGURES[name]
    images = ", ".join(each["file"] for each in summary["images"].values())
    seconds, shared = computing_time(summary, summaries), summary.get("shares")
    facts = [
        "reduced settings" if summary["fast"] else "default settings",
        f"{seconds:.0f} s" + (f" with the networks of {shared}" if shared else ""),
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
            times = claim["effort"]
            verdict += f", ×{times:.{0 if times >= 10 else 1}f} ({duration(times * seconds)})"
        if claim.get("bounds") and not exact:
            interval += f" (bounds {', '.join(map(number, claim['bounds']))})"
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
        lines += section(name, summary, summaries)
    return "\n".join(lines)


if __name__ == "__main__":
    (KEPT / "index.md").write_text(page())
