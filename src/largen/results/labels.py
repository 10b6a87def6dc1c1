"""Long names and units of the variables of data sets, as plots and other programs read them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray

LONG_NAMES = {
    "alignment": "fraction of the targets' power in the first modes",
    "best_mse": "mean squared error outside of the training set with the best ridge",
    "best_ridge": "ridge with the smallest error",
    "budget": "number of the amount of compute",
    "compute": "products of weights and features, batch × width × steps",
    "exponent": "exponent of a power law",
    "largest_rate": "rate from which errors grow without bound",
    "parts": "part of the moment, by the pattern of shared neurons in a layer",
    "patterns": "paths that share neurons",
    "peak_width": "number of features at which the error is largest",
    "cross_validation": "mean squared error by generalised cross-validation",
    "eigenvalue": "eigenvalue of the kernel over the number of samples",
    "density": "density of eigenvalues",
    "exponents": "exponents",
    "variances": "growth of the variance of log s with each factor",
    "feature_eigenvalue": "eigenvalue of the feature kernel",
    "leave_one_out": "leave-one-out mean squared error",
    "measured_test": "mean squared error outside of the training set, measured",
    "measured_train": "mean squared error on the training set, measured",
    "mse_test": "mean squared error outside of the training set",
    "mse_train": "mean squared error on the training set",
    "power": "mean square of the targets in a mode",
    "size": "number of training samples",
    "A": "response function A of the features",
    "B": "response function B of the gradients",
    "bias_std": "standard deviation of the biases",
    "bulk_edge": "largest singular value of the bulk",
    "chi_parallel": "factor of a change of variance from layer to layer",
    "chi_perp": "factor of the mean square of gradients from layer to layer",
    "covariance": "covariance over the posterior",
    "f": "output",
    "f_test": "output on test samples",
    "f_train": "output on training samples",
    "feature_kernel": "feature kernel Φ",
    "gamma": "γ, the factor of the output's denominator",
    "gamma0": "γ divided by the square root of the width",
    "gradient_curvature": "curvature of the loss along its gradient in units of the learning rate",
    "gradient_kernel": "gradient kernel G",
    "hessian_sharpness": "largest eigenvalue of the loss's Hessian in units of the learning rate",
    "input_jacobian": "singular values of ∂f/∂x",
    "input_jacobian_test": "singular values of ∂f/∂x on test samples",
    "kernel": "kernel",
    "left_overlap": "projection of the left singular vector on gradients times targets",
    "loss_test": "mean loss on test samples",
    "loss_train": "mean loss on training samples",
    "lr": "learning rate",
    "mean": "mean",
    "edge_bias_std": "standard deviation of the biases on the edge of chaos",
    "drift": "logarithm of the best rate over that of the limit",
    "single_neuron": "largest fraction of the Hessian's first eigenvector in one neuron",
    "excess": "loss at the limit's best rate over the smallest loss",
    "gap": "loss over that of the limit at its best rate",
    "optimum": "best learning rate",
    "edge_weight_std": "standard deviation of the weights on the edge of chaos",
    "network": "output of one network after training",
    "nngp": "covariance of the output over initialisations (NNGP kernel)",
    "ntk": "neural tangent kernel (NTK)",
    "ntk_test": "neural tangent kernel between test and training samples",
    "output_hessian": "spectral norm of an output's Hessian in the metric of the rates",
    "output_size": "root mean square of the limit's outputs",
    "pair_step": "time index of the first entry of a pair",
    "pair_step_2": "time index of the second entry of a pair",
    "probability": "probability",
    "prediction": "output that the limit predicts for this network",
    "record_step": "time index of a record",
    "right_overlap": "projection of the right singular vector on features times targets",
    "singular_values": "singular values of hidden weights",
    "single": "root mean square distance of single networks from the limit",
    "step": "time index, 0 at initialisation",
    "tau": "depth, as a fraction of the whole",
    "time": "time, learning rate times step",
    "variance": "variance",
    "weight_std": "standard deviation of the weights",
    "width": "width N of the hidden layers",
    "y_test": "target of test samples",
    "y_train": "target of training samples",
}
# Endings of names of variables that describe another variable.
ENDINGS = {
    "_error": "standard error of: {}",
    "_std": "standard deviation over initialisations of: {}",
    "_covariance": "covariance over initialisations of: {}",
    "_drawn_fluctuation": "standard deviation over draws of independent neurons from the limit, "
    "times the root of their number, of: {}",
    "_fluctuation": "standard deviation over networks, times the root of the width, of: {}",
    "_shift": "change at finite width of: {}",
    "_of_kernels": "change by fluctuations of the kernel at initialisation of: {}",
    "_pair": "{} between two times",
    "_tokens": "{} between tokens",
    "_relative": "{}, relative to the size of the outputs",
    "_actual": "{}, of the trained network",
    "_2": "{} (second)",
}


def long_name(name: str) -> str:
    """Return a description of a variable in words."""
    if name in LONG_NAMES:
        return LONG_NAMES[name]
    for ending, words in ENDINGS.items():
        if name.endswith(ending) and name != ending:
            return words.format(long_name(name.removesuffix(ending)))
    return name.replace("_", " ")


def labelled(dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a data set whose variables have a ``long_name``, and numbers ``units``."""
    copy = dataset.copy()
    for name, variable in copy.variables.items():
        variable.attrs.setdefault("long_name", long_name(str(name)))
        if variable.dtype.kind in "fiuc":
            variable.attrs.setdefault("units", "1")
    return copy


def with_labels(method: Callable[[Any], xarray.Dataset]) -> Callable[[Any], xarray.Dataset]:
    """Return a method ``to_xarray`` whose data set is :func:`labelled`."""

    @wraps(method)
    def to_xarray(self: Any) -> xarray.Dataset:
        return labelled(method(self))

    return to_xarray
