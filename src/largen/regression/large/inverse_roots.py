"""Roots of inverse kernel matrices of landmarks, as in the Nyström approximation."""

from __future__ import annotations

import numpy as np

_CUT = 1e-12  # eigenvalues below this fraction of the largest count as rounding errors


def inverse_root(matrix: np.ndarray) -> np.ndarray:
    """Return R with RRᵀ = K⁻¹, (landmark, mode), without modes that are rounding errors."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _CUT * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])
