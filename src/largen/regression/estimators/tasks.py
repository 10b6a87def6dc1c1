"""Estimators with a posterior, and regression by its mean, by scikit-learn's contract."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import jax
import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from largen.architectures import Layer
from largen.errors import InvalidInput, one_of
from largen.kernels.masked import Masked, masked
from largen.regression import KernelPosterior, Posterior, Prediction
from largen.regression.checks import training_targets
from largen.regression.estimators.checks import checked_by_sklearn, read
from largen.regression.estimators.samples import weights_of
from largen.regression.kernel_rows import square_kernel
from largen.scalars import flag, random_key, sample_shape

FLOATS = (np.float64, np.float32)
_EQUAL = 8 * float(np.finfo(np.float64).eps)  # spread of targets that count as equal, over the mean
Kind = TypeVar("Kind", Posterior, KernelPosterior)


class KernelEstimator(BaseEstimator):
    """An estimator whose ``fit`` computes a posterior."""

    posterior_: Posterior | KernelPosterior
    net_: Layer | None
    noise_: Any
    time_: Any
    kernel: Any
    sample_shape: Any

    @property
    @abstractmethod
    def _noise_of_targets(self) -> float:
        """The variance of new targets around the inferred function."""

    @abstractmethod
    def _condition(
        self, given: Any, targets: Any, sample_weight: Any
    ) -> Posterior | KernelPosterior:
        """Return the posterior given targets and samples, or a precomputed kernel."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"  # folds cut rows and columns
        return tags

    @property
    def _precomputed(self) -> bool:
        return one_of("kernel", self.kernel, ("network", "precomputed")) == "precomputed"

    def _training(self, X: Any, mask: Any) -> Any:
        """Return training samples, or their precomputed kernel."""
        if not self._precomputed:
            return self._given(X, mask)
        if mask is not None:
            raise InvalidInput("mask: belongs to samples, and kernel='precomputed' takes none.")
        return square_kernel("X", X)

    def _predicted(
        self, X: Any, mask: Any, test_kernel: Any = None, spread: bool = False, full: bool = False
    ) -> Prediction:
        """Return moments of the function at new samples, after checking the arguments."""
        if not self._precomputed:
            if test_kernel is not None:
                raise InvalidInput("test_kernel: is only used with kernel='precomputed'.")
            x, mask = self._samples(X, mask)
            return self._posterior(Posterior)._predicted(x, mask, full, spread)
        if spread and test_kernel is None:
            raise InvalidInput(
                "test_kernel: wanted the prior's kernel of the new samples, K(x, x) of each, or of "
                "all pairs for covariances and draws: with kernel='precomputed' variances need it."
            )
        moments = self._posterior(KernelPosterior).predict(self._checked(X, mask), test_kernel)
        if full and moments.covariance is None:
            raise InvalidInput("test_kernel: wanted the kernel of all pairs of new samples.")
        return moments

    def _posterior(self, kind: type[Kind]) -> Kind:
        check_is_fitted(self)
        fitted = self.posterior_
        if not isinstance(fitted, kind):
            raise InvalidInput("kernel: is not the one with which the estimator was fitted.")
        return fitted

    def _checked(self, X: Any, mask: Any) -> Any:
        if mask is not None:
            raise InvalidInput("mask: belongs to samples, and kernel='precomputed' takes none.")
        return checked_by_sklearn(self, X, dtype=FLOATS, reset=False, ensure_min_samples=0)

    def _samples(self, X: Any, mask: Any) -> Masked:
        """Check new samples; without the mask that ``fit`` had, padding would be read as signal."""
        if mask is None and self._posterior(Posterior).mask is not None:
            raise InvalidInput(
                "mask: fit had one, and new samples need one, too; all True if all is there. In "
                "searches and pipelines ask for it: sklearn.set_config(enable_metadata_routing="
                "True), set_fit_request(mask=True), set_predict_request(mask=True), "
                "set_score_request(mask=True)."
            )
        X = checked_by_sklearn(self, X, dtype=FLOATS, reset=False, ensure_min_samples=0)
        return self._given(X, mask)

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


