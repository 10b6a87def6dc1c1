"""Figure B.1: the best depth at a given number of parameters, with one rate for all networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.bordelon.panels import (
    Grid,
    Panel,
    of_sweeps,
    parameters_of,
    sweep_of,
)
from papers.claims import Claim, above
from papers.record import Found

Curve = tuple[np.ndarray, np.ndarray]


def _panels(
    widths: tuple[int, ...], depths: tuple[int, ...], steps: int, seeds: int
) -> tuple[Panel, ...]:
    return (Panel("1/√L", "conv", "depth_mup", Grid(widths, depths, (-3,), steps, seeds=seeds)),)


def _by_depth(settings: Sequence[Panel], found: Found) -> dict[int, Curve]:
    """Return, for each depth, numbers of parameters (width,) and losses (seed, width)."""
    (panel,) = settings
    sizes = parameters_of(panel, found)
    loss = sweep_of(panel, found).data["loss"].isel(scheme=0, lr=0).transpose(..., "seed", "width")
    return {
        int(depth): (
            np.array([sizes[int(n), int(depth)] for n in loss["width"].values], float),
            loss.sel(depth=depth).values,
        )
        for depth in loss["depth"].values
    }


def claims(settings: Sequence[Panel], found: Found) -> list[Claim]:
    """Return the claim on the best depth at the largest number of parameters that all depths reach.

    The loss at the best intermediate depth is compared, seed by seed, with the lower of the losses
    at the smallest and the largest depth. With one seed there is no interval and the verdict is
    open.
    """
    curves = _by_depth(settings, found)
    shared = min(size.max() for size, _ in curves.values())
    at = {depth: _at(curve, shared) for depth, curve in curves.items()}
    first, *between, last = sorted(at, key=float)
    inner, outer = (min(depths, key=lambda d: at[d].mean()) for depths in (between, (first, last)))
    gap = np.log(at[outer] / at[inner])
    low, high = interval(gap)
    wider = [np.all(np.diff(loss.mean(0)) < 0) for _, loss in curves.values()]
    share = float(np.mean(wider))
    return [
        above(
            "an intermediate depth is best at a fixed number of parameters",
            f"log of the loss of depth {outer} over that of depth {inner}, of "
            f"{', '.join(map(str, at))} at {shared:.2g} parameters",
            float(gap.mean()),
            low,
            high,
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


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of a mean over seeds, by Student's t; infinite for one seed.

    Examples
    --------
    >>> interval(np.array([1.0]))
    (-inf, inf)
    >>> [round(end, 2) for end in interval(np.array([1.0, 2.0, 3.0]))]
    [-0.48, 4.48]
    """
    from scipy.special import stdtrit

    if len(values) == 1:
        return -np.inf, np.inf
    half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def _at(curve: Curve, size: float) -> np.ndarray:
    """Return losses (seed,) at a number of parameters, by linear interpolation of logarithms."""
    sizes, losses = np.log(curve[0]), np.log(curve[1])
    return np.exp([np.interp(np.log(size), sizes, own) for own in losses])


def draw(settings: Sequence[Panel], found: Found) -> Any:
    """Draw losses against numbers of parameters."""
    from papers.bordelon.pictures import tradeoff_figure

    curves = _by_depth(settings, found)
    return tradeoff_figure({depth: (n, loss.mean(0)) for depth, (n, loss) in curves.items()})


FIGURE = of_sweeps(
    name="001-B1",
    title="Depth against width at one rate for all",
    number="B.1",
    settings=_panels((16, 32, 64, 128), (4, 8, 16, 32), 300, 12),
    fast=_panels((16, 32, 64), (4, 8, 20), 100, 12),
    claims=claims,
    draw=draw,
    notes=(
        "η₀ = 1/8 for all networks; up to 2 million parameters (paper: 0.046, up to a billion)",
        "the simplified ResNet of appendix A.1, branches 1/√L, images of 8 × 8 pixels, 300 steps",
    ),
)
