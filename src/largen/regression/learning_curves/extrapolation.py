"""Learning curves beyond a pool, from a power law that continues its curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

FEWEST = 16  # samples of a pool whose curve is continued
_ANCHORS, _FIRST = 8, 4  # sizes at which it is fitted, from M/4 to M − 1
_FASTEST = 3.0 + 1e-9  # decay


class PowerLaw(NamedTuple):
    """E(n) = floor + level · n^(−decay), each (output,)."""

    floor: np.ndarray
    level: np.ndarray
    decay: np.ndarray

    def at(self, n: int) -> np.ndarray:
        """Return E(n), (output,)."""
        return self.floor + self.level * float(n) ** -self.decay


def anchors(M: int) -> list[int]:
    """Return the sizes at which the curve of a pool of M samples is fitted."""
    return sorted({int(n) for n in np.geomspace(max(M // _FIRST, 1), M - 1, _ANCHORS)})


def power_law(sizes: list[int] | list[float], errors: np.ndarray, step: float = 0.05) -> PowerLaw:
    """Fit floor ≥ 0, level ≥ 0 and decay to errors (size, output), by their relative errors."""
    slopes = []
    n = np.asarray(sizes, float)
    for curve in errors.T:
        if not curve.any():
            slopes.append((0.0, 0.0, step))
            continue
        known = np.maximum(curve, np.finfo(float).tiny)
        fits = []
        for decay in np.arange(step, _FASTEST, step):
            basis = np.stack([np.ones_like(n), (n / n[0]) ** -decay], axis=1) / known[:, None]
            (floor, level), missed = nnls(basis * known[0], np.ones_like(n))
            fits.append((missed, known[0] * floor, known[0] * level * n[0] ** decay, decay))
        slopes.append(min(fits)[1:])
    return PowerLaw(*np.array(slopes).T)
