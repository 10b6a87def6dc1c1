"""Quasi-random numbers for averages over Gaussian vectors."""

from __future__ import annotations

import numpy as np


def normal_points(count: int, dimensions: int, rng: np.random.Generator) -> np.ndarray:
    """Return scrambled Sobol points as Gaussian vectors, (count, dimension), best a power of 2."""
    from scipy.special import ndtri
    from scipy.stats import qmc  # slow to import

    # The first points of a power of 2 of them, since SciPy warns of other numbers.
    points = qmc.Sobol(dimensions, scramble=True, rng=rng).random_base2((count - 1).bit_length())
    uniform = points[:count]
    tiny = np.finfo(np.float64).eps
    return ndtri(np.clip(uniform, tiny, 1 - tiny))
