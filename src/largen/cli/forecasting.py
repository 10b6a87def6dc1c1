"""``largen forecast`` and ``largen monitor``: forecasts from tables of losses, and runs in logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from largen.errors import InvalidInput, LargenError

REFUSED = 1  # exit code of a forecast that is not to be trusted, and of a run with an alarm


def run_forecast(
    table: Path,
    size: float,
    save: Path | None,
    picture: Path | None,
    columns: list[str],
    console: Console,
) -> None:
    """Print the forecast of a table of pilots, and keep it."""
    from largen.sweeps import Pilots

    with _errors_in_words(console):
        pilots = Pilots.from_table(table, _named(columns))
        found = pilots.forecast(size, throw=False)
        console.print(escape(str(found)), soft_wrap=True)
        if save is not None:
            found.save(save)
        if picture is not None:
            found.plot(picture)
    if found.reasons:
        raise typer.Exit(REFUSED)


def run_monitor(
    forecast: Path, log: Path, lr: float, picture: Path | None, columns: list[str], console: Console
) -> None:
    """Print the verdict on a run's log."""
    import largen as lg
    from largen.sweeps import Forecast
    from largen.sweeps.tables import columns_of

    with _errors_in_words(console):
        wide = lg.load(forecast)
        if not isinstance(wide, Forecast):
            raise InvalidInput(f"forecast: {str(forecast)!r} holds no forecast.")
        rows = columns_of("log", log, ("step", "loss"), _named(columns))
        found = wide.monitor(rows, lr)
        console.print(escape(str(found)), soft_wrap=True)
        if picture is not None:
            found.plot(picture)
    if found.alarm is not None:
        raise typer.Exit(REFUSED)


def _named(columns: list[str]) -> dict[str, str]:
    """Return what columns are called, from texts such as size=d_model."""
    pairs = [text.partition("=") for text in columns]
    if any(not (name and called) for name, _, called in pairs):
        raise InvalidInput(f"--column: wanted pairs such as size=d_model, got {columns}.")
    return {name: called for name, _, called in pairs}


@contextmanager
def _errors_in_words(console: Console) -> Iterator[None]:
    try:
        yield
    except LargenError as error:
        console.print(escape(str(error)), soft_wrap=True)
        raise typer.Exit(2) from None
