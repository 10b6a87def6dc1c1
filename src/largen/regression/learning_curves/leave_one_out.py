"""Errors that a training set says of itself: leave-one-out, and generalised cross-validation."""

from __future__ import annotations

import numpy as np

from largen.regression.learning_curves.pool import Pool

_ROUNDING = 1e-8  # of a projector's diagonal: rows on which it does not act


def leave_one_out(pool: Pool, ridge: float) -> np.ndarray:
    """Return the mean squared error of predicting each sample from all others, (output,).

    With B = (K + δ)⁻¹ it is the mean of (By)_i²/B_ii² (Wahba 1990, §4.2): no refit is needed. Of a
    singular kernel without a ridge, the limit δ → 0 is taken: B is the projector on the modes with
    eigenvalue 0, and for samples on which it does not act the inverse on the other modes.
    """
    missed, weight = _missed(pool, _inverse(pool.values, ridge))
    if ridge == 0 and pool.rank < pool.size:
        learned = pool.values > 0
        others = np.where(learned, 1 / np.where(learned, pool.values, 1), 0)
        rows = weight < _ROUNDING
        missed[rows], weight[rows] = (each[rows] for each in _missed(pool, others))
    return np.mean((missed / weight[:, None]) ** 2, axis=0)


def _missed(pool: Pool, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return By, (sample, output), and B_ii."""
    return pool.vectors @ (inverse[:, None] * pool.amplitudes), pool.squares @ inverse


def generalised(pool: Pool, ridge: float) -> np.ndarray:
    """Return the error by generalised cross-validation, in which B_ii is replaced by its mean.

    Golub, Heath and Wahba (1979); the kernel alignment risk estimator of Jacot et al. (2020). It
    takes all samples to be alike, so that its ratio to the leave-one-out error says how far they
    are from it.
    """
    inverse = _inverse(pool.values, ridge)
    return len(inverse) * np.sum((inverse[:, None] * pool.amplitudes) ** 2, 0) / inverse.sum() ** 2


def _inverse(values: np.ndarray, ridge: float) -> np.ndarray:
    """Return 1/(w + δ) up to a factor, or its limit."""
    if ridge == 0 and (values == 0).any():
        return (values == 0).astype(float)
    return values[-1] / values if ridge == 0 else 1 / (values + ridge)
