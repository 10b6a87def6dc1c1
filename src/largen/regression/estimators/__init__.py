"""Estimators for scikit-learn; the only subpackage of regression that imports it."""

from largen.regression.estimators.classifiers import (
    KernelFlowClassifier,
    NNGPClassifier,
    NTKClassifier,
)
from largen.regression.estimators.regressors import KernelFlowRegressor, NNGPRegressor, NTKRegressor

__all__ = [
    "KernelFlowClassifier",
    "KernelFlowRegressor",
    "NNGPClassifier",
    "NNGPRegressor",
    "NTKClassifier",
    "NTKRegressor",
]
