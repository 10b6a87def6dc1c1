"""Figure 5: the limit closest to the reference network, at its rate and at a hundredth of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from papers.claims import Claim, above
from papers.golikov import checks
from papers.golikov.parts import curves, ladder
from papers.golikov.series import Series, by_scaling, series
from papers.golikov.setups import LIMITS, SOURCE, Ladder, Setup
from papers.images import Images
from papers.record import Figure, Found, Part


@dataclass(frozen=True)
class Settings:
    """The two setups by name, and the numbers of networks."""

    setups: tuple[tuple[str, Setup], ...]
    how: Ladder


FULL = Settings((("gd", Setup()), ("small rate", Setup(rate=0.0002))), Ladder())
FAST = Settings(
    (
        ("gd", Setup(train=400, test=200)),
        ("small rate", Setup(train=400, test=200, rate=0.0002)),
    ),
    Ladder((128, 256, 512, 1024), 16, 64, 512, 128),
)


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return reference curves, limits and networks at both rates."""
    found = []
    for prefix, setup in settings.setups:
        found += curves(prefix, setup, images, settings.how)
        found += ladder(prefix, setup, images, LIMITS, settings.how)
    return found


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the closest limit at the small rate, and on the size of f_aw.

    The closest limit at the stated rate is in Figure 1.
    """
    (large, _), (small, at_small) = settings.setups
    return [
        checks.closer(found, small, "NTK", "mean field", at_small.rate),
        checks.closer(found, small, "NTK", "intermediate", at_small.rate),
        checks.scatter(found, small),
        _rank(series(found, large, LIMITS[0], settings.how), 2, "at the stated rate"),
        _rank(series(found, small, LIMITS[0], settings.how), 4, "at a hundredth of the rate"),
    ]


def _rank(seen: Series, place: int, when: str) -> Claim:
    """Check the rank of f_aw among the terms of the reference network, 1 for the largest."""
    logs = np.log10(seen.variance[0])  # at the reference width
    aw = seen.terms.index("aw")
    others = np.sort(np.delete(logs, aw, axis=1))[:, ::-1]
    # Distances of f_aw from the next larger term above and the next smaller one below.
    gaps = [others[:, place - 2] - logs[:, aw]] if place > 1 else []
    gaps += [logs[:, aw] - others[:, place - 1]] if place < logs.shape[1] else []
    margin = np.min(gaps, axis=0)
    mean, half = margin.mean(), 2 * margin.std(ddof=1) / np.sqrt(len(margin))
    words = {2: "second-largest", 4: "smallest"}[place]
    return above(
        f"{when} f_aw is the {words} term of the reference network",
        "log10 of its variance's ratio to the nearer neighbour's, positive in that order",
        mean,
        mean - half,
        mean + half,
    )


def draw(settings: Settings, found: Found) -> Any:
    """Draw one row for each rate: final losses, curves, terms in the mean-field scaling."""
    from papers.golikov import panels

    rows = []
    for prefix, setup in settings.setups:
        seen, title = by_scaling(found, prefix, LIMITS, settings.how), f"rate {setup.rate:g}"
        rows.append(
            [
                panels.final_losses(seen, f"final test loss, {title}", limits=(found, prefix)),
                panels.curves(found, prefix),
                panels.terms(seen["mean field"]),
            ]
        )
    return panels.row(FIGURE.title, *rows)


FIGURE = Figure(
    name="004-5",
    title="At a small rate the NTK limit is the closest to the reference network",
    source=SOURCE.format(5),
    images=("cifar10",),
    settings=FULL,
    fast=FAST,
    parts=parts,
    claims=claims,
    draw=draw,
    notes=("terms are drawn in the mean-field scaling only (paper: all three)",),
)
