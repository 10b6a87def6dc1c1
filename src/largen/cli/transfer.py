"""``largen transfer``: audits of models."""

from __future__ import annotations

import typer

from largen.cli.audit import audit

app = typer.Typer(help="Hyperparameter transfer in width and depth.", no_args_is_help=True)


@app.callback()
def transfer() -> None:
    """Hyperparameter transfer in width and depth."""


app.command()(audit)
