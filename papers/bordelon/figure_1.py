"""Figure 1: the best rate of a residual network over width and depth, μP against depth-μP."""

from __future__ import annotations

from collections.abc import Sequence

from papers.bordelon import claims as check
from papers.bordelon.panels import Grid, Panel, half_octaves, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

MUP, DEPTH_MUP = "μP", "μP with branches 1/√L"


def _panels(grid: Grid) -> tuple[Panel, ...]:
    return Panel(MUP, "conv", "mup", grid), Panel(DEPTH_MUP, "conv", "depth_mup", grid)


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims on whether the best rate moves with width and depth."""
    mup, deep = (sweep_of(panel, found) for panel in settings)
    return [
        check.transfers(MUP, mup, "width"),
        check.transfers(MUP, mup, "depth", wanted=False),
        check.transfers(DEPTH_MUP, deep, "both"),
    ]


FIGURE = of_sweeps(
    name="001-1",
    title="The best rate over width and depth: μP, and μP with branches 1/√L",
    number=1,
    settings=_panels(Grid((32, 64, 128), (4, 12, 28), half_octaves(-5, 0), 300, seeds=3)),
    fast=_panels(Grid((16, 32), (4, 20), half_octaves(-6, 0), 120, seeds=8)),
    claims=claims,
    notes=(
        "the simplified ResNet of appendix A.1, without normalisation, gradient descent, batch 64",
        "images of 8 × 8 pixels, 300 steps without augmentation (paper: 32 × 32, 20 epochs)",
        "widths 32 … 128, depths 4 … 28 (paper: to 512 and 30); average pooling",
    ),
)
