"""Fits of power laws to a few points with error bars."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# What corrections of higher order may do to a leading power law at finite width, as a relative
# deviation: without it the smallest width, whose statistical error is the smallest, would decide
# the slope alone.
HIGHER_ORDERS = 0.05


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error; prints as ``-0.50 ± 0.02``."""

    value: float
    error: float

    @property
    def resolved(self) -> bool:
        """Whether there is a number at all."""
        return bool(np.isfinite(self.value))

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}" if self.resolved else "–"


UNRESOLVED = Estimate(float("nan"), float("nan"))


def fit_exponent(sizes: np.ndarray, values: np.ndarray, errors: np.ndarray) -> Estimate:
    """Fit p in values ∝ sizesᵖ by weighted least squares of the logarithms.

    Parameters
    ----------
    sizes, values, errors
        Positive sizes, values, and the values' standard errors, shape ``(size,)``. Values that
        are not larger than twice their error are left out.

    Returns
    -------
    Estimate
        The exponent, or NaN if fewer than two points are left. Its error is the larger of what
        the error bars say and what the scatter about the line says.
    """
    keep = np.isfinite(values) & (values > 2 * errors) & (values > 0)
    if keep.sum() < 2:
        return UNRESOLVED
    x, y = np.log(sizes[keep]), np.log(values[keep])
    weights = 1 / ((errors[keep] / values[keep]) ** 2 + HIGHER_ORDERS**2)
    x = x - np.average(x, weights=weights)
    spread = np.sum(weights * x**2)
    slope = np.sum(weights * x * y) / spread
    residual = y - np.average(y, weights=weights) - slope * x
    freedom = len(x) - 2
    scatter = np.sum(weights * residual**2) / freedom if freedom else 0.0
    return Estimate(float(slope), float(np.sqrt(max(scatter, 1.0) / spread)))
