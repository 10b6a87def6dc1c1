"""``largen quickstart``: progress, table, files, and how to read them."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from largen.cli.work import make_output_folder, progress
from largen.experiments.quickstart import CASES, FAST, FULL, TITLES, Quickstart, quickstart
from largen.files import save_dataset, save_figure, save_text
from largen.interrupts import resume_hint


def run_quickstart(folder: Path, fast: bool, console: Console) -> None:
    """Run the quickstart, show its progress and its table, and write its files."""
    make_output_folder(folder, console)
    console.print(
        "Two infinite-width limits of one network (one hidden layer, tanh) that tells odd from "
        "even handwritten digits: the kernel limit and the mean-field limit, in which features are "
        "learned; and how networks of finite width approach them.\n"
    )
    goes_on = "Nothing is saved before the end; with --fast it takes a quarter of a minute."
    with resume_hint(goes_on), progress(console) as report:
        results = quickstart(FAST if fast else FULL, report)
    console.print(_table(results))
    for path in _write(results, folder):
        console.print(f"  {path}")
    console.print(
        f"\nTook {results.seconds:.0f} s. Single networks differ from the limit by fluctuations of "
        "order N^(-1/2), their average over initialisations by a shift of order 1/N: the "
        "exponents in the last row should be near -0.5 and -1. The picture shows the same: "
        "learning curves and outputs close in on the dashed limit, and distances fall along "
        "straight lines."
    )


def _table(results: Quickstart) -> Table:
    table = Table(
        title="Distance of networks from the limit, on test images",
        caption="in brackets: the standard error of the last digits",
    )
    table.add_column("width\nN", justify="right")
    for case in results.comparisons:
        for what in ("one network", "ensemble mean"):
            table.add_column(f"{TITLES[case]}\n{what}", justify="right")
    data = {case: c.to_xarray() for case, c in results.comparisons.items()}
    for width in next(iter(data.values()))["width"].values:
        cells = [str(width)]
        for d in data.values():
            for kind in ("single", "mean"):
                value = float(d[kind].sel(width=width))
                error = float(d[f"{kind}_error"].sel(width=width))
                cells.append(_concise(value, error))
        table.add_row(*cells)
    table.add_section()
    exponents = [c.exponents[k] for c in results.comparisons.values() for k in ("single", "mean")]
    table.add_row("N to the", *map(str, exponents), style="bold")
    return table


def _concise(value: float, error: float) -> str:
    """Return 0.0203(11) for 0.0203 ± 0.0011, and a bound if the value is below its error."""
    if value <= 2 * error:
        return f"< {2 * error:.4f}"
    return f"{value:.4f}({max(1, round(error * 1e4))})"


def _write(results: Quickstart, folder: Path) -> list[Path]:
    from largen.plots import comparison_figure

    picture, numbers, summary = (folder / f"quickstart.{kind}" for kind in ("png", "nc", "json"))
    rows = [
        (TITLES[c], results.comparisons[c].to_xarray(), results.comparisons[c].exponents)
        for c in CASES
    ]
    save_figure(picture, comparison_figure(rows))
    save_dataset(numbers, results.to_datatree())
    save_text(summary, json.dumps(results.summary(), indent=2) + "\n")
    return [picture, numbers, summary]
