"""Claims common to several of these figures.

The thresholds were fixed independently of the results. The best rate transfers if it moves by at
most a factor of two. Networks train if their loss is below that of every
constant output (:meth:`Sweep.trains`). Curves are alike if they differ less between depths than
between settings. If the interval of a number contains the threshold, the verdict is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from largen.sweeps import Sweep
from largen.sweeps.optimum import vertex
from papers.claims import Claim, above, below

STEPS = 1.0  # largest shift of a best rate that transfers, in factors of two
# Distance, in factors of two, up to which rates count as around the best one: both neighbours on a
# grid of factors of two, and six on one of factors √2, which noise of single losses moves less.
AROUND = 1.5
RESAMPLES = 400


def transfers(title: str, swept: Sweep, along: str, *, wanted: bool = True) -> Claim:
    """Check whether the best rate moves along the width, the depth, or both.

    The measured number is the largest distance of the best rate from the base's, in factors of
    two, over all sizes (:func:`_moves`). Its interval ends at the largest of their upper ends, and
    begins at the largest of their lower ends, which are lower the more sizes there are
    (Bonferroni). If networks do not train at any rate, the distance is infinite.
    """
    moves = _moves(swept, along)
    far = max(moves, key=lambda move: move.value)
    low = max(0.0, *(move.value - move.below for move in moves))
    high = max(move.value + move.above for move in moves)
    where = "width and depth" if along == "both" else along
    says = f"{title}: the best rate {'transfers' if wanted else 'does not transfer'} over {where}"
    return (below if wanted else above)(
        says,
        f"largest drift in factors of 2, to width {far.width}, depth {far.depth} (∞: no rate beats "
        "a constant answer)",
        far.value,
        low,
        high,
        STEPS,
    )


class _Move(NamedTuple):
    """A distance of best rates in factors of two, with how far its interval reaches."""

    width: int
    depth: int
    value: float
    below: float
    above: float


def _moves(swept: Sweep, along: str) -> list[_Move]:
    """Return how far the best rate of each size is from the base's.

    The best rate is the vertex of a parabola, fitted to the logarithm of the mean loss around the
    best rate of the grid (:data:`AROUND`). Errors are from resamples of the seeds, the same for
    both sizes, by Student's t, and half a step of the grid for each of the two optima. With one
    seed the error is that of the grid alone.
    """
    from scipy.special import stdtrit

    sizes: dict[str, Any] = {"width": {"depth": [0]}, "depth": {"width": [0]}}.get(along, {})
    trains = swept.best()["trains"].isel(scheme=0)
    losses = swept.data["loss"].isel(scheme=0).transpose("width", "depth", "seed", "lr")
    x, base = np.log2(losses["lr"].values), losses[0, 0].values
    count, rng = len(base), np.random.default_rng(0)
    draws = rng.integers(0, count, (RESAMPLES, count))
    grid = float(np.median(np.diff(x))) / np.sqrt(2)
    part = losses.isel(sizes)
    others = [(n, l) for n in part["width"].values for l in part["depth"].values][1:]
    moves = []
    for width, depth in others:
        at, its = {"width": width, "depth": depth}, part.sel(width=width, depth=depth).values
        if not (bool(trains.sel(at)) and bool(trains[0, 0])):
            moves.append(_Move(width, depth, np.inf, 0.0, 0.0))
            continue
        shifts = [_vertex(x, its[draw]) - _vertex(x, base[draw]) for draw in draws]
        spread = float(np.std(shifts)) * np.sqrt(count / max(count - 1, 1))
        ends = [
            float(np.hypot(grid, stdtrit(count - 1, 1 - level) * spread if count > 1 else 0.0))
            for level in (0.025 / len(others), 0.025)
        ]
        moves.append(_Move(width, depth, abs(_vertex(x, its) - _vertex(x, base)), *ends))
    return moves


def _vertex(x: np.ndarray, losses: np.ndarray) -> float:
    """Return log₂ of the best rate; infinite if training diverges at every rate."""
    mean = losses.mean(0)
    return vertex(x, mean, AROUND) if np.isfinite(mean).any() else np.inf


def less_drift(
    title: str, swept: Sweep, other_title: str, other: Sweep, along: str = "both"
) -> Claim:
    """Check that the best rate moves less over width and depth than under another scheme."""
    own, theirs = (transfers(title, each, along) for each in (swept, other))
    gap = low = high = -np.inf
    if np.isfinite(own.value):
        gap = low = high = theirs.value - own.value
        if np.isfinite(gap):
            low -= float(np.hypot(own.high - own.value, theirs.value - theirs.low))
            high += float(np.hypot(own.value - own.low, theirs.high - theirs.value))
    where = "" if along == "both" else f" over {along}"
    return above(
        f"{title}: the best rate moves less{where} than with {other_title}",
        f"difference of the largest drifts in factors of 2, {theirs.value:.2g} − {own.value:.2g}",
        gap,
        low,
        high,
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
