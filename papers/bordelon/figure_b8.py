"""Figure B.8: learning curves at several weight decays are alike at all depths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.bordelon import dynamics
from papers.bordelon.panels import Grid, Panel, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

DECAYS = (0.0, 0.01, 0.03, 0.1)


def _panels(width: int, depths: tuple[int, ...], steps: int) -> tuple[Panel, ...]:
    grid = Grid((width,), depths, (-3,), steps, weight_decays=DECAYS)
    return (Panel("1/√L", "conv", "depth_mup", grid),)


def _curves(settings: Sequence[Panel], found: Found) -> dynamics.Curves:
    return dynamics.by_setting(sweep_of(settings[0], found), "weight_decay", "λ₀")


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims that curves differ less between depths than decays, and on the best decay."""
    loss = sweep_of(settings[0], found).data["loss"].isel(scheme=0, width=0, seed=0, lr=0)
    best = loss.transpose("depth", "weight_decay").values.argmin(1)
    moved = float(np.max(np.abs(best - best[0])))
    return [
        dynamics.consistent("weight decay", _curves(settings, found)),
        Claim(
            "the best weight decay is the same at all depths",
            "by how many of the grid's values it moves",
            moved,
            moved,
            moved,
            moved == 0,
        ),
    ]


def draw(settings: Sequence[Panel], found: Found) -> Any:
    """Draw learning curves."""
    return dynamics.draw([("weight decay", _curves(settings, found))])


FIGURE = of_sweeps(
    name="001-B8",
    title="Learning curves at several weight decays and depths",
    number="B.8",
    settings=_panels(64, (4, 12, 28), 400),
    fast=_panels(32, (4, 12), 120),
    claims=claims,
    draw=draw,
    notes=(
        "the simplified ResNet of appendix A.1, branches 1/√L, batch 64, images of 8 × 8 pixels",
        "coupled weight decay, whose factor depth-μP takes from the rate: ηλ is kept",
    ),
)
