"""Figure 7: ten classes instead of two."""

from __future__ import annotations

from papers.golikov.rows import Row, Rows, figure
from papers.golikov.setups import Ladder, Setup


def _rows(train: int, test: int, more: int, steps: int, how: Ladder) -> Rows:
    digits = {"images": "mnist", "classes": None, "test": test}
    return (
        Row("two classes of CIFAR-10", Setup(train=train, test=test), how, elsewhere=True),
        Row("MNIST", Setup(**digits, train=train), how, alike=True),
        Row("MNIST, longer", Setup(**digits, train=more, batch=100, steps=steps), how),
    )


FIGURE = figure(
    7,
    "Ten classes instead of two",
    images=("cifar10", "mnist"),
    rows=_rows(1000, 400, 2000, 300, Ladder((128, 256, 512, 1024), 3)),
    fast=_rows(200, 100, 400, 50, Ladder((128, 256, 512, 1024), 16)),
    notes=(
        "longer: 300 steps on 2000 images (paper: 6000 on 60000)",
        "widths 128 … 1024, 3 networks each (paper: to 65536, 5)",
    ),
)
