"""Estimators for scikit-learn; the only part of the kernels that imports it."""

from largen.kernels.estimators.classifiers import (
    KernelFlowClassifier,
    NNGPClassifier,
    NTKClassifier,
)
from largen.kernels.estimators.regressors import KernelFlowRegressor, NNGPRegressor, NTKRegressor

__all__ = [
    "KernelFlowClassifier",
    "KernelFlowRegressor",
    "NNGPClassifier",
    "NNGPRegressor",
    "NTKClassifier",
    "NTKRegressor",
]
