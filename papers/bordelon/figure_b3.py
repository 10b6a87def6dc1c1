"""Figure B.3: the best rate can be identified long before the end of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.bordelon import dynamics
from papers.bordelon.panels import Grid, Panel, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

EARLY = 0.3


def _panels(width: int, depths: tuple[int, ...], steps: int) -> tuple[Panel, ...]:
    return (
        Panel("1/√L", "conv", "depth_mup", Grid((width,), depths, (-5, -4, -3, -2, -1), steps)),
    )


def _curves(settings: Sequence[Panel], found: Found) -> dynamics.Curves:
    return dynamics.by_setting(sweep_of(settings[0], found), "lr", "η₀")


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims that curves are alike, and on how early the best rate can be identified."""
    curves = _curves(settings, found)
    steps = settings[0].grid.steps
    moved = []
    for depth in settings[0].grid.depths:
        losses = np.stack([own[depth] for own in curves.values()])
        losses = np.where(np.isfinite(losses), losses, np.inf)
        early, late = losses[:, int(EARLY * losses.shape[1])], losses[:, -1]
        moved.append(abs(int(np.argmin(early)) - int(np.argmin(late))))
    value = float(max(moved))
    return [
        dynamics.consistent("rate", curves),
        Claim(
            "the best rate is determined early in training",
            f"factors of 2 between the best rates after {EARLY:.0%} and all of {steps} steps",
            value,
            value,
            value,
            bool(value <= 1),
        ),
    ]


def draw(settings: Sequence[Panel], found: Found) -> Any:
    """Draw learning curves."""
    return dynamics.draw([("rates", _curves(settings, found))])


FIGURE = of_sweeps(
    name="001-B3",
    title="Learning curves at several rates and depths",
    number="B.3",
    settings=_panels(64, (8, 28), 600),
    fast=_panels(32, (4, 12), 120),
    claims=claims,
    draw=draw,
    notes=(
        "panel (a), the simplified ResNet of appendix A.1; (b) and (c) are of Tiny ImageNet",
        "images of 8 × 8 pixels, batch 64; curves are running means over 20 steps",
    ),
)
