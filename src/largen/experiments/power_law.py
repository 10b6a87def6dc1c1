"""Fits of power laws to a few points with error bars."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# What corrections of higher order may do to a leading power law at finite width, as a relative
# deviation: without it the smallest width, whose statistical error is the smallest, would decide
# the slope alone.
HIGHER_ORDERS = 0.05
REWEIGHTINGS = 20


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law amplitude · sizeᵛᵃˡᵘᵉ; prints its exponent as ``-0.50 ± 0.02``.

    Attributes
    ----------
    value, error
        The exponent and its standard error; NaN where nothing could be fitted.
    amplitude
        The law's value at size 1.
    """

    value: float = float("nan")
    error: float = float("nan")
    amplitude: float = float("nan")

    @property
    def resolved(self) -> bool:
        """Whether there is a number at all."""
        return bool(np.isfinite(self.value))

    def at(self, sizes: np.ndarray) -> np.ndarray:
        """Return the law's values."""
        return self.amplitude * sizes**self.value

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}" if self.resolved else "–"


def fit_exponent(sizes: np.ndarray, squares: np.ndarray, errors: np.ndarray) -> PowerLaw:
    """Fit p in squares ∝ sizes²ᵖ by weighted least squares.

    The squares themselves are fitted, not the logarithms of their roots: an unbiased estimate
    of a square that is not resolved scatters about its small value, and may be negative. It
    counts with its error bar, so that no size is chosen for how its noise came out.

    Parameters
    ----------
    sizes, squares, errors
        Sizes, squared distances, and standard errors of the squares, shape ``(size,)``.

    Returns
    -------
    PowerLaw
        The exponent, or NaN if fewer than two squares are larger than twice their error. Its
        error is the larger of what the error bars say and what the scatter about the law says.
    """
    usable = np.isfinite(squares) & np.isfinite(errors)
    resolved = usable & (squares > 2 * errors)
    if resolved.sum() < 2:
        return PowerLaw()
    start = np.polyfit(np.log(sizes[resolved]), np.log(squares[resolved]), 1)
    x, y, noise = np.log(sizes[usable]), squares[usable], errors[usable]

    parameters = start
    covariance, worst = np.zeros((2, 2)), 1.0
    for _ in range(REWEIGHTINGS):
        # Gauss-Newton for y ≈ exp(slope·x + offset), weighted by the errors about the law.
        law = np.exp(np.polyval(parameters, x))
        sigma = np.hypot(noise, 2 * HIGHER_ORDERS * law)
        jacobian = law[:, None] * np.stack([x, np.ones_like(x)], 1) / sigma[:, None]
        residual = (y - law) / sigma
        step = np.linalg.lstsq(jacobian, residual, rcond=None)[0]
        parameters = parameters + np.clip(step, -1, 1)
        covariance = np.linalg.pinv(jacobian.T @ jacobian)
        worst = max(1.0, float(residual @ residual) / max(len(x) - 2, 1))
    error = float(np.sqrt(worst * covariance[0, 0])) / 2
    return PowerLaw(float(parameters[0]) / 2, error, float(np.exp(parameters[1] / 2)))
