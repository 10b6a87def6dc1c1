"""What is done with a posterior: regression or classification, by scikit-learn's contract."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from largen.arrays import sample_shape
from largen.errors import InvalidInput
from largen.kernels.masked import Masked, masked
from largen.kernels.prediction import Posterior

_FLOATS = (np.float64, np.float32)


class KernelEstimator(BaseEstimator):
    """An estimator that is a posterior after it was fitted."""

    posterior_: Posterior
    sample_shape: Any

    @abstractmethod
    def _condition(self, given: Masked, targets: Any, sample_weight: Any) -> Posterior:
        """Return the posterior of samples and targets."""

    def _samples(self, X: Any, mask: Any) -> Masked:
        """Check new samples at the door.

        Scikit-learn drops what it was not asked to route, and samples that are not masked would
        be read with what their padding holds: where there were masks, there must be one again.
        """
        check_is_fitted(self)
        if mask is None and self.posterior_.mask is not None:
            raise InvalidInput(
                "mask: fit had one, and new samples need one, too; all True if all is there. In "
                "searches and pipelines ask for it: sklearn.set_config(enable_metadata_routing="
                "True), set_fit_request(mask=True), set_predict_request(mask=True), "
                "set_score_request(mask=True)."
            )
        return self._given(validate_data(self, X, dtype=_FLOATS, reset=False), mask)

    def _given(self, X: Any, mask: Any) -> Masked:
        """Return samples with the axes that the network reads, (sample, *space, channel)."""
        return masked("mask", mask, self._shaped(X))

    def _shaped(self, X: Any) -> Any:
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> Any:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), and (sample,) or (sample, output).
        sample_weight
            (sample,), ≥ 0; see the notes of the class.
        mask
            Which positions of each sample are there, Booleans (sample, *space), for networks that
            read a ``sample_shape``; all by default.

        Raises
        ------
        InvalidInput
            For wrong shapes, or wrong parameters of the estimator.
        """
        X, y = validate_data(self, X, y, dtype=_FLOATS, multi_output=True, y_numeric=True)
        self.posterior_ = self._condition(self._given(X, mask), y, sample_weight)
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, mask: Any = None
    ) -> Any:
        """Return predictions.

        Parameters
        ----------
        X
            (sample, feature).
        return_std
            Whether to return deviations, too.
        return_cov
            Whether to return the covariance of every pair of samples, too.
        mask
            Which positions of each sample are there, (sample, *space); wanted if ``fit`` had one.

        Returns
        -------
        array or pair of arrays
            Mean, (sample,) or (sample, output); and if asked for, deviations shaped like it, or
            a covariance (sample, sample), or (sample, sample, output) for several outputs. They
            are of the noiseless function.

        Raises
        ------
        InvalidInput
            If both are asked for, or a mask is missing.
        """
        if return_std and return_cov:
            raise InvalidInput("return_std and return_cov: at most one of them.")
        x, mask = self._samples(X, mask)
        mean, variance, covariance = self.posterior_.predict(x, mask=mask, covariance=return_cov)
        if return_cov:
            if mean.ndim == 2:
                covariance = np.repeat(covariance[..., None], mean.shape[1], axis=2)
            return mean, covariance
        if return_std:
            std = np.sqrt(variance)
            return mean, np.repeat(std[:, None], mean.shape[1], axis=1) if mean.ndim == 2 else std
        return mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, mask: Any = None) -> Any:
        """Draw functions from the posterior, seen at the samples.

        Parameters
        ----------
        X
            (sample, feature).
        n_samples
            How many functions.
        random_state
            A JAX key or an integer.
        mask
            As in :meth:`predict`.

        Returns
        -------
        array
            (sample, n_samples), or (sample, output, n_samples) for several outputs.
        """
        x, mask = self._samples(X, mask)
        functions = self.posterior_.sample(x, key=random_state, draws=n_samples, mask=mask)
        return np.moveaxis(functions, 0, -1)

    def score(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> float:
        """Return R², the part of the targets' variance that the means explain.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        mask
            As in :meth:`predict`.
        """
        return r2_score(y, self.predict(X, mask=mask), sample_weight=sample_weight)


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """Classification by regression on ±1, one output for each class; the largest wins."""

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> Any:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), and labels (sample,).
        sample_weight
            (sample,), ≥ 0; see the notes of the class.
        mask
            Which positions of each sample are there, Booleans (sample, *space), for networks that
            read a ``sample_shape``; all by default.

        Raises
        ------
        InvalidInput
            For wrong shapes, or wrong parameters of the estimator.
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
        self.posterior_ = self._condition(self._given(X, mask), targets, sample_weight)
        return self

    def decision_function(self, X: Any, mask: Any = None) -> Any:
        """Return the outputs.

        Parameters
        ----------
        X
            (sample, feature).
        mask
            Which positions of each sample are there, (sample, *space); wanted if ``fit`` had one.

        Returns
        -------
        array
            (sample, class); for two classes (sample,), positive for the second.

        Raises
        ------
        InvalidInput
            If a mask is missing.
        """
        x, mask = self._samples(X, mask)
        return self.posterior_.predict(x, mask=mask).mean

    def predict(self, X: Any, mask: Any = None) -> Any:
        """Return the label of the largest output.

        Parameters
        ----------
        X
            (sample, feature).
        mask
            As in :meth:`decision_function`.
        """
        outputs = self.decision_function(X, mask)
        if outputs.ndim == 1:
            return self.classes_[(outputs > 0).astype(int)]
        return self.classes_[outputs.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> float:
        """Return the accuracy, the part of the samples whose label is right.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        mask
            As in :meth:`decision_function`.
        """
        return float(accuracy_score(y, self.predict(X, mask), sample_weight=sample_weight))
