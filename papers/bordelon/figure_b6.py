"""Figure B.6: rates and depths without normalisation: learning curves, and the best rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from papers.bordelon import claims as check
from papers.bordelon import dynamics
from papers.bordelon.panels import Grid, Panel, half_octaves, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

TITLE = "branches 1/√L"


def _panels(grid: Grid) -> tuple[Panel, ...]:
    return (Panel(TITLE, "conv", "depth_mup", grid),)


def _curves(settings: Sequence[Panel], found: Found) -> dynamics.Curves:
    """Return curves at every second rate, a factor of two apart."""
    curves = dynamics.by_setting(sweep_of(settings[0], found), "lr", "η₀")
    return dict(list(curves.items())[::2])


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims that curves are alike at all depths, and that the best rate stays."""
    return [
        dynamics.consistent("rate", _curves(settings, found)),
        check.transfers(TITLE, sweep_of(settings[0], found), "depth"),
    ]


def draw(settings: Sequence[Panel], found: Found) -> Any:
    """Draw learning curves."""
    return dynamics.draw([("rates", _curves(settings, found))])


FIGURE = of_sweeps(
    name="001-B6",
    title="Rates and depths without normalisation, batches of 128",
    number="B.6",
    settings=_panels(Grid((64,), (8, 28), half_octaves(-6, -1), 600, batch_size=128, seeds=8)),
    fast=_panels(Grid((32,), (8, 24), half_octaves(-6, -1), 120, batch_size=128, seeds=8)),
    claims=claims,
    draw=draw,
    notes=(
        "the paper's images are those of ImageNet, its network is a ResNet-18 of several depths; "
        "CIFAR-10 and the simplified ResNet of appendix A.1 stand in for them",
        "momentum 0.9 and batches of 128 as there; images of 8 × 8 pixels, 600 steps (paper: 5 "
        "epochs); curves are running means over 20 steps of one network each",
        "8 networks at two depths: 4 networks at three depths had left a claim open",
    ),
)
