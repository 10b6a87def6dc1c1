"""``largen figure``: runs ``papers``, which is part of the repository but not of the library."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import typer
from rich.console import Console

import largen


def run_figure(words: Sequence[str], console: Console) -> None:
    """Run ``python -m papers`` with these arguments, or print where the figures are and exit."""
    clone = next((root for root in _roots() if (root / "papers" / "command.py").is_file()), None)
    if clone is None:
        console.print(
            "Figures of papers are not part of the installed library, but of its repository: in a "
            f"clone of it run `{' '.join(['python -m papers', *words])}`."
        )
        raise typer.Exit(2)
    if str(clone) not in sys.path:
        sys.path.insert(0, str(clone))
    import_module("papers.command").app(list(words), prog_name="largen figure")


def _roots() -> Iterator[Path]:
    """Return possible places of a clone: around the imported library, and the working directory."""
    yield Path(largen.__file__).resolve().parents[2]
    yield Path.cwd()
