"""Regression with the Gaussian processes of infinitely wide networks."""

from __future__ import annotations

from dataclasses import dataclass

from largen.regression.estimators.models import Bayesian, Flow, Trained
from largen.regression.estimators.tasks import KernelRegressor


@dataclass(eq=False, repr=False, kw_only=True)
class NNGPRegressor(KernelRegressor, Bayesian):
    """Bayesian inference with an infinitely wide network as prior.

    Bahri and Hanin, Les Houches lectures, eq. (32): see :func:`largen.posterior`, kind
    ``"nngp"``. Standard deviations are those of new targets, noise included. The prior has the
    mean 0 and a variance of order one: targets are therefore centred and scaled to variance 1
    unless ``normalize_y=False``. Inputs are used as they are; standardise them.

    Parameters
    ----------
    net
        The architecture; None for a fully connected one of ``depth`` and ``activation``.
    depth, activation
        The default network, with σ_b = 0.5 and σ_w² = 1/E[φ(z)²]: its number of hidden layers,
        2 by default, and its activation as for :func:`largen.Activation`, relu by default.
    kernel
        ``"network"``, or ``"precomputed"``: ``X`` is then the kernel matrix.
    noise
        σ_n² ≥ 0, the variance of the targets' noise: added to the kernel's diagonal as it is.
        ``"auto"`` maximises the marginal likelihood.
    param
        The parameterization; None for :func:`largen.ntk`.
    optimize
        Whether to fit σ_w, σ_b and the noise by :func:`largen.regression.fit_likelihood` first,
        from those of ``net`` and ``noise``; this fit ignores the weights of samples.
    normalize_y
        Whether targets are centred and scaled to variance 1 for the fit, the default. Predictions
        are in the units of the targets; the noise and ``posterior_`` are in those of the scaled
        targets.
    sample_shape
        (*space, channels) for networks that read images: scikit-learn requires ``X`` as (sample,
        feature), whose rows are reshaped to it. None for networks without spatial axes.

    Attributes
    ----------
    posterior_
        The :class:`largen.regression.Posterior`, with the fitted ``net`` and ``noise`` and their
        ``log_likelihood``.
    net_, noise_
        The network and the noise after fitting, if they were fitted.
    n_features_in_
        Number of features.

    Raises
    ------
    NumericalFailure
        If the kernel is singular, as with equal rows and ``noise=0``.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 30)[:, None]
    >>> model = lg.NNGPRegressor(lg.mlp(1, "erf", bias_std=1.0), noise=1e-4)
    >>> mean, std = model.fit(x, np.sin(x[:, 0])).predict(x[:2], return_std=True)
    >>> model.score(x, np.sin(x[:, 0])) > 0.999
    True
    """


@dataclass(eq=False, repr=False, kw_only=True)
class NTKRegressor(KernelRegressor, Trained):
    """Infinitely wide networks after training by gradient flow, in the kernel limit.

    Bahri and Hanin, Les Houches lectures, eqs. (87)-(90): see :func:`largen.posterior`, kind
    ``"ntk"``. Standard deviations are those of single networks over initialisations: they measure
    the disagreement of networks, not the distance of targets. Networks are trained on targets
    that are centred and scaled to variance 1, unless ``normalize_y=False``. Inputs are used as
    they are; standardise them.

    Parameters
    ----------
    net, depth, activation, kernel, param, sample_shape, normalize_y
        As in :class:`largen.NNGPRegressor`.
    noise
        The ridge ≥ 0, added to the kernel's diagonal as it is. ``"auto"`` minimises the
        leave-one-out error, and in the Bayesian kinds maximises the marginal likelihood.
    kind
        ``"ntk"``, or ``"ntk-gp"`` for Bayesian inference with the linearised network as prior:
        the same mean, and standard deviations of new targets, noise included.
    optimize
        Whether to fit σ_w, σ_b and the ridge first, from those of ``net`` and ``noise``: by
        :func:`largen.regression.fit_cross_validation`, or for ``"ntk-gp"`` by
        :func:`largen.regression.fit_likelihood`; this fit ignores the weights of samples.

    Attributes
    ----------
    posterior_
        The :class:`largen.regression.Posterior`.
    net_, noise_, n_features_in_
        As in :class:`largen.NNGPRegressor`.

    Raises
    ------
    NumericalFailure
        If the kernel is singular, as with equal rows and ``noise=0``.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 30)[:, None]
    >>> model = lg.NTKRegressor(lg.mlp(1, "erf", bias_std=1.0), noise=1e-4)
    >>> model.fit(x, np.sin(x[:, 0])).score(x, np.sin(x[:, 0])) > 0.999
    True
    """


@dataclass(eq=False, repr=False, kw_only=True)
class KernelFlowRegressor(KernelRegressor, Flow):
    """Infinitely wide networks after a finite time of gradient flow, in the kernel limit.

    Bahri and Hanin, Les Houches lectures, eqs. (87)-(90), at a finite time: early stopping
    replaces the ridge. See :func:`largen.regression.flow_posterior`. Standard deviations are those
    of single networks over initialisations, not of targets. Networks are trained on targets that
    are centred and scaled to variance 1, unless ``normalize_y=False``; inputs are used as they are.

    Parameters
    ----------
    net, depth, activation, kernel, param, sample_shape, normalize_y
        As in :class:`largen.NNGPRegressor`.
    time
        η₀t > 0, the time of gradient flow on the loss (1/P) Σ ½(f − y)²: outputs approach the
        targets with time. :func:`largen.regression.relaxation_times` returns the time at which each
        mode is learned. ``"auto"`` minimises the error of generalised cross-validation.
    optimize
        Whether to fit σ_w, σ_b and the time by :func:`largen.regression.fit_cross_validation`
        first, from those of ``net`` and ``time``; this fit ignores the weights of samples.

    Attributes
    ----------
    posterior_
        The :class:`largen.regression.FlowPosterior`.
    net_, time_
        The network and the time after fitting, if they were fitted.
    n_features_in_
        Number of features.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 30)[:, None]
    >>> net = lg.mlp(1, "erf", bias_std=1.0)
    >>> y = np.sin(x[:, 0])
    >>> early, late = (lg.regression.KernelFlowRegressor(net, time=t).fit(x, y) for t in (3.0, 1e4))
    >>> early.score(x, y) < late.score(x, y)
    True
    """
