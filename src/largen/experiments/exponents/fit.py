"""Fits of a quantity's exponent to samples from networks of several widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from largen.experiments.power_law import PowerLaw, fit_exponent

# A power law and its first correction have three parameters; with fewer widths it is not fitted.
ENOUGH = 4
# Assumed relative size of orders beyond the first correction.
SECOND_ORDERS = 0.01
# A correction is accepted if it moves the exponent by more than this number of standard errors.
SIGNIFICANT = 2.0
# The exponent of an ensemble mean is used if its error is smaller.
CLEAR = 0.15


def exponent(widths: np.ndarray, squares: np.ndarray) -> PowerLaw:
    """Fit q in √⟨square⟩ ∝ N^q, with the leading correction in 1/N where it shows.

    Averages ⟨square⟩, (width, seed), are a squared mean and a variance, of relative order 1/N in
    the simplest case: c²N^(2q)(1 + b/N). If b is significant, the exponent is that of the corrected
    law; otherwise of the pure power law, whose error then includes the possible effect of b. NaN
    for a quantity that is zero or not resolved.
    """
    mean = squares.mean(1)
    noise = squares.std(1, ddof=1) / np.sqrt(squares.shape[1])
    plain = fit_exponent(widths, mean, noise)
    if not plain.resolved or len(widths) < ENOUGH or (mean <= 0).any():
        return plain
    corrected = _correct(widths, mean, noise, plain)
    if corrected is None:
        return plain
    moved = corrected.value - plain.value
    if abs(moved) > SIGNIFICANT * corrected.error:
        return corrected
    return replace(plain, error=float(np.hypot(plain.error, moved)))


def exponent_of_sum(widths: np.ndarray, values: list[np.ndarray]) -> PowerLaw:
    """Fit the exponent of a sum over neurons, separately from its mean and its fluctuations.

    A sum over N neurons is of order N times the mean of its summands or √N times their size,
    whichever is larger (that is what ϰ ∈ [½, 1] says in Golikov's (15)). Where the powers differ,
    the smaller one can dominate up to large widths by its prefactor. The ensemble mean and the
    variance separate them: the larger exponent is returned if both are resolved, otherwise that of
    the root mean square.
    """
    whole = exponent(widths, np.stack([(v**2).mean(1) for v in values]))
    parts = [
        fit_exponent(widths, *map(np.array, zip(*side, strict=True)))
        for side in ([_mean_square(v) for v in values], [_variance(v) for v in values])
    ]
    mean, variance = parts
    square, error = _mean_square(values[-1])
    seen = mean.resolved and variance.resolved and square > 3 * error and mean.error < CLEAR
    if not seen or abs(mean.value - variance.value) < SIGNIFICANT * np.hypot(
        mean.error, variance.error
    ):
        return whole
    return max(parts, key=lambda law: law.value)


def _mean_square(values: np.ndarray) -> tuple[float, float]:
    """Return the square of the ensemble mean, averaged over entries, without bias; its error."""
    seeds = len(values)
    total, squares = values.sum(0), (values**2).sum(0)

    def unbiased(total, squares, count):
        return ((total**2 - squares) / (count * (count - 1))).mean(-1)

    if seeds < 3:
        return float(unbiased(total, squares, seeds)), float("inf")
    without = unbiased(total - values, squares - values**2, seeds - 1)
    error = np.sqrt((seeds - 1) / seeds * ((without - without.mean()) ** 2).sum())
    return float(unbiased(total, squares, seeds)), float(error)


def _variance(values: np.ndarray) -> tuple[float, float]:
    """Return the variance over networks, averaged over entries, and its error."""
    seeds = len(values)
    squares = ((values - values.mean(0)) ** 2).mean(1) * seeds / (seeds - 1)
    return float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(seeds))


def _correct(
    widths: np.ndarray, mean: np.ndarray, noise: np.ndarray, plain: PowerLaw
) -> PowerLaw | None:
    from scipy.optimize import least_squares

    x, ratio = np.log(widths), widths.min() / widths
    logs = np.log(mean)
    sigma = np.hypot(noise / mean, 2 * SECOND_ORDERS)

    def residual(theta):
        slope, offset, correction = theta
        law = 2 * slope * x + offset + np.log1p(np.expm1(correction) * ratio)
        return (logs - law) / sigma

    start = [plain.value, float(np.mean(logs - 2 * plain.value * x)), 0.0]
    # 1 + b·N_min/N at the smallest width is e^correction: positive, and bounded both ways.
    solution = least_squares(residual, start, bounds=([-9, -np.inf, -3], [9, np.inf, 6]))
    if not solution.success:
        return None
    covariance = np.linalg.pinv(solution.jac.T @ solution.jac)
    worst = max(1.0, 2 * solution.cost / (len(widths) - 3))
    slope, offset = map(float, solution.x[:2])
    return PowerLaw(slope, float(np.sqrt(worst * covariance[0, 0])), float(np.exp(offset / 2)))
