"""Common parts of long-running commands: a folder for files, a progress bar, interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from largen.errors import InvalidInput
from largen.files import make_folder

INTERRUPTED = 130  # exit code of a command that Ctrl-C has ended


class Commands(TyperGroup):
    """Commands that report an interrupt in one line, and how to continue."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with ending_in_order():
            return super().invoke(ctx)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Report an interrupt in one line on the standard error, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        words = " ".join(["Interrupted.", *getattr(stopped, "__notes__", [])])
        Console(stderr=True, highlight=False, soft_wrap=True).print(escape(words))
        raise typer.Exit(INTERRUPTED) from None


def make_output_folder(folder: Path, console: Console) -> None:
    """Make the folder of ``--output``, or print why that fails and exit."""
    try:
        make_folder("--output", folder)
    except InvalidInput as error:
        console.print(str(error))
        raise typer.Exit(2) from None


@contextmanager
def progress(console: Console) -> Iterator[Callable[[str, float], None]]:
    """Show a bar, or a line for each activity where there is no terminal, as in a file.

    The function that is yielded is called with the current activity and the finished fraction.
    """
    if not console.is_terminal:
        yield _stages(console)
        return
    columns = (TextColumn("{task.description:<46}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("starting", total=1.0)
        yield lambda text, done: bars.update(bar, description=text, completed=done)


def _stages(console: Console) -> Callable[[str, float], None]:
    """Return a function that prints the activity whenever it changes."""
    last = [""]

    def report(text: str, done: float) -> None:
        if text != last[0]:
            last[0] = text
            console.print(f"{done:4.0%}  {text}", markup=False)
            console.file.flush()

    return report