@dataclass(eq=False, repr=False, kw_only=True)
class KernelRegressor(MultiOutputMixin, RegressorMixin, KernelEstimator):
    """Regression by the mean of the posterior."""

    # The prior of a network has the mean 0 and, for standardised inputs, a variance of order one.
    normalize_y: Any = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> Any:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), or with ``kernel="precomputed"`` the kernel, (sample, sample); and
            (sample,) or (sample, output).
        sample_weight
            (sample,), ≥ 0: each divides the noise or ridge of its sample, or multiplies its term of
            the loss of a training time, which is equivalent to repeating the sample.
        mask
            Which positions of each sample are present, Booleans (sample, *space), for networks that
            read a ``sample_shape``; all by default.

        Raises
        ------
        InvalidInput
            For wrong shapes, or wrong parameters of the estimator.
        """
        X, y = checked_by_sklearn(self, X, y, dtype=FLOATS, multi_output=True, y_numeric=True)
        given, y = self._training(X, mask), training_targets(y, len(X))
        self._y_mean, self._y_std = np.zeros(y.shape[1:]), np.ones(y.shape[1:])
        if flag("normalize_y", self.normalize_y):
            weights = weights_of(sample_weight, len(y))
            self._y_mean = np.average(y, axis=0, weights=weights)
            spread = np.sqrt(np.average((y - self._y_mean) ** 2, axis=0, weights=weights))
            equal = spread <= _EQUAL * np.abs(self._y_mean)
            self._y_std = np.where(equal, 1.0, spread)
            y = np.where(equal, self._y_mean, y)  # the mean of equal numbers has rounding errors
        scaled = (y - self._y_mean) / self._y_std
        self.posterior_ = self._condition(given, scaled, sample_weight)
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        mask: Any = None,
        test_kernel: Any = None,
    ) -> Any:
        """Return the posterior mean and, on request, standard deviations or the covariance.

        Parameters
        ----------
        X
            (sample, feature), or with ``kernel="precomputed"`` the kernel from new to training
            samples, (sample, training_sample).
        return_std
            Whether to return standard deviations, too.
        return_cov
            Whether to return the covariance of every pair of samples, instead of these.
        mask
            Which positions of each sample are present, (sample, *space); required if ``fit`` had
            one.
        test_kernel
            With ``kernel="precomputed"``, for standard deviations and covariances: the prior's
            kernel of the new samples, K(x, x), (sample,), or of all pairs, (sample, sample).

        Returns
        -------
        array or pair of arrays
            Mean, (sample,) or (sample, output); and on request standard deviations of that
            shape, or a covariance (sample, sample), or (sample, sample, output) for several
            outputs.
            For Bayesian inference they are those of new targets, noise included, as for
            scikit-learn's ``GaussianProcessRegressor`` with a ``WhiteKernel``: about 95 % of the
            targets lie within 1.96 standard deviations. ``posterior_.predict`` leaves the noise
            out, in units of the scaled targets. For trained networks they are those over
            initialisations and do not describe targets; use ``kind="ntk-gp"`` or
            :class:`largen.NNGPRegressor` for targets.

        Raises
        ------
        InvalidInput
            If both ``return_std`` and ``return_cov`` are set, or a mask is missing.
        """
        return_std, return_cov = flag("return_std", return_std), flag("return_cov", return_cov)
        if return_std and return_cov:
            raise InvalidInput("return_std and return_cov: at most one of them.")
        moments = self._predicted(X, mask, test_kernel, return_std or return_cov, return_cov)
        mean, noise = self._unscaled(moments.mean), self._noise_of_targets
        if return_cov:
            of_targets = moments.covariance + noise * np.eye(len(mean))
            scaled = of_targets[..., None] * self._y_std**2
            return mean, (scaled if mean.ndim == 2 else scaled[..., 0]).astype(mean.dtype)
        if return_std:
            scaled = np.sqrt(moments.variance + noise)[:, None] * self._y_std
            return mean, (scaled if mean.ndim == 2 else scaled[:, 0]).astype(mean.dtype)
        return mean

    def _unscaled(self, values: Any) -> Any:
        """Return means or draws (…, output) in the units of the targets."""
        return (values * self._y_std + self._y_mean).astype(values.dtype)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        mask: Any = None,
        test_kernel: Any = None,
    ) -> Any:
        """Draw targets at the samples, with the mean and covariance that :meth:`predict` returns.

        ``posterior_.sample`` draws functions without the noise of the targets.

        Parameters
        ----------
        X, mask, test_kernel
            As in :meth:`predict`.
        n_samples
            Number of draws, the last axis of the result.
        random_state
            A JAX key or an integer.
        """
        of_function, of_noise = jax.random.split(random_key(random_state))
        if self._precomputed:
            self._predicted(X, mask, test_kernel, spread=True, full=True)  # checks them
            drawn = self._posterior(KernelPosterior).sample(
                self._checked(X, mask), test_kernel, key=of_function, draws=n_samples
            )
        else:
            x, mask = self._samples(X, mask)
            drawn = self._posterior(Posterior).sample(
                x, key=of_function, draws=n_samples, mask=mask
            )
        noise = self._noise_of_targets
        if noise:
            with jax.enable_x64(True):
                drawn_noise = np.asarray(jax.random.normal(of_noise, drawn.shape, np.float64))
            drawn = (drawn + np.sqrt(noise) * drawn_noise).astype(drawn.dtype)
        return np.moveaxis(self._unscaled(drawn), 0, -1)

    def score(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> float:
        """Return R², the fraction of the targets' variance that the means explain."""
        weights = weights_of(sample_weight, len(X))
        return r2_score(read("y", y), self.predict(X, mask=mask), sample_weight=weights)
