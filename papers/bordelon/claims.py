"""Claims common to several of these figures.

The thresholds were fixed independently of the results. The best rate transfers if it moves by at
most one step of the grid, a factor of two. Networks train if their loss is below that of every
constant output (:meth:`Sweep.trains`). Curves are alike if they differ less between depths than
between settings. If the interval of a number contains the threshold, the verdict is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from largen.experiments.claims import Claim, above, below
from largen.sweeps import Sweep

# Largest shift of the best rate, in factors of two, on a grid of factors of two.
STEPS = 1.0


def transfers(title: str, swept: Sweep, along: str, *, wanted: bool = True) -> Claim:
    """Check whether the best rate moves along the width, the depth, or both.

    The measured number is the largest distance of the best rate from the base's, in factors of
    two. Its interval combines those of the two optima, each at least half a step of the grid. If
    networks do not train at any rate, the distance is infinite.
    """
    best = swept.best()
    sizes: dict[str, Any] = {"width": {"depth": 0}, "depth": {"width": 0}}.get(along, {})
    part = best.isel(scheme=0, **sizes)
    base = best.isel(scheme=0, width=0, depth=0)
    drift = abs(part["log2_lr"] - base["log2_lr"]).where(part["trains"], np.inf)
    far = drift.argmax(...)
    value = float(drift.max())
    there = part.isel(far)
    own, other = (float(at["high"] - at["low"]) / 2 for at in (base, there))
    half = float(np.hypot(own, other))
    half = half if np.isfinite(half + value) else 0.0
    low, high = max(value - half, 0.0), value + half
    where = "width and depth" if along == "both" else along
    says = f"{title}: the best rate {'transfers' if wanted else 'does not transfer'} over {where}"
    return (below if wanted else above)(
        says,
        f"largest drift in factors of 2, to width {int(there['width'])}, depth "
        f"{int(there['depth'])} (∞: no rate beats a constant answer)",
        value,
        low,
        high,
        STEPS,
    )


def less_drift(title: str, swept: Sweep, other_title: str, other: Sweep) -> Claim:
    """Check that the best rate moves less over width and depth than under another scheme."""
    own, theirs = (transfers(title, each, "both") for each in (swept, other))
    gap, half = -np.inf, 0.0
    if np.isfinite(own.value):
        gap = theirs.value - own.value
        half = float(np.hypot(own.high - own.value, theirs.high - theirs.value))
        half = half if np.isfinite(gap) else 0.0
    return above(
        f"{title}: the best rate moves less than with {other_title}",
        f"difference of the largest drifts in factors of 2, {theirs.value:.2g} − {own.value:.2g}",
        gap,
        gap - half,
        gap + half,
    )


def alike(title: str, curves: Sequence[np.ndarray], spread: Sequence[np.ndarray]) -> Claim:
    """Check that learning curves differ less between depths than between settings.

    Differences are root mean squares, over pairs and steps, of the logarithm of the loss. The
    threshold is equality, at which the depth matters as much as the setting. If at some setting
    networks of some depths diverge and others do not, the difference is infinite.

    Parameters
    ----------
    title
        The quantity that is varied.
    curves
        For each setting, losses ``(depth, step)``; infinite for networks that diverge.
    spread
        For each depth, losses ``(setting, step)``.
    """

    def difference(blocks: Sequence[np.ndarray]) -> float:
        logs = [np.log(block) for block in blocks]
        pairs = [log[i] - log[j] for log in logs for i, j in combinations(range(len(log)), 2)]
        return float(np.sqrt(np.mean(np.square(pairs))))

    sound = all(np.isfinite(block).all() for block in curves)
    ratio = difference(curves) / difference(spread) if sound else np.inf
    return Claim(
        f"learning curves are alike at all depths, {title} by {title}",
        "rms difference of log loss between depths, divided by that between settings",
        ratio,
        ratio,
        ratio,
        ratio < 1,
    )
