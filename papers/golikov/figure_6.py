"""Figure 6: minibatches, more samples, more steps."""

from __future__ import annotations

from dataclasses import replace

from papers.golikov.rows import Row, Rows, figure
from papers.golikov.setups import Ladder, Setup


def _rows(train: int, test: int, more: int, steps: int, how: Ladder) -> Rows:
    batch, large = min(100, train // 4), min(1000, more // 2)
    plain = Setup(train=train, test=test)
    return (
        Row("full batch", plain, how),
        Row(f"batches of {batch}", replace(plain, batch=batch), how, alike=True),
        Row("more images", replace(plain, train=more, batch=large), how, alike=True),
        Row("ten times the steps", replace(plain, train=train // 2, steps=steps), how),
    )


FIGURE = figure(
    6,
    "Minibatches, more images, more steps",
    images=("cifar10",),
    rows=_rows(1000, 400, 10_000, 500, Ladder((128, 256, 512, 1024), 3)),
    fast=_rows(200, 100, 400, 200, Ladder((128, 256, 512), 16)),
    notes=(
        "more images: all that there are of the two classes, at most 10000, batches of 1000",
        "ten times the steps: 500 on half of the images (paper: on the same)",
        "widths 128 … 1024, 3 networks each (paper: to 65536, 5)",
    ),
)
