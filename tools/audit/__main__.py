"""``python -m tools.audit``: plans and slopes of a builder's models, or of stock models."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from largen.cli.work import ending_in_order
from largen.errors import InvalidInput, LargenError
from tools.audit import Audit, audit, audit_stock

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def command(
    builder: Annotated[
        str | None,
        typer.Argument(help="package.module:function of sizes; stock models if none."),
    ] = None,
    base: Annotated[
        list[str] | None, typer.Option(help="A size of the builder's base, such as width=64.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A stock model's name, or the beginning of names.")
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="All that transformers has.")] = False,
    scheme: Annotated[str, typer.Option(help="complete_p, depth_mup, mup …")] = "complete_p",
    optimizer: Annotated[str, typer.Option(help="adam, adamw, sgd …")] = "adam",
    lr: Annotated[float, typer.Option(help="The base's rate.")] = 2e-3,
    seeds: Annotated[int, typer.Option(help="Networks of each size.")] = 4,
    limit: Annotated[
        float | None, typer.Option(help="Seconds that a stock model may take.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The table's file, .md or .csv.")
    ] = None,
) -> None:
    """Check whether models have a plan, and whether their outputs change alike at all sizes."""
    console = Console(highlight=False)
    try:
        with ending_in_order():
            table = _table(
                console, builder, base or ["width=64", "depth=2"], model, every, limit, output,
                {"scheme": scheme, "optimizer": optimizer, "lr": lr, "seeds": seeds},
            )  # fmt: skip
    except LargenError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None
    if output is None:
        console.print(str(table), markup=False, soft_wrap=True)
    else:
        console.print(f"{table.summary()}: {output}", markup=False)
    if table.count("not flat"):
        raise typer.Exit(1)


def _table(
    console: Console, builder: str | None, base: list[str], model: list[str] | None, every: bool,
    limit: float | None, output: Path | None, options: dict[str, Any],
) -> Audit:  # fmt: skip
    """Return the table, which is also in the output's file."""
    if builder is None:
        return audit_stock(
            model,
            every=every,
            save=output,
            limit=limit,
            progress=lambda row: console.print(row, markup=False),
            **options,
        )
    make, name = _builder(builder), builder.partition(":")[2]
    row = audit(make, _sizes(base), name=name, **options)
    table = Audit((row,), f"{options['scheme']}, {options['optimizer']}")
    if output is not None:
        table.save(output)
    return table


def _builder(text: str) -> Any:
    """Return a function, given the names of its module and of the function."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidInput(f"builder: wanted package.module:function, got {text!r}.")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"builder: {text!r} was not found: {error}.") from None


def _sizes(base: list[str]) -> dict[str, int]:
    sizes = {}
    for text in base:
        key, equals, number = text.partition("=")
        if not (equals and number.isdecimal()):
            raise InvalidInput(f"base: wanted sizes such as width=64, got {text!r}.")
        sizes[key] = int(number)
    return sizes


if __name__ == "__main__":
    app(prog_name="python -m tools.audit")
