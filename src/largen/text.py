"""Text for people: rows of cells, their columns aligned."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(cells: Sequence[Sequence[str]], *, ruled: bool = True) -> list[str]:
    """Return rows of text with aligned columns, with a line under the first if ``ruled``."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells]
    if ruled:
        lines.insert(1, "  ".join("-" * w for w in widths))
    return lines
