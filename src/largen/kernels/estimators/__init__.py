"""Estimators for scikit-learn; the only part of the kernels that imports it."""

from largen.kernels.estimators.classifier import NTKClassifier
from largen.kernels.estimators.regressors import NNGPRegressor, NTKRegressor

__all__ = ["NNGPRegressor", "NTKClassifier", "NTKRegressor"]
