"""Figure 1: test loss against width, exponents of the terms, dynamics against limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papers.claims import Claim, above
from papers.golikov import checks
from papers.golikov.parts import curves, diverging, ladder
from papers.golikov.series import by_scaling
from papers.golikov.setups import LIMITS, SOURCE, Ladder, Setup
from papers.images import Images
from papers.record import Figure, Found, Part

SCALINGS = (*LIMITS, "default")


@dataclass(frozen=True)
class Settings:
    """The reference network, and the numbers of networks."""

    setup: Setup
    how: Ladder


FULL = Settings(Setup(), Ladder())
FAST = Settings(Setup(train=400, test=200), Ladder((128, 256, 512, 1024, 2048), 216, 288, 512, 576))


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return reference curves, limits, and networks of all widths and scalings."""
    setup, how = settings.setup, settings.how
    return [
        *curves("gd", setup, images, how),
        *ladder("gd", setup, images, SCALINGS, how),
        diverging("gd", setup, images, how),
    ]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return the claims on the three panels; exponents of the limits' terms are in Figure 4."""
    setup, how = settings.setup, settings.how
    seen = by_scaling(found, "gd", SCALINGS, how)
    near = [
        checks.closer(found, "gd", "mean field", other, setup.rate)
        for other in ("NTK", "intermediate")
    ]
    law, _ = seen["default"].term_laws()["f_a"]
    low, high = checks.interval(law)
    diverges = above(
        "default: some exponents are positive",
        "exponent of f_a",
        law.value,
        low,
        high,
    )
    return [
        *near,
        *(checks.approach(seen[name], found, "gd") for name in LIMITS),
        checks.divergence(seen["default"], _far(found, how)),
        checks.scatter(found, "gd"),
        diverges,
    ]


def _far(found: Found, how: Ladder) -> tuple[int, Any]:
    return how.far, found["gd/default, far"]["loss"].values


def draw(settings: Settings, found: Found) -> Any:
    """Draw the three panels."""
    from papers.golikov import panels

    setup, how = settings.setup, settings.how
    seen, far = by_scaling(found, "gd", SCALINGS, how), {"default": _far(found, how)}
    laws = {name: one.term_laws(setup.steps) for name, one in seen.items()}
    return panels.row(
        FIGURE.title,
        [
            panels.final_losses(seen, far=far, limits=(found, "gd")),
            panels.exponents(laws),
            panels.curves(found, "gd"),
        ],
    )


FIGURE = Figure(
    name="004-1",
    title="One hidden layer: networks of each scaling, and the limits beside the reference network",
    source=SOURCE.format(1),
    images=("cifar10",),
    settings=FULL,
    fast=FAST,
    parts=parts,
    claims=claims,
    draw=draw,
    notes=(
        "widths 128 … 2048, of the default scaling 32768 too (paper: to 65536); limits are solved, "
        "not networks of the largest width",
        "test loss on 400 images of the two classes (paper: 2000)",
    ),
)
