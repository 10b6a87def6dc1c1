r"""The mean of replicates, its standard error, and an interval that knows how few they are.

The standard error s/√n of n replicates is itself uncertain: (mean − value)/(s/√n) has Student's
distribution with n − 1 degrees of freedom, so that the interval of 95 % is ± 3.2 standard errors
for four replicates, and ± 2.0 for many. An interval of standard errors s/√n and other errors e,
which do not depend on the number of replicates, is

    √(t² s²/n + z² e²),    t, z: the quantiles of Student's and of the normal distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

GROWTH = 4  # replicates become at most so many times as many at once: their error is an estimate
LEVEL = 0.95  # probability of an interval
NORMAL = float(ndtri((1 + LEVEL) / 2))  # z, its half in standard errors that are known


def mean_and_error(values: np.ndarray) -> tuple[Any, Any]:
    """Return the mean over the first axis, and its standard error; NaN for a single value."""
    count = len(values)
    with np.errstate(invalid="ignore", over="ignore"):
        if count == 1:
            return values.mean(0), np.full(values.shape[1:], np.nan)
        return values.mean(0), values.std(0, ddof=1) / count**0.5


class Sums:
    """Sums of arrays and of their squares, for the mean of more arrays than memory holds."""

    def __init__(self) -> None:
        self.count, self.sum, self.squares = 0, np.zeros(()), np.zeros(())

    def add(self, x: np.ndarray) -> None:
        """Add an array."""
        self.count, self.sum, self.squares = self.count + 1, self.sum + x, self.squares + x**2

    @property
    def mean(self) -> np.ndarray:
        """The mean."""
        return self.sum / self.count

    @property
    def sample_variance(self) -> np.ndarray:
        """The variance of one array."""
        excess = np.maximum(self.squares / self.count - self.mean**2, 0)
        return excess * self.count / (self.count - 1)

    @property
    def error(self) -> np.ndarray:
        """The standard error of the mean."""
        return np.sqrt(self.sample_variance / self.count)


def widening(count: Any) -> Any:
    """Return by how much an interval of few replicates is wider than that of many, t/z ≥ 1."""
    return stdtrit(np.maximum(count - 1, 1), (1 + LEVEL) / 2) / NORMAL


def replicates_for(rtol: float, count: int, error: float, most: int) -> int:
    """Return the number of replicates whose interval is that of an error ``rtol`` that is known.

    ``count``, ``error``: the number of replicates that there are, and the relative standard error
    of their mean. At most ``most`` are returned.
    """
    if not np.isfinite(error) or widening(count) * error <= rtol:
        return count
    more = np.arange(count + 1, max(most, count) + 1)
    enough = widening(more) * error * np.sqrt(1.1 * count / more) <= rtol
    return int(more[np.argmax(enough)] if enough.any() else max([count, *more[-1:]]))


def margin(error: np.ndarray, random: np.ndarray, count: int) -> np.ndarray:
    """Return half of the interval of a mean.

    ``error``, ``random``: its error, and the part of it that is the standard error over ``count``
    replicates.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        wider = (widening(count) ** 2 - 1) * random**2
        return NORMAL * np.sqrt(error**2 + wider)


def relative(errors: np.ndarray, values: np.ndarray) -> float:
    """Return |error|/|value| over all entries; NaN if the error of a finite value is not known."""
    unknown = np.isnan(errors) & np.isfinite(values)
    return np.nan if unknown.any() else ratio(errors, values)


def ratio(errors: np.ndarray, values: np.ndarray) -> float:
    """Return the norm of the errors over that of the values; 0/0 is 0."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        above, below = np.sqrt(np.nansum(errors**2)), np.sqrt(np.nansum(values**2))
        return float(above / below) if above else 0.0
