"""What is done with a posterior: regression or classification, by scikit-learn's contract."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from largen.arrays import sample_shape
from largen.errors import InvalidInput
from largen.kernels.prediction import Posterior

_FLOATS = (np.float64, np.float32)


class KernelEstimator(BaseEstimator):
    """An estimator that is a posterior after it was fitted."""

    posterior_: Posterior
    sample_shape: Any

    @abstractmethod
    def _condition(self, X: Any, targets: Any, sample_weight: Any) -> Posterior:
        """Return the posterior of samples and targets."""

    def _samples(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._shaped(validate_data(self, X, dtype=_FLOATS, reset=False))

    def _shaped(self, X: Any) -> Any:
        """Return samples with the axes that the network reads, (sample, *space, channel)."""
        if self.sample_shape is None:
            return X
        shape = sample_shape("sample_shape", self.sample_shape)
        shape = shape if isinstance(shape, tuple) else (shape,)
        if prod(shape) != X.shape[1]:
            raise InvalidInput(
                f"sample_shape: {shape} has {prod(shape)} numbers, and X {X.shape[1]} features."
            )
        return X.reshape(len(X), *shape)


class KernelRegressor(MultiOutputMixin, RegressorMixin, KernelEstimator):
    """Regression by the mean of the posterior."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), and (sample,) or (sample, output).
        sample_weight
            (sample,), ≥ 0; see the notes of the class.
        """
        X, y = validate_data(self, X, y, dtype=_FLOATS, multi_output=True, y_numeric=True)
        self.posterior_ = self._condition(self._shaped(X), y, sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return predictions.

        Parameters
        ----------
        X
            (sample, feature).
        return_std
            Whether to return deviations, too.
        return_cov
            Whether to return the covariance of every pair of samples, too.

        Returns
        -------
        array or pair of arrays
            Mean, (sample,) or (sample, output); and if asked for, deviations shaped like it, or
            a covariance (sample, sample), or (sample, sample, output) for several outputs. They
            are of the noiseless function.

        Raises
        ------
        InvalidInput
            If both are asked for.
        """
        if return_std and return_cov:
            raise InvalidInput("return_std and return_cov: at most one of them.")
        X = self._samples(X)
        mean, variance, covariance = self.posterior_.predict(X, covariance=return_cov)
        if return_cov:
            if mean.ndim == 2:
                covariance = np.repeat(covariance[..., None], mean.shape[1], axis=2)
            return mean, covariance
        if return_std:
            std = np.sqrt(variance)
            return mean, np.repeat(std[:, None], mean.shape[1], axis=1) if mean.ndim == 2 else std
        return mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Draw functions from the posterior, seen at the samples.

        Parameters
        ----------
        X
            (sample, feature).
        n_samples
            How many functions.
        random_state
            A JAX key or an integer.

        Returns
        -------
        array
            (sample, n_samples), or (sample, output, n_samples) for several outputs.
        """
        X = self._samples(X)
        functions = self.posterior_.sample(X, key=random_state, draws=n_samples)
        return np.moveaxis(functions, 0, -1)


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """Classification by regression on ±1, one output for each class; the largest wins."""

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), and labels (sample,).
        sample_weight
            (sample,), ≥ 0; see the notes of the class.
        """
        X, y = validate_data(self, X, y, dtype=_FLOATS)
        check_classification_targets(y)
        self.classes_, position = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                f"y: wanted samples of two classes or more, got one class, {self.classes_[0]!r}."
            )
        targets = np.where(position[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        if len(self.classes_) == 2:
            targets = targets[:, 1]
        self.posterior_ = self._condition(self._shaped(X), targets, sample_weight)
        return self

    def decision_function(self, X: Any) -> Any:
        """Return the outputs.

        Parameters
        ----------
        X
            (sample, feature).

        Returns
        -------
        array
            (sample, class); for two classes (sample,), positive for the second.
        """
        X = self._samples(X)
        return self.posterior_.predict(X).mean

    def predict(self, X: Any) -> Any:
        """Return the label of the largest output.

        Parameters
        ----------
        X
            (sample, feature).
        """
        outputs = self.decision_function(X)
        if outputs.ndim == 1:
            return self.classes_[(outputs > 0).astype(int)]
        return self.classes_[outputs.argmax(axis=1)]
