"""The lowest point of curves over log₂ of the rate, by parabolas about the lowest rate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

REACH = 2  # rates to either side of the lowest that a parabola is fitted to


class Valleys(NamedTuple):
    """Minima of curves, one entry for each curve."""

    at: np.ndarray  # log₂ of the rate
    loss: np.ndarray
    curves: np.ndarray  # coefficients of the parabolas in x, (curve, 3), the highest power first
    edge: np.ndarray  # whether the lowest rate is an end of the rates

    def at_rate(self, x: float) -> np.ndarray:
        """Return the curves' values at one place."""
        return self.curves @ np.array([x**2, x, 1.0])


def valleys(x: np.ndarray, curves: np.ndarray) -> Valleys:
    """Return the minima of curves (curve, rate) over x = log₂ of the rate.

    A parabola through up to five rates about the lowest, whose errors count exp(−d²/2) at the
    distance d, since curves over many octaves are bent by their steep low side.
    """
    count, rates = curves.shape
    lowest = curves.argmin(1)
    found = np.zeros((count, 3))
    at = x[lowest].astype(float)
    for i in np.unique(lowest):
        own = lowest == i
        near = np.arange(max(0, i - REACH), min(rates, i + REACH + 1))
        z = x[near] - x[i]
        powers = np.stack([z**p for p in range(min(2, len(near) - 1), -1, -1)], 1)
        factor = np.exp(-0.5 * z**2)
        fitted = np.linalg.lstsq(factor[:, None] * powers, factor[:, None] * curves[own][:, near].T)
        a, b, c = np.concatenate([np.zeros((3 - powers.shape[1], own.sum())), fitted[0]])
        bends = a > 0
        place = np.where(bends, -b / np.where(bends, 2 * a, 1.0), 0.0)
        at[own] = x[i] + np.clip(place, z.min(), z.max())
        # in powers of x instead of z = x − x_i
        found[own] = np.stack([a, b - 2 * a * x[i], a * x[i] ** 2 - b * x[i] + c], 1)
    loss = (found * np.stack([at**2, at, np.ones(count)], 1)).sum(1)
    return Valleys(at, loss, found, (lowest == 0) | (lowest == rates - 1))
