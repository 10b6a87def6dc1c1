"""``python -m papers``: a paper's figure, computed here, and what came of its claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from largen.cli.work import ending_in_order, make_output_folder, progress
from largen.errors import LargenError
from largen.interrupts import resume_hint
from papers import FIGURES, Produced, figure, find_images, produce
from papers.claims import Claim, tally

console = Console(highlight=False)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compute(
    name: Annotated[
        str | None, typer.Argument(help="Such as 004-1; without it, all are listed.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Folder of your copy of the images (cifar10.npz, mnist.npz); by default "
            "LARGEN_DATA, or ./data. 'digits' takes scikit-learn's."
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for picture, numbers, and parts to resume."),
    ] = Path("figures"),
    fast: Annotated[
        bool, typer.Option("--fast", help="Less data and fewer networks: quicker.")
    ] = False,
) -> None:
    """A figure of a paper: data, picture, and what came of the paper's claims."""
    if name is None:
        list_figures(console)
        return
    with ending_in_order():
        run_figure(name, data, output, fast, console)


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
    make_output_folder(folder, console)
    console.print(f"{wanted.source}\n{wanted.title}\n")
    for each, found in images.items():
        if found.name != each:
            console.print(f"Not {each}, but {found.name}: the paper's claims are about {each}.\n")
    goes_on = f"Finished parts are in {folder}: the same command resumes from them."
    with resume_hint(goes_on), progress(console) as report:
        done = produce(wanted, images, folder, fast=fast, report=report)
    others = [found.name for each, found in images.items() if found.name != each]
    _print(done, others, console)


# Words and colours of verdicts, on the paper's own data and on other data.
ON_ITS_DATA = {
    True: ("agrees", "green"),
    False: ("disagrees", "bold red"),
    None: ("unclear", "yellow"),
}
ON_OTHER_DATA = {
    True: ("holds here", "green"),
    False: ("does not hold here", ""),
    None: ("unclear here", ""),
}
ALTERNATIVE = {
    True: ("alternative holds", "bold red"),
    False: ("alternative refuted", "green"),
    None: ("alternative unclear", "yellow"),
}


def _print(done: Produced, others: list[str], console: Console) -> None:
    """Print the claims with their verdicts, a count of these, notes, and the names of files."""
    console.print("The paper's claims, and what came out (in brackets: intervals of 95 %):\n")
    words = ON_OTHER_DATA if others else ON_ITS_DATA
    for claim in done.claims:
        verdict, colour = (ALTERNATIVE if claim.whose == "alternative" else words)[claim.agrees]
        console.print(Text.assemble((f"{verdict}: ", colour), claim.says))
        console.print(Text(f"    {claim.measured}: {_number(claim)}"))
    count = tally(done.claims)
    if others:
        count += f" on {', '.join(others)}, of which the paper says nothing"
    console.print(f"\n{count}\n")
    for note in done.notes:
        console.print(f"  {note}")
    for path in done.files:
        console.print(f"  {path}")
    again = f", {done.resumed} parts read from disk" if done.resumed else ""
    console.print(f"\nTook {done.seconds:.0f} s of processor time{again}.")


def _number(claim: Claim) -> str:
    """Return the measured number with its interval, in words where there is none."""
    if not math.isfinite(claim.value):
        return "not resolved"
    if claim.low == claim.high:
        return f"{claim.value:.3g}"
    return f"{claim.value:.3g} ({claim.low:.3g} … {claim.high:.3g})"
