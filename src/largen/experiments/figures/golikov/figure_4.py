"""Figure 4: the terms of the output against the width, in each scaling."""

from __future__ import annotations

from typing import Any

from largen.experiments.figures.golikov import checks
from largen.experiments.figures.golikov.figure_1 import FAST, FULL, Settings
from largen.experiments.figures.golikov.figure_3 import parts
from largen.experiments.figures.golikov.series import Series, series
from largen.experiments.figures.golikov.setups import LIMITS, SOURCE
from largen.experiments.figures.record import Claim, Figure, Found


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return the exponents of all terms in each scaling."""
    steps, how = settings.setup.steps, settings.how
    seen = [series(found, "gd", name, how) for name in LIMITS]
    exponents = [c for one in seen for c in checks.exponents(one, steps)]
    return [*exponents, checks.slowing(seen[0], "∅")]


def variances(one: Series) -> dict[str, Any]:
    """Return widths and variances ``(width, seed)`` of every term, for the picture."""
    return {f"f_{t}": (one.widths, one.variance[..., i]) for i, t in enumerate(one.terms)}


def draw(settings: Settings, found: Found) -> Any:
    """Draw one panel for each scaling."""
    from largen.plots.widths import row, sizes_panel

    seen = [series(found, "gd", name, settings.how) for name in LIMITS]

    def panel(one: Series) -> Any:
        return lambda ax: sizes_panel(ax, variances(one), one.scaling, "variance over test images")

    return row(FIGURE.title, [panel(one) for one in seen])


FIGURE = Figure(
    name="004-4",
    title="Variances of the output's terms against the width",
    source=SOURCE.format(4),
    images=("cifar10",),
    settings=FULL,
    fast=FAST,
    parts=parts,
    claims=claims,
    draw=draw,
    notes=("widths 128 … 2048 (paper: to 65536)",),
)
