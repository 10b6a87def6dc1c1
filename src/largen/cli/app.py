"""The command line: ``largen quickstart``, ``read``, ``forecast``, ``monitor``, ``info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import largen
from largen.cli.work import Commands

PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray", "torch")

console = Console(highlight=False)
app = typer.Typer(
    cls=Commands,
    help="Large-N limits of neural networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> bool:
    if wanted:
        console.print(f"largen {largen.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def largen_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Large-N limits of neural networks."""


@app.command()
def info() -> None:
    """Print the versions of largen and its dependencies, and the devices."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import jax
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row("largen", largen.__version__)
    table.add_row("python", platform.python_version())
    for name in PACKAGES:
        try:
            table.add_row(name, version(name))
        except PackageNotFoundError:
            table.add_row(name, "not installed")
    for device in jax.devices():
        table.add_row("device", str(device))
    console.print(table)


@app.command()
def quickstart(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the picture and the numbers.")
    ] = Path("quickstart"),
    fast: Annotated[
        bool, typer.Option("--fast", help="Fewer networks: quicker, with wider error bars.")
    ] = False,
) -> None:
    """Compare theory with networks on handwritten digits, in a table and a figure."""
    from largen.cli.quickstart import run_quickstart

    run_quickstart(output, fast, console)


@app.command()
def read(
    model: Annotated[
        str,
        typer.Argument(
            help="module:factory, a function from a width to a torch.nn.Module, or a module; "
            "with --apply a function of a key and the width, which makes parameters in JAX."
        ),
    ],
    shape: Annotated[
        str, typer.Option("--input", "-i", help="The shape of a sample, such as 3,32,32.")
    ],
    widths: Annotated[
        str, typer.Option("--widths", help="Two widths at which the model is built.")
    ] = "32,64",
    check: Annotated[
        bool, typer.Option("--check", help="Draw the model at three widths and compare.")
    ] = False,
    apply: Annotated[
        str, typer.Option("--apply", help="module:function of parameters and samples, in JAX.")
    ] = "",
) -> None:
    """Print which infinitely wide network a model in PyTorch or JAX is, with which constants."""
    from largen.cli.reading import run_read

    run_read(model, shape, widths, check, apply, console)


Columns = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", help="What a column is called, such as size=d_model."),
]


@app.command()
def forecast(
    pilots: Annotated[
        Path,
        typer.Argument(help="A CSV file with the columns size, lr, seed, step and loss of pilots."),
    ],
    size: Annotated[float, typer.Option("--size", "-n", help="The size of the wide model.")],
    save: Annotated[
        Path | None, typer.Option("--save", "-o", help="A file for largen monitor and lg.load.")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="A file for the picture.")] = None,
    column: Columns = None,
) -> None:
    """Forecast the losses of a wide model from those of narrow ones; ends with 1 if refused."""
    from largen.cli.forecasting import run_forecast

    run_forecast(pilots, size, save, picture, column or [], console)


@app.command()
def monitor(
    forecast: Annotated[Path, typer.Argument(help="The file that largen forecast --save wrote.")],
    log: Annotated[Path, typer.Argument(help="A CSV file with the columns step and loss.")],
    lr: Annotated[float, typer.Option("--lr", help="The rate of the run, at the base shape.")],
    picture: Annotated[Path | None, typer.Option("--plot", help="A file for the picture.")] = None,
    column: Columns = None,
) -> None:
    """Compare the losses of a run with their forecast; ends with 1 if it is another model."""
    from largen.cli.forecasting import run_monitor

    run_monitor(forecast, log, lr, picture, column or [], console)
