"""Figure B.4: layer normalisation in place of branches 1/√L, and in addition to them."""

from __future__ import annotations

from collections.abc import Sequence

from papers.bordelon import claims as check
from papers.bordelon.panels import Grid, Panel, half_octaves, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

PLAIN, MUP, DEPTH_MUP = "μP", "μP, layer norm", "μP with branches 1/√L, layer norm"


def _panels(plain: Grid, grid: Grid) -> tuple[Panel, ...]:
    norm = ("norm", "layer")
    # β = 1/√L at every depth L: the base has 1/√L₀, and the scheme supplies √(L₀/L).
    branch = ("branch", grid.base[1] ** -0.5)
    return (
        Panel(PLAIN, "conv", "mup", plain),
        Panel(MUP, "conv", "mup", grid, options=(norm,)),
        Panel(DEPTH_MUP, "conv", "depth_mup", grid, options=(norm, branch)),
    )


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims on how far the best rate moves with the depth."""
    plain, mup, deep = (sweep_of(panel, found) for panel in settings)
    return [
        check.less_drift(MUP, mup, PLAIN, plain, "depth"),
        check.less_drift(DEPTH_MUP, deep, MUP, mup, "depth"),
        check.transfers(DEPTH_MUP, deep, "depth"),
    ]


FIGURE = of_sweeps(
    name="001-B4",
    title="Layer normalisation: the best rate over depth",
    number="B.4",
    settings=_panels(
        Grid((32,), (4, 12, 28), half_octaves(-6, 1), 300, seeds=8),
        Grid((32,), (4, 12, 28), half_octaves(-5, 0), 300, seeds=14),
    ),
    fast=_panels(
        Grid((16,), (4, 20), half_octaves(-6, 1), 120, seeds=8),
        Grid((16,), (4, 20), half_octaves(-5, 0), 120, seeds=14),
    ),
    claims=claims,
    notes=(
        "one convolution in each block (paper: two, and a Resnet18 stem), β = 1/√L",
        "images of 8 × 8 pixels, 300 steps without augmentation (paper: 32 × 32, 20 epochs)",
        "14 networks in place of 8, and other ways of averaging over them, left the same "
        "claim open",
    ),
)
