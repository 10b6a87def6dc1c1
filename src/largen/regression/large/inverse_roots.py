"""Roots of inverse kernel matrices of landmarks, as in the Nyström approximation."""

from __future__ import annotations

import numpy as np

_CUT = 1e-12  # eigenvalues below this fraction of the largest count as rounding errors


def inverse_root(matrix: np.ndarray) -> np.ndarray:
    """Return R with RRᵀ = K⁻¹, (landmark, mode), without modes that are rounding errors.

    Examples
    --------
    >>> root = inverse_root(np.diag([4.0, 1.0, 0.0]))
    >>> (root @ root.T).round(12).tolist()
    [[0.25, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _CUT * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])
