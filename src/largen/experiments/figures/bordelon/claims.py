"""Claims that several of these figures make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from largen.experiments.figures.record import Claim
from largen.experiments.sweeps import Sweep

# Factors of two by which the best rate may move on a grid of factors of two.
STEPS = 1.0


def transfers(title: str, swept: Sweep, along: str, *, wanted: bool = True) -> Claim:
    """Check how far the best rate moves along the width, the depth, or both.

    Its largest distance from the base's, in factors of two; the interval is that of the two
    optima. Where networks do not train at any rate, it is infinite.
    """
    best = swept.best()
    sizes: dict[str, Any] = {"width": {"depth": 0}, "depth": {"width": 0}}.get(along, {})
    part = best.isel(scheme=0, **sizes)
    base = best.isel(scheme=0, width=0, depth=0)
    drift = abs(part["log2_lr"] - base["log2_lr"]).where(part["trains"], np.inf)
    far = drift.argmax(...)
    value = float(drift.max())
    there = part.isel(far)
    half = float(base["high"] - base["low"]) / 2 + float(there["high"] - there["low"]) / 2
    half = half if np.isfinite(half) else 0.0
    where = "width and depth" if along == "both" else along
    says = f"{title}: the best rate {'transfers' if wanted else 'does not transfer'} over {where}"
    return Claim(
        says,
        f"largest drift in factors of 2, to width {int(there['width'])}, depth "
        f"{int(there['depth'])} (∞: does not train)",
        value,
        max(value - half, 0.0),
        value + half,
        bool((value <= STEPS) == wanted),
    )


def less_drift(title: str, swept: Sweep, other_title: str, other: Sweep) -> Claim:
    """Check that the best rate moves less over width and depth than under another scheme."""
    own, theirs = (transfers(title, each, "both").value for each in (swept, other))
    gap = theirs - own if np.isfinite(own) else -np.inf
    return Claim(
        f"{title}: the best rate moves less than with {other_title}",
        f"difference of the largest drifts in factors of 2, {theirs:.2g} − {own:.2g}",
        gap,
        gap,
        gap,
        bool(gap > 0),
    )


def trainable_rates(title: str, swept: Sweep, other_title: str, than: Sweep) -> Claim:
    """Check that fewer of the deepest networks diverge than under another scheme."""
    own, other = _sound(swept), _sound(than)
    return Claim(
        f"{title}: deep networks train at more rates than with {other_title}",
        "share of the rates at which the deepest networks train, minus the other scheme's",
        own - other,
        own - other,
        own - other,
        bool(own > other),
    )


def alike(title: str, curves: Sequence[np.ndarray], spread: Sequence[np.ndarray]) -> Claim:
    """Check that learning curves of several depths are closer than those of several settings.

    Parameters
    ----------
    title
        What was varied.
    curves
        For each setting, losses ``(depth, step)``.
    spread
        For each depth, losses ``(setting, step)``.
    """

    def range_of(blocks: Sequence[np.ndarray]) -> float:
        logs = [np.log(np.where(np.isfinite(block), block, np.nan)) for block in blocks]
        return float(np.nanmean([np.nanmax(log, 0) - np.nanmin(log, 0) for log in logs]))

    ratio = range_of(curves) / range_of(spread)
    return Claim(
        f"learning curves are alike at all depths, {title} by {title}",
        "mean range of log loss over depths, divided by that over settings",
        ratio,
        ratio,
        ratio,
        bool(ratio < 0.5),
    )


def _sound(swept: Sweep) -> float:
    loss = swept.data["loss"].isel(scheme=0, depth=-1)
    return float((loss < swept.data.attrs["chance"]).mean())
