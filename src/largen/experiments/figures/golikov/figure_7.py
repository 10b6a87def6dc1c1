"""Figure 7: ten classes instead of two."""

from __future__ import annotations

from typing import Any

from largen.experiments.figures.golikov import rows
from largen.experiments.figures.golikov.setups import SOURCE, Ladder, Setup
from largen.experiments.figures.record import Claim, Figure, Found


def _rows(train: int, test: int, more: int, steps: int, how: Ladder) -> rows.Rows:
    digits = {"images": "mnist", "classes": None, "test": test}
    return (
        rows.Row("two classes of CIFAR-10", Setup(train=train, test=test), how),
        rows.Row("MNIST", Setup(**digits, train=train), how),
        rows.Row("MNIST, longer", Setup(**digits, train=more, batch=100, steps=steps), how),
    )


def claims(settings: rows.Rows, found: Found) -> list[Claim]:
    """Return whether exponents stay, and losses converge."""
    same = rows.alike(settings, found, settings[1])
    return [same, *(claim for row in settings for claim in rows.settles(found, row))]


def draw(settings: rows.Rows, found: Found) -> Any:
    """Draw a row for each setup."""
    return rows.draw_rows(FIGURE.title, settings, found)


FIGURE = Figure(
    name="004-7",
    title="Ten classes instead of two",
    source=SOURCE.format(7),
    images=("cifar10", "mnist"),
    settings=_rows(1000, 400, 2000, 300, Ladder((128, 256, 512, 1024), 3)),
    fast=_rows(200, 100, 400, 50, Ladder((128, 256, 512), 3)),
    parts=rows.parts,
    claims=claims,
    draw=draw,
    notes=(
        "longer: 300 steps on 2000 images (paper: 6000 on 60000)",
        "widths 128 … 1024, 3 networks each (paper: to 65536, 5)",
    ),
)
