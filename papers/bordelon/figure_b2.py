"""Figure B.2: the best rate over width and depth in the standard parameterization."""

from __future__ import annotations

from collections.abc import Sequence

from papers.bordelon import claims as check
from papers.bordelon.panels import Grid, Panel, half_octaves, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

PLAIN, SCALED = "standard", "standard with branches 1/√L"


def _panels(grid: Grid) -> tuple[Panel, ...]:
    return (
        Panel(PLAIN, "conv", "standard", grid),
        Panel(SCALED, "conv", "standard", grid, alpha="1/2"),
    )


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims on whether the best rate moves with width and depth."""
    plain, scaled = (sweep_of(panel, found) for panel in settings)
    return [
        check.transfers(PLAIN, plain, "both", wanted=False),
        check.transfers(PLAIN, plain, "depth", wanted=False),
        check.transfers(SCALED, scaled, "both", wanted=False),
    ]


FIGURE = of_sweeps(
    name="001-B2",
    title="The best rate over width and depth in the standard parameterization",
    number="B.2",
    settings=_panels(Grid((32, 64, 128), (4, 12, 28), half_octaves(-6, 0), 300, seeds=3)),
    fast=_panels(Grid((16, 64), (4, 20), half_octaves(-5.5, -0.5), 120, seeds=4)),
    claims=claims,
    notes=(
        "the simplified ResNet of appendix A.1, without normalisation, gradient descent, batch 64",
        "images of 8 × 8 pixels, 300 steps without augmentation (paper: 32 × 32, 20 epochs)",
        "with branches 1/√L, weights in branches keep the standard rate",
    ),
)
