"""Figure 3: increments of both weight matrices against the width, and their exponents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from largen.experiments.figures.golikov import checks
from largen.experiments.figures.golikov.figure_1 import FAST, FULL, Settings
from largen.experiments.figures.golikov.parts import ladder
from largen.experiments.figures.golikov.series import predicted_increments, series
from largen.experiments.figures.golikov.setups import LIMITS, SOURCE
from largen.experiments.figures.images import Images
from largen.experiments.figures.record import Claim, Figure, Found, Part


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return networks of all widths; the same as for Figure 1."""
    return ladder("gd", settings.setup, images, LIMITS, settings.how)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return the exponents of both increments in each scaling."""
    steps, how = settings.setup.steps, settings.how
    seen = [series(found, "gd", name, how) for name in LIMITS]
    exponents = [c for one in seen for c in checks.exponents(one, steps, "increments")]
    return [*exponents, *(checks.slowing(one, "δa") for one in seen[1:])]


def draw(settings: Settings, found: Found) -> Any:
    """Draw increments of the output and of the input weights, and the exponents."""
    from largen.plots.widths import COLOURS, exponents_panel, row, sizes_panel

    seen = [series(found, "gd", name, settings.how) for name in LIMITS]

    def sizes(weight: str, title: str) -> Any:
        values = {
            one.scaling: (one.widths, one.increment[..., one.weights.index(weight)]) for one in seen
        }
        return lambda ax: sizes_panel(ax, values, title, "over initial deviation", COLOURS)

    laws = {
        one.scaling: {
            f"δ{w}": (
                one.increment_exponent(w),
                predicted_increments(one.scaling, settings.setup.steps)[w],
            )
            for w in ("a", "w")
        }
        for one in seen
    }
    return row(
        FIGURE.title,
        [
            sizes("a", "output weights, mean |δâ|"),
            sizes("w", "input weights, mean ‖δŵ‖"),
            lambda ax: exponents_panel(ax, laws),
        ],
    )


FIGURE = Figure(
    name="004-3",
    title="Increments of weights are powers of the width",
    source=SOURCE.format(3),
    images=("cifar10",),
    settings=FULL,
    fast=FAST,
    parts=parts,
    claims=claims,
    draw=draw,
    notes=(
        "widths 128 … 2048 (paper: to 65536); what moved features add to δa, smaller by the order "
        "of δw, is still seen there",
    ),
)
