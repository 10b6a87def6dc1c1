"""Figure 3: increments of both weight matrices against the width, and their exponents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papers.claims import Claim
from papers.golikov import checks
from papers.golikov.figure_1 import FAST, FULL, Settings
from papers.golikov.parts import ladder
from papers.golikov.series import by_scaling
from papers.golikov.setups import LIMITS, SOURCE
from papers.images import Images
from papers.record import Figure, Found, Part


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return networks of all widths, which are those of Figure 1."""
    return ladder("gd", settings.setup, images, LIMITS, settings.how)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the exponents of both increments in each scaling."""
    steps, how = settings.setup.steps, settings.how
    seen = by_scaling(found, "gd", LIMITS, how)
    return [
        *(
            c
            for name in LIMITS
            for c in checks.exponents(seen[name], seen[name].increment_laws(steps))
        ),
        *(checks.straight(seen[name], weight) for name in LIMITS for weight in "aw"),
    ]


def draw(settings: Settings, found: Found) -> Any:
    """Draw increments of the output and of the input weights, and the exponents."""
    from papers.golikov import panels

    steps, how = settings.setup.steps, settings.how
    seen = by_scaling(found, "gd", LIMITS, how)
    laws = {name: one.increment_laws(steps) for name, one in seen.items()}
    return panels.row(
        FIGURE.title,
        [
            panels.increments(seen, "a", "output weights, mean |δâ|"),
            panels.increments(seen, "w", "input weights, mean ‖δŵ‖"),
            panels.exponents(laws),
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
    shares="004-1",
    notes=(
        "widths 128 … 2048 (paper: to 65536); what moved features add to δa, smaller by the order "
        "of δw, is still seen there, and changes the exponent of δa where features stand still",
    ),
)
