"""Figure 5: which limit is close to the reference network, at its rate and at a hundredth of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.experiments.figures.golikov import checks
from largen.experiments.figures.golikov.figure_4 import variances
from largen.experiments.figures.golikov.parts import curves, ladder
from largen.experiments.figures.golikov.series import loss_curves, series
from largen.experiments.figures.golikov.setups import LIMITS, SOURCE, Ladder, Setup
from largen.experiments.figures.images import Images
from largen.experiments.figures.record import Claim, Figure, Found, Part


@dataclass(frozen=True)
class Settings:
    """The two setups, by what they are called, and how many networks."""

    setups: tuple[tuple[str, Setup], ...]
    how: Ladder


FULL = Settings((("gd", Setup()), ("small rate", Setup(rate=0.0002))), Ladder())
FAST = Settings(
    (
        ("gd", Setup(train=400, test=200)),
        ("small rate", Setup(train=400, test=200, rate=0.0002)),
    ),
    Ladder((128, 256, 512, 1024), 3, 16, 512, 32),
)


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return reference curves, limits and networks at both rates."""
    found = []
    for prefix, setup in settings.setups:
        found += curves(prefix, setup, images, settings.how)
        found += ladder(prefix, setup, images, LIMITS, settings.how)
    return found


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return which limit is closer at which rate, and what becomes of f_aw."""
    (large, at_large), (small, at_small) = settings.setups
    return [
        checks.closer(found, large, "mean field", "NTK", at_large.rate),
        checks.closer(found, large, "mean field", "intermediate", at_large.rate),
        checks.closer(found, small, "NTK", "mean field", at_small.rate),
        checks.closer(found, small, "NTK", "intermediate", at_small.rate),
        *checks.scatter(found, small),
        _share(settings, found, large, second=True),
        _share(settings, found, small, second=False),
    ]


def _share(settings: Settings, found: Found, prefix: str, *, second: bool) -> Claim:
    """Check the rank of f_aw among the terms of the reference network."""
    seen = series(found, prefix, LIMITS[0], settings.how)
    variance = seen.variance[0]  # at the reference width
    aw, rest = seen.terms.index("aw"), [i for i, t in enumerate(seen.terms) if t != "aw"]
    logs = np.log10(
        variance[:, [aw]] / np.sort(variance[:, rest], axis=1)[:, [-2 if second else 0]]
    )
    mean, half = logs.mean(), 2 * logs.std(ddof=1) / np.sqrt(len(logs))
    if second:
        says = "at the stated rate f_aw is the second-largest term of the reference network"
        measured, agrees = "its variance over that of the second-largest other one, log10", mean > 0
    else:
        says = "at a hundredth of the rate f_aw is the smallest term of the reference network"
        measured, agrees = "its variance over that of the smallest other one, log10", mean < 0
    return Claim(says, measured, mean, mean - half, mean + half, bool(agrees))


def draw(settings: Settings, found: Found) -> Any:
    """Draw a row for each rate: final losses, curves, terms in the mean-field scaling."""
    from largen.plots.widths import loss_curves_panel, loss_panel, row, sizes_panel

    rows = []
    for prefix, setup in settings.setups:
        seen = {name: series(found, prefix, name, settings.how) for name in LIMITS}
        lines = loss_curves(found, prefix)
        losses = {n: [*zip(s.widths, s.loss, strict=True)] for n, s in seen.items()}
        limits = {name: lines[name]["loss"].values[:, -1].mean() for name in LIMITS}
        curve = {name: data["loss"].values for name, data in lines.items()}
        terms = {n: variances(one) for n, one in seen.items()}["mean field"]
        rows.append(
            [
                lambda ax, a=losses, b=limits, s=setup: loss_panel(
                    ax, a, b, f"final test loss, rate {s.rate:g}"
                ),
                lambda ax, a=curve: loss_curves_panel(ax, a),
                lambda ax, a=terms: sizes_panel(
                    ax, a, "terms in the mean-field scaling", "variance over test images"
                ),
            ]
        )
    return row(FIGURE.title, *rows)


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
