"""``largen figure``: the paper's figure, computed here, and what came of its claims."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from largen.cli.work import make_folder, progress
from largen.errors import LargenError
from largen.experiments.figures import FIGURES, Produced, figure, find_images, produce


def list_figures(console: Console) -> None:
    """Print the names of all figures."""
    table = Table(show_header=False, box=None)
    for name, (_, words) in FIGURES.items():
        table.add_row(name, words)
    console.print(table)


def run_figure(name: str, data: str | None, folder: Path, fast: bool, console: Console) -> None:
    """Compute a figure, show its progress and its claims, and say where its files are."""
    try:
        wanted = figure(name)
        images = {each: find_images(each, data) for each in wanted.images}
    except LargenError as error:
        console.print(str(error))
        raise typer.Exit(2) from None
    make_folder(folder, console)
    console.print(f"{wanted.source}\n{wanted.title}\n")
    for each, found in images.items():
        if found.name != each:
            console.print(f"Not {each}, but {found.name}: the paper's claims are about {each}.\n")
    with progress(console) as report:
        done = produce(wanted, images, folder, fast=fast, report=report)
    _print(done, console)


def _print(done: Produced, console: Console) -> None:
    console.print("The paper's claims, and what came out (intervals of 95 %):\n")
    for claim in done.claims:
        verdict = {True: "agrees   ", False: "DISAGREES", None: "unclear  "}[claim.agrees]
        console.print(f"{verdict}  {claim.says}", style="bold" if claim.agrees is False else None)
        number = f"{claim.value:.4g} ({claim.low:.4g} … {claim.high:.4g})"
        console.print(f"           {claim.measured}: {number}")
    console.print()
    for note in done.notes:
        console.print(f"  {note}")
    for path in done.files:
        console.print(f"  {path}")
    again = f", {done.resumed} parts read from disk" if done.resumed else ""
    console.print(f"\nTook {done.seconds:.0f} s{again}.")
