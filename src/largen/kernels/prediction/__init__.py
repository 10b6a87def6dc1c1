"""Gaussian processes of infinitely wide networks: posteriors, likelihoods, learning rates."""

from largen.kernels.prediction.posterior import Posterior, Prediction, posterior
from largen.kernels.prediction.rates import (
    TimeScales,
    critical_learning_rate,
    optimal_learning_rate,
    time_scales,
)

__all__ = [
    "Posterior",
    "Prediction",
    "TimeScales",
    "critical_learning_rate",
    "optimal_learning_rate",
    "posterior",
    "time_scales",
]
