"""Figure 3: vision transformers under Adam, with and without normalisation, with schedules."""

from __future__ import annotations

from collections.abc import Sequence

from papers.bordelon import claims as check
from papers.bordelon.panels import Grid, Panel, half_octaves, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found


def _panels(grid: Grid, plain: Grid) -> tuple[Panel, ...]:
    """Return the panels with a grid, and a grid of its own for networks without normalisation."""
    warmup = grid.steps // 10
    norm = (("norm", True),)

    def vit(
        title: str, scheme: str, options: tuple = (), cosine: bool = False, grid: Grid = grid
    ) -> Panel:
        return Panel(title, "vit", scheme, grid, "adam", options, warmup=warmup, cosine=cosine)

    return (
        vit("branches 1/√L", "depth_mup", grid=plain),
        vit("branches 1/√L, layer norm", "depth_mup", norm),
        vit("μP, layer norm", "mup", norm),
        vit("branches 1/√L, cosine", "depth_mup", cosine=True),
    )


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims on whether best rates move, and whether the depth reduces the loss."""
    return [check.transfers(p.title, sweep_of(p, found), "both") for p in settings]


FIGURE = of_sweeps(
    name="001-3",
    title="Vision transformers under Adam",
    number=3,
    settings=_panels(*2 * (Grid((16, 32), (2, 8), half_octaves(-10, -4), 200, seeds=3),)),
    fast=_panels(
        Grid((16, 32), (2, 8), half_octaves(-9, -4.5), 80, 32, seeds=5),
        Grid((16, 32), (2, 8), half_octaves(-9, -4.5), 80, 32, seeds=8),
    ),
    claims=claims,
    notes=(
        "panels (a) to (d); ImageNet, (e) and (f), is out of a laptop's reach",
        "CIFAR-10 of 8 × 8 pixels, patches of 2 × 2, two heads, a tenth of the steps of warm-up "
        "(paper: Tiny ImageNet)",
        "queries start at zero, logits are scaled by 1/N_q relative to the base (appendix A.3)",
    ),
)
