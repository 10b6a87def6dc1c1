"""``largen transfer audit``: plans and slopes of a builder's models, or of stock models."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from largen.errors import InvalidInput, LargenError


def audit(
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
        found = _audit(
            console, builder, base or ["width=64", "depth=2"], model, every, limit, output,
            {"scheme": scheme, "optimizer": optimizer, "lr": lr, "seeds": seeds},
        )  # fmt: skip
    except (ModuleNotFoundError, LargenError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None
    if output is None:
        console.print(str(found), markup=False, soft_wrap=True)
    else:
        console.print(f"{found.summary()}: {output}", markup=False)
    if found.count("not flat"):
        raise typer.Exit(1)


def _audit(
    console: Console, builder: str | None, base: list[str], model: list[str] | None, every: bool,
    limit: float | None, output: Path | None, options: dict[str, Any],
) -> Any:  # fmt: skip
    """Return the table, which is also in the output's file."""
    from largen.transfer.audits import Audit
    from largen.transfer.torch.auditing import audit as audit_one
    from largen.transfer.torch.auditing import audit_stock

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
    row = audit_one(make, _sizes(base), name=name, **options)
    found = Audit((row,), f"{options['scheme']}, {options['optimizer']}")
    if output is not None:
        found.save(output)
    return found


def _builder(text: str) -> Any:
    """Return a function, given the names of its module and of the function."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidInput(f"builder: wanted package.module:function, got {text!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
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
