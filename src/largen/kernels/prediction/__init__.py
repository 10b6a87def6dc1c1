"""Gaussian processes of infinitely wide networks: posteriors, likelihoods, learning rates."""

from largen.kernels.prediction.cross_validation import CrossValidationFit, fit_cross_validation
from largen.kernels.prediction.early_stopping import FlowPosterior, flow_posterior
from largen.kernels.prediction.fit import LikelihoodFit, fit_likelihood
from largen.kernels.prediction.gaussian_process import Posterior, Prediction, posterior
from largen.kernels.prediction.likelihood import LogLikelihood, log_likelihood
from largen.kernels.prediction.rates import (
    TimeScales,
    critical_learning_rate,
    optimal_learning_rate,
    time_scales,
)

__all__ = [
    "CrossValidationFit",
    "FlowPosterior",
    "LikelihoodFit",
    "LogLikelihood",
    "Posterior",
    "Prediction",
    "TimeScales",
    "critical_learning_rate",
    "fit_cross_validation",
    "fit_likelihood",
    "flow_posterior",
    "log_likelihood",
    "optimal_learning_rate",
    "posterior",
    "time_scales",
]
