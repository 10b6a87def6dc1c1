"""The best rate on a grid, interpolated, with its confidence interval."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Optimum(NamedTuple):
    """A minimum on a grid of log₂ rates."""

    # at, low, high: log₂ of the rate, and of the ends of its interval; NaN if no rate trained.
    at: float
    low: float
    high: float
    # grid, loss: log₂ of the best rate of the grid, and its mean loss.
    grid: float
    loss: float
    # Whether the minimum is at an end of the grid beyond which the loss may be lower. A rate next
    # to divergence does not count as such an end.
    edge: bool


NOTHING = Optimum(*[np.nan] * 5, edge=False)


def optimum(log2_lr: np.ndarray, losses: np.ndarray) -> Optimum:
    """Return the minimum of the mean loss over seeds.

    Between grid points, the logarithm of the loss is taken as a parabola in the logarithm of the
    rate through the best point and its neighbours. The interval holds every rate whose loss is
    within two standard errors of the best one's, estimated from differences between networks of
    the same seed, and at least half a grid step to either side.
    """
    losses = losses[~np.isnan(losses).all(1)]  # seeds that were trained
    run = ~np.isnan(losses).any(0)
    x, losses = log2_lr[run], losses[:, run]
    mean = losses.mean(0) if losses.size else np.zeros(0)
    sound = np.isfinite(mean)
    if not sound.any():
        return NOTHING
    best = int(np.argmin(np.where(sound, mean, np.inf)))
    at = vertex(x, mean)
    low, high = ((x[best] + x[min(max(j, 0), len(x) - 1)]) / 2 for j in (best - 1, best + 1))
    same = np.flatnonzero(sound & (_excess(losses, best, sound) <= 0))
    edge = (best == 0 or best == len(x) - 1) and len(x) > 1
    return Optimum(
        at,
        float(min(low, at, x[same].min())),
        float(max(high, at, x[same].max())),
        float(x[best]),
        float(mean[best]),
        bool(edge),
    )


def vertex(x: np.ndarray, mean: np.ndarray, reach: float | None = None) -> float:
    """Return where a parabola through the logarithms of losses around the lowest has its minimum.

    ``reach``: how far from the lowest losses are taken, in units of x; its neighbours by default.
    Where fewer than three are finite and positive, the place of the lowest is returned.
    """
    best = int(np.argmin(np.where(np.isfinite(mean), mean, np.inf)))
    places = np.arange(len(x)) - best if reach is None else x - x[best]
    near = np.isfinite(mean) & (mean > 0) & (np.abs(places) <= (reach or 1) + 1e-9)
    if near.sum() < 3:
        return float(x[best])
    a, b, _ = np.polyfit(x[near] - x[best], np.log(mean[near]), 2)
    at = x[best] - b / (2 * a) if a > 0 else x[best]
    return float(np.clip(at, x[near].min(), x[near].max()))


def _excess(losses: np.ndarray, best: int, sound: np.ndarray) -> np.ndarray:
    """Return the excess of the mean difference from the best over two standard errors."""
    seeds = len(losses)
    excess = np.full(losses.shape[1], np.inf)
    excess[best] = 0.0
    if seeds > 1:
        difference = losses[:, sound] - losses[:, [best]]
        error = difference.std(0, ddof=1) / np.sqrt(seeds)
        excess[sound] = difference.mean(0) - 2 * error
    return excess
