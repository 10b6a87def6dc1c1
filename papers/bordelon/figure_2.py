"""Figure 2: normalisation in place of branches 1/√L, and in addition to them."""

from __future__ import annotations

from collections.abc import Sequence

from papers.bordelon import claims as check
from papers.bordelon.panels import Grid, Panel, half_octaves, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

MUP, DEPTH_MUP = "μP, batch norm", "μP with branches 1/√L, batch norm"


def _panels(grid: Grid) -> tuple[Panel, ...]:
    norm = ("norm", "batch")
    # β = 3/√L at every depth L: the base has 3/√L₀, and the scheme supplies √(L₀/L).
    branch = ("branch", 3 * grid.base[1] ** -0.5)
    return (
        Panel(MUP, "conv", "mup", grid, options=(norm,)),
        Panel(DEPTH_MUP, "conv", "depth_mup", grid, options=(norm, branch)),
    )


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims on whether the best rate moves with width and depth."""
    mup, deep = (sweep_of(panel, found) for panel in settings)
    return [
        check.less_drift(DEPTH_MUP, deep, MUP, mup),
        check.transfers(DEPTH_MUP, deep, "both"),
    ]


FIGURE = of_sweeps(
    name="001-2",
    title="Batch normalisation: the best rate over width and depth",
    number=2,
    settings=_panels(Grid((32, 64), (4, 12, 28), half_octaves(-5, 0), 300, seeds=3)),
    fast=_panels(Grid((16, 32), (4, 20), half_octaves(-6, -0.5), 120, seeds=5)),
    claims=claims,
    notes=(
        "one convolution in each block (paper: two, and a Resnet18 stem), β = 3/√L as there",
        "images of 8 × 8 pixels, 300 steps without augmentation (paper: 32 × 32, 20 epochs)",
    ),
)
