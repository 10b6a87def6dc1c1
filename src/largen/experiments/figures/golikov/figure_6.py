"""Figure 6: minibatches, more samples, more steps."""

from __future__ import annotations

from typing import Any

from largen.experiments.figures.golikov import rows
from largen.experiments.figures.golikov.setups import SOURCE, Ladder, Setup
from largen.experiments.figures.record import Claim, Figure, Found


def _rows(train: int, test: int, more: int, steps: int, how: Ladder) -> rows.Rows:
    plain = Setup(train=train, test=test)
    batch, large = min(100, train // 4), min(1000, more // 2)
    return (
        rows.Row("full batch", plain, how),
        rows.Row(f"batches of {batch}", Setup(train=train, test=test, batch=batch), how),
        rows.Row("more images", Setup(train=more, test=test, batch=large), how),
        rows.Row("ten times the steps", Setup(train=train // 2, test=test, steps=steps), how),
    )


def claims(settings: rows.Rows, found: Found) -> list[Claim]:
    """Return whether exponents stay, and losses converge."""
    same = [rows.alike(settings, found, row) for row in settings[1:3]]
    return [*same, *(claim for row in settings for claim in rows.settles(found, row))]


def draw(settings: rows.Rows, found: Found) -> Any:
    """Draw a row for each setup."""
    return rows.draw_rows(FIGURE.title, settings, found)


FIGURE = Figure(
    name="004-6",
    title="Minibatches, more images, more steps",
    source=SOURCE.format(6),
    images=("cifar10",),
    settings=_rows(1000, 400, 10_000, 500, Ladder((128, 256, 512, 1024), 3)),
    fast=_rows(200, 100, 400, 200, Ladder((128, 256, 512), 3)),
    parts=rows.parts,
    claims=claims,
    draw=draw,
    notes=(
        "more images: all that there are of the two classes, at most 10000, batches of 1000",
        "ten times the steps: 500 on half of the images (paper: on the same)",
        "widths 128 … 1024, 3 networks each (paper: to 65536, 5)",
    ),
)
