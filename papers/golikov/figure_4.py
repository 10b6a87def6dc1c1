"""Figure 4: the terms of the output against the width, in each scaling."""

from __future__ import annotations

from typing import Any

from papers.claims import Claim
from papers.golikov import checks
from papers.golikov.figure_1 import FAST, FULL, Settings
from papers.golikov.figure_3 import parts
from papers.golikov.series import by_scaling
from papers.golikov.setups import LIMITS, SOURCE
from papers.record import Figure, Found


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the exponents of all terms in each scaling.

    The paper excepts f_∅ of the mean field, which is no power of the width and has a limit.
    """
    steps, how = settings.setup.steps, settings.how
    seen = by_scaling(found, "gd", LIMITS, how)
    laws = {name: seen[name].term_laws(steps) for name in LIMITS}
    del laws["mean field"]["f_∅"]
    exponents = [claim for name in LIMITS for claim in checks.exponents(seen[name], laws[name])]
    return [*exponents, checks.remains(seen["mean field"], "∅")]


def draw(settings: Settings, found: Found) -> Any:
    """Draw one panel for each scaling."""
    from papers.golikov import panels

    seen = by_scaling(found, "gd", LIMITS, settings.how)
    return panels.row(FIGURE.title, [panels.terms(one, name) for name, one in seen.items()])


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
    shares="004-1",
    notes=(
        "widths 128 … 2048 (paper: to 65536); the exponent of f_aw is fitted with a correction in "
        "1/N, while weights that move add to it in the order of δw: where it disagrees it does so "
        "at these widths, and the exponents of neighbouring widths come nearer to the predicted "
        "one",
    ),
)
