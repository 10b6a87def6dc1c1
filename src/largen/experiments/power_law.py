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
        """Whether an exponent could be fitted."""
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
    enters with its error bar, so that the selection of sizes does not depend on their noise.

    Parameters
    ----------
    sizes, squares, errors
        Sizes, squared distances, and standard errors of the squares, shape ``(size,)``.

    Returns
    -------
    PowerLaw
        The exponent, or NaN if fewer than two squares are larger than twice their error. Its
        error is the larger of the estimates from the error bars and from the scatter about the law.
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


def fit_two_exponents(
    # widths, depths, squares, errors: N (∞ where there is none), L, squared distances and their
    # standard errors, (network,).
    widths: np.ndarray,
    depths: np.ndarray,
    squares: np.ndarray,
    errors: np.ndarray,
    *,
    # Whether the two parts are displacements a Nᵖ u + b L^q v of the same outputs, with unit
    # vectors u and v, so that the square has the term 2 (u·v) a b Nᵖ L^q, too.
    common: bool = False,
) -> tuple[PowerLaw, PowerLaw]:
    """Fit p and q in squares = (a Nᵖ)² + (b L^q)² by weighted least squares.

    NaN for a size with a single value, or if there are fewer resolved squares than parameters.
    """
    from scipy.optimize import least_squares

    usable = np.isfinite(squares) & np.isfinite(errors)
    resolved = usable & (squares > 2 * errors)
    at_width = np.isfinite(widths)
    of_width = len(np.unique(widths[resolved & at_width])) > 1
    of_depth = len(np.unique(depths[resolved])) > 1
    if not (of_width and of_depth):
        some = resolved & ~at_width if (resolved & ~at_width).any() else resolved
        in_depth = fit_exponent(depths[some], squares[some], errors[some]) if of_depth else None
        in_width = fit_exponent(widths[some], squares[some], errors[some]) if of_width else None
        return in_width or PowerLaw(), in_depth or PowerLaw()
    parameters = 5 if common else 4
    if resolved.sum() <= parameters:
        return PowerLaw(), PowerLaw()
    n, l, y, noise = (part[usable] for part in (widths, depths, squares, errors))
    inverse = np.where(np.isfinite(n), n, 1.0)

    def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.where(np.isfinite(n), np.exp(theta[0]) * inverse ** theta[1], 0.0)
        return first, np.exp(theta[2]) * l ** theta[3]

    def law(theta: np.ndarray) -> np.ndarray:
        first, second = parts(theta)
        product = np.tanh(theta[4]) if common else 0.0
        return first**2 + second**2 + 2 * product * first * second

    largest = np.sqrt(np.max(y[np.isfinite(y)]))
    parameters_of = np.array([np.log(largest), -0.5, np.log(largest), -1.0, 0.0][:parameters])
    sigma = np.hypot(noise, 2 * HIGHER_ORDERS * np.abs(y))

    def off(theta: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        return (y - law(theta)) / sigma

    fit = least_squares(off, parameters_of, args=(sigma,))
    for _ in range(REWEIGHTINGS // 4):
        sigma = np.hypot(noise, 2 * HIGHER_ORDERS * np.abs(law(fit.x)))
        fit = least_squares(off, fit.x, args=(sigma,))
    parameters_of = fit.x
    covariance = np.linalg.pinv(fit.jac.T @ fit.jac)
    worst = max(1.0, 2 * fit.cost / max(len(y) - parameters, 1))
    error = np.sqrt(worst * np.diag(covariance))
    return (
        PowerLaw(float(parameters_of[1]), float(error[1]), float(np.exp(parameters_of[0]))),
        PowerLaw(float(parameters_of[3]), float(error[3]), float(np.exp(parameters_of[2]))),
    )
