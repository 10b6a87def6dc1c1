"""Regression with the Gaussian processes of infinitely wide networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from largen.errors import InvalidInput
from largen.kernels.estimators.samples import condition, default_network
from largen.kernels.prediction import Posterior, fit_likelihood

_FLOATS = (np.float64, np.float32)


class _KernelRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """What both regressors do after their posterior is known."""

    posterior_: Posterior

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
        check_is_fitted(self)
        if return_std and return_cov:
            raise InvalidInput("return_std and return_cov: at most one of them.")
        X = validate_data(self, X, dtype=_FLOATS, reset=False)
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
        check_is_fitted(self)
        X = validate_data(self, X, dtype=_FLOATS, reset=False)
        functions = self.posterior_.sample(X, key=random_state, draws=n_samples)
        return np.moveaxis(functions, 0, -1)


class NNGPRegressor(_KernelRegressor):
    """Bayesian inference with an infinitely wide network as prior.

    Bahri and Hanin, Les Houches lectures, eq. (32): see :func:`largen.posterior`, kind
    ``"nngp"``. Inputs and targets are taken as they are; the prior's mean is 0, so centre the
    targets or give the network biases, and scale inputs to entries of order one.

    Parameters
    ----------
    net
        The architecture; None for two hidden layers of relu with biases.
    noise
        σ_n² ≥ 0, the variance of the targets' noise: added to the kernel's diagonal as it is.
    param
        The parameterization; None for :func:`largen.ntk`.
    optimize
        Whether to fit σ_w, σ_b and the noise by :func:`largen.fit_likelihood` first, from those
        of ``net`` and ``noise``; weights of samples are not taken into account there.

    Attributes
    ----------
    posterior_
        The :class:`largen.kernels.prediction.Posterior`, whose ``net``, ``noise`` and
        ``log_likelihood`` are those in use.
    net_, noise_
        The network and noise in use.
    n_features_in_
        Number of features.

    Raises
    ------
    NumericalFailure
        If the kernel is singular, as with equal rows and ``noise=0``.

    Notes
    -----
    A sample's weight divides the variance of its noise, which is the same as repeating it.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 30)[:, None]
    >>> model = lg.NNGPRegressor(lg.mlp(1, "erf", bias_std=1.0), noise=1e-4)
    >>> mean, std = model.fit(x, np.sin(x[:, 0])).predict(x[:2], return_std=True)
    >>> model.score(x, np.sin(x[:, 0])) > 0.999
    True
    """

    # Without types: the contract wants whatever is given to be kept, and checked by fit.
    def __init__(
        self,
        net: Any = None,
        *,
        noise: Any = 1e-2,
        param: Any = None,
        optimize: Any = False,
    ):
        self.net = net
        self.noise = noise
        self.param = param
        self.optimize = optimize

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NNGPRegressor:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), and (sample,) or (sample, output).
        sample_weight
            (sample,), ≥ 0; see the notes of the class.
        """
        X, y = validate_data(self, X, y, dtype=_FLOATS, multi_output=True, y_numeric=True)
        self.net_ = default_network() if self.net is None else self.net
        self.noise_ = self.noise
        if self.optimize:
            fitted = fit_likelihood(self.net_, X, y, noise=self.noise, param=self.param)
            self.net_, self.noise_ = fitted.net, fitted.noise
        self.posterior_ = condition(
            self.net_, X, y, sample_weight, self.noise_, kind="nngp", param=self.param
        )
        return self


class NTKRegressor(_KernelRegressor):
    """Infinitely wide networks after training by gradient flow, in the kernel limit.

    Bahri and Hanin, Les Houches lectures, eqs. (87)-(90): see :func:`largen.posterior`, kind
    ``"ntk"``. Deviations are those of single networks over their initialisations. Inputs and
    targets are taken as they are.

    Parameters
    ----------
    net
        The architecture; None for two hidden layers of relu with biases.
    noise
        The ridge ≥ 0, added to the kernel's diagonal as it is.
    param
        The parameterization; None for :func:`largen.ntk`.
    kind
        ``"ntk"``, or ``"ntk-gp"`` for Bayesian inference with the linearised network as prior:
        the same mean, other deviations.

    Attributes
    ----------
    posterior_
        The :class:`largen.kernels.prediction.Posterior`.
    net_
        The network in use.
    n_features_in_
        Number of features.

    Raises
    ------
    NumericalFailure
        If the kernel is singular, as with equal rows and ``noise=0``.

    Notes
    -----
    A sample's weight divides the ridge on it, which is the same as repeating it.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 30)[:, None]
    >>> model = lg.NTKRegressor(lg.mlp(1, "erf", bias_std=1.0), noise=1e-4)
    >>> model.fit(x, np.sin(x[:, 0])).score(x, np.sin(x[:, 0])) > 0.999
    True
    """

    # Without types: the contract wants whatever is given to be kept, and checked by fit.
    def __init__(
        self,
        net: Any = None,
        *,
        noise: Any = 1e-2,
        param: Any = None,
        kind: Any = "ntk",
    ):
        self.net = net
        self.noise = noise
        self.param = param
        self.kind = kind

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NTKRegressor:
        """Condition on samples.

        Parameters
        ----------
        X, y
            (sample, feature), and (sample,) or (sample, output).
        sample_weight
            (sample,), ≥ 0; see the notes of the class.
        """
        X, y = validate_data(self, X, y, dtype=_FLOATS, multi_output=True, y_numeric=True)
        if self.kind not in ("ntk", "ntk-gp"):
            raise InvalidInput(f"kind: wanted 'ntk' or 'ntk-gp', got {self.kind!r}.")
        self.net_ = default_network() if self.net is None else self.net
        self.posterior_ = condition(
            self.net_, X, y, sample_weight, self.noise, kind=self.kind, param=self.param
        )
        return self
