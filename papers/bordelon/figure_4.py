"""Figure 4: learning curves at several momenta and γ₀ are alike at all depths."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

from papers.bordelon import dynamics
from papers.bordelon.panels import Grid, Panel, of_sweeps, sweep_of
from papers.claims import Claim
from papers.record import Found

GAMMAS = (0.25, 1.0, 2.0)


# log₂ η₀ of all curves. Feature learning makes the kernel grow, so that the largest stable η₀ falls
# nearly as γ₀⁻²: for γ₀ = 2 it is 2⁻³, at which some networks diverge and others do not; γ₀ = 4
# trains with 2⁻⁶ but not with 2⁻⁵ (width 64, depth 8, 400 steps).
LOG2_LR = -5


def _panels(width: int, depths: tuple[int, ...], steps: int) -> tuple[Panel, ...]:
    common = {"widths": (width,), "depths": depths, "steps": steps}
    momenta = Grid(**common, log2_lrs=(LOG2_LR,), momenta=(0.0, 0.5, 0.9))
    # f ∝ 1/γ₀ and η ∝ γ₀²: Table 1.
    rich = tuple(
        Panel(
            f"γ₀ = {gamma:g}",
            "conv",
            "depth_mup",
            Grid(**common, log2_lrs=(LOG2_LR + 2 * log2(gamma),)),
            options=(("gamma", gamma),),
        )
        for gamma in GAMMAS
    )
    return Panel("momentum", "conv", "depth_mup", momenta, "momentum"), *rich


def _curves(settings: Sequence[Panel], found: Found) -> list[tuple[str, dynamics.Curves]]:
    momentum, *rich = settings
    first = dynamics.by_setting(sweep_of(momentum, found), "momentum", "momentum")
    second = {panel.title: dynamics.by_depth(sweep_of(panel, found)) for panel in rich}
    return [("momentum", first), ("γ₀", second)]


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return claims that learning curves differ less between depths than between settings."""
    return [dynamics.consistent(title, curves) for title, curves in _curves(settings, found)]


def draw(settings: Sequence[Panel], found: Found) -> Any:
    """Draw learning curves."""
    return dynamics.draw(_curves(settings, found))


FIGURE = of_sweeps(
    name="001-4",
    title="Learning curves at several momenta and γ₀, at two depths",
    number=4,
    settings=_panels(64, (8, 28), 400),
    fast=_panels(32, (4, 12), 100),
    claims=claims,
    draw=draw,
    notes=(
        "the simplified ResNet of appendix A.1, branches 1/√L, batch 64, images of 8 × 8 pixels",
        "curves are running means over 20 steps",
        "η₀ = 1/32 at every momentum and every γ₀",
    ),
)
