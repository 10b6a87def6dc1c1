"""``largen transfer demo``: tune a small network and train a large one with its rate, on digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from largen.cli.audit import audit
from largen.cli.work import make_output_folder, progress
from largen.errors import LargenError
from largen.files import save_figure

app = typer.Typer(help="Hyperparameter transfer in width and depth.", no_args_is_help=True)


@app.callback()
def transfer() -> None:
    """Hyperparameter transfer in width and depth."""


app.command()(audit)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(
        "transfer-demo"
    ),
    fast: Annotated[bool, typer.Option("--fast", help="Smaller networks: seconds.")] = False,
    jobs: Annotated[int, typer.Option(help="Cores; −1 for all.")] = 1,
) -> None:
    """Tune a small network, train a large one with its rate, and check how activations scale."""
    console = Console(highlight=False)
    make_output_folder(output, console)
    try:
        run_demo(output, fast, jobs, console)
    except (ModuleNotFoundError, LargenError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None


def run_demo(folder: Path, fast: bool, jobs: int, console: Console) -> None:
    """Run the demonstration, print its results, and draw its pictures."""
    from largen.sweeps.transfer_demo import FAST, FULL, transfer_demo

    settings = FAST if fast else FULL
    with progress(console) as report:
        found = transfer_demo(settings, report, jobs)
    (n, depth), (large_n, large_depth) = settings.base, settings.target
    console.print(
        "A residual MLP without normalisation learns scikit-learn's digits by gradient descent, "
        f"{settings.steps} steps.\n\n"
        f"1. Tune small: width {n}, depth {depth}, {len(settings.lrs)} rates. "
        f"The best is {found.lr:g}.\n\n"
        f"2. Train large: width {large_n}, depth {large_depth}, at that rate."
    )
    table = Table(box=None)
    for title in ("scheme", "loss at the small one's rate", "best loss", "at the rate"):
        table.add_column(title, justify="left" if title == "scheme" else "right")
    for scheme, (here, best, lr) in found.losses().items():
        table.add_row(scheme, _loss(here), _loss(best), f"{lr:g}")
    console.print(table)
    console.print("\nWhat depth-μP does to the large one's weights:")
    console.print(str(found.plan), markup=False, soft_wrap=True)
    console.print(
        "\n3. Check: how what four steps change grows with the size, on logarithmic scales. "
        "Where hyperparameters transfer, slopes are near 0."
    )
    table = Table(box=None)
    for title in ("scheme", "change of", "slope in width", "slope in depth"):
        table.add_column(title, justify="right" if "slope" in title else "left")
    for scheme, layers in found.slopes().items():
        for layer, (in_width, in_depth) in layers.items():
            table.add_row(scheme, layer, _slope(in_width), _slope(in_depth))
    console.print(table)
    for path in _draw(found, folder):
        console.print(f"  {path}")
    console.print(f"\nTook {found.seconds:.0f} s.")


def _loss(value: float) -> str:
    return f"{value:.3g}" if value < float("inf") else "diverges"


def _slope(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < float("inf") else "diverges"


def _draw(found, folder: Path) -> list[Path]:
    from largen.plots.sweeps import sweep_figure

    small, large = folder / "small.png", folder / "large.png"
    found.tuned.plot(small)
    save_figure(large, sweep_figure(found.large.data, found.large.best(), found.lr))
    return [small, large]
