"""Gaussian processes of infinitely wide networks: posteriors, likelihoods, learning rates."""

from largen._submodules import submodules
from largen.regression.cross_validation import CrossValidationFit, fit_cross_validation
from largen.regression.early_stopping import FlowPosterior, flow_posterior
from largen.regression.fit import LikelihoodFit, fit_likelihood
from largen.regression.gaussian_process import Posterior, Prediction, posterior
from largen.regression.given_kernels import (
    KernelPosterior,
    flow_posterior_from_kernel,
    posterior_from_kernel,
)
from largen.regression.learning_curves import LearningCurve, learning_curve
from largen.regression.likelihood import LogLikelihood, log_likelihood
from largen.regression.rates import (
    TimeScales,
    critical_learning_rate,
    optimal_learning_rate,
    time_scales,
)
from largen.regression.ridge import RidgeError, ridge_test_error

__all__ = [
    "CrossValidationFit",
    "FlowPosterior",
    "KernelPosterior",
    "LearningCurve",
    "LikelihoodFit",
    "LogLikelihood",
    "Posterior",
    "Prediction",
    "RidgeError",
    "TimeScales",
    "critical_learning_rate",
    "fit_cross_validation",
    "fit_likelihood",
    "flow_posterior",
    "flow_posterior_from_kernel",
    "learning_curve",
    "log_likelihood",
    "optimal_learning_rate",
    "posterior",
    "posterior_from_kernel",
    "ridge_test_error",
    "time_scales",
]

__getattr__, _names = submodules(__name__, __path__)


def __dir__() -> list[str]:
    return sorted({*__all__, *_names})
