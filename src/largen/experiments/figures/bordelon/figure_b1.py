"""Figure B.1: at one rate for all, which depth is best for a number of parameters?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from largen.experiments.figures.bordelon.panels import (
    Grid,
    Panel,
    of_sweeps,
    parameters_of,
    sweep_of,
)
from largen.experiments.figures.record import Claim, Found

Curve = tuple[np.ndarray, np.ndarray]


def _panels(
    widths: tuple[int, ...], depths: tuple[int, ...], steps: int, seeds: int
) -> tuple[Panel, ...]:
    return (Panel("1/√L", "conv", "depth_mup", Grid(widths, depths, (-3,), steps, seeds=seeds)),)


def _by_depth(settings: Sequence[Panel], found: Found) -> dict[int, Curve]:
    """Return numbers of parameters and losses, along the width, for each depth."""
    (panel,) = settings
    sizes = parameters_of(panel, found)
    loss = sweep_of(panel, found).data["loss"].isel(scheme=0, lr=0).mean("seed")
    return {
        int(depth): (
            np.array([sizes[int(n), int(depth)] for n in loss["width"].values], float),
            loss.sel(depth=depth).values,
        )
        for depth in loss["depth"].values
    }


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return the best depth at the largest number of parameters that all depths reach."""
    curves = _by_depth(settings, found)
    shared = min(size.max() for size, _ in curves.values())
    at = {depth: _at(curve, shared) for depth, curve in curves.items()}
    best = min(at, key=lambda depth: at[depth])
    wider = [np.all(np.diff(loss) < 0) for _, loss in curves.values()]
    share = float(np.mean(wider))
    return [
        Claim(
            "an intermediate depth is best at a fixed number of parameters",
            f"best depth of {', '.join(map(str, at))} at {shared:.2g} parameters",
            best,
            best,
            best,
            bool(min(at) < best < max(at)),
        ),
        Claim(
            "wider is better at every depth",
            "share of the depths at which the loss falls with every doubling of the width",
            share,
            share,
            share,
            share == 1.0,
        ),
    ]


def _at(curve: Curve, size: float) -> float:
    """Return the loss at a number of parameters, along a straight line of logarithms."""
    return float(np.exp(np.interp(np.log(size), np.log(curve[0]), np.log(curve[1]))))


def draw(settings: Sequence[Panel], found: Found) -> Any:
    """Draw losses against numbers of parameters."""
    from largen.plots.sweeps import tradeoff_figure

    return tradeoff_figure(_by_depth(settings, found))


FIGURE = of_sweeps(
    name="001-B1",
    title="Depth against width at one rate for all",
    number="B.1",
    settings=_panels((16, 32, 64, 128), (4, 8, 16, 32), 300, 2),
    fast=_panels((16, 32, 64), (4, 8, 20), 100, 1),
    claims=claims,
    draw=draw,
    notes=(
        "η₀ = 1/8 for all networks; up to 2 million parameters (paper: 0.046, up to a billion)",
        "the simplified ResNet of appendix A.1, branches 1/√L, images of 8 × 8 pixels, 300 steps",
    ),
)
