"""Activations and their Gaussian expectations.

E[φφ] and E[φ'φ'] under two correlated Gaussians, and moments under one Gaussian, are closed forms
where these exist, and otherwise Hermite series or integrals over the angle, with error bounds.
"""

from largen.expectations.activations import ActivationFunction, as_activation
from largen.expectations.closed_form import ClosedForm
from largen.expectations.constructors import (
    elu,
    gaussian,
    hermite,
    leaky_relu,
    monomial,
    polynomial,
    rbf,
    with_kinks,
)
from largen.expectations.moments import (
    PairMoments,
    SingleMoments,
    derivative_second_moment,
    gaussian_moments,
    mean,
    moment_error,
    pair_error,
    pair_moments,
    second_moment,
)
from largen.expectations.quadrature import gaussian_mean, gaussian_mean_error

__all__ = [
    "ActivationFunction",
    "ClosedForm",
    "PairMoments",
    "SingleMoments",
    "as_activation",
    "derivative_second_moment",
    "elu",
    "gaussian",
    "gaussian_mean",
    "gaussian_mean_error",
    "gaussian_moments",
    "hermite",
    "leaky_relu",
    "mean",
    "moment_error",
    "monomial",
    "pair_error",
    "pair_moments",
    "polynomial",
    "rbf",
    "second_moment",
    "with_kinks",
]
