"""Classification by regression on ±1 with the kernels of infinitely wide networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.regression.estimators.models import Bayesian, Flow, Trained
from largen.regression.estimators.tasks import KernelClassifier


class NTKClassifier(KernelClassifier, Trained):
    """Infinitely wide networks trained on class labels by the squared error, in the kernel limit.

    Each class has one output, with target +1 for its own samples and −1 for all others; the
    predicted class has the largest output. Outputs are the means of :class:`NTKRegressor`.
    There is no ``predict_proba``: the squared error does not estimate probabilities.

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
        The ridge ≥ 0, added to the kernel's diagonal as it is. ``"auto"`` minimises the
        leave-one-out error, and in the Bayesian kinds maximises the marginal likelihood.
    param
        The parameterization; None for :func:`largen.ntk`.
    kind
        ``"ntk"``, or ``"nngp"`` for the Bayesian mean with the network as prior.
    optimize
        Whether to fit σ_w, σ_b and the ridge by :func:`largen.regression.fit_cross_validation`
        first, from those of ``net`` and ``noise``; this fit ignores the weights of samples.
    sample_shape
        (*space, channels) for networks that read images: scikit-learn requires ``X`` as (sample,
        feature), whose rows are reshaped to it. None for networks without spatial axes.

    Attributes
    ----------
    classes_
        The labels.
    posterior_
        The :class:`largen.regression.Posterior` of the ±1 targets.
    net_, noise_
        The network and the noise after fitting, if they were fitted.
    n_features_in_
        Number of features.

    Raises
    ------
    NumericalFailure
        If the kernel is singular, as with equal rows and ``noise=0``.

    Notes
    -----
    A sample's weight divides its ridge, which is equivalent to repeating the sample.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> model = lg.NTKClassifier(lg.mlp(1, "relu")).fit(x, ["right", "up", "left"])
    >>> model.predict([[0.9, 0.1]]).tolist()
    ['right']
    """

    _kinds = ("ntk", "nngp")


class NNGPClassifier(KernelClassifier, Bayesian):
    """Bayesian regression on class labels with an infinitely wide network as prior.

    Each class has one output, with target +1 for its own samples and −1 for all others; the
    predicted class has the largest mean. Outputs are those of :class:`NNGPRegressor`, and
    ``decision_function`` returns them in units of their standard deviations, noise included.

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
        Whether to fit σ_w, σ_b and the noise to the ±1 targets by
        :func:`largen.regression.fit_likelihood` first.
    sample_shape
        (*space, channels) for networks that read images: scikit-learn requires ``X`` as (sample,
        feature), whose rows are reshaped to it. None for networks without spatial axes.

    Attributes
    ----------
    classes_
        The labels.
    posterior_
        The :class:`largen.regression.Posterior` of the ±1 targets.
    net_, noise_
        The network and the noise after fitting, if they were fitted.
    n_features_in_
        Number of features.

    Raises
    ------
    NumericalFailure
        If the kernel is singular, as with equal rows and ``noise=0``.

    Notes
    -----
    A sample's weight divides its noise variance, which is equivalent to repeating the sample.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> model = lg.NNGPClassifier(lg.mlp(1, "relu"), noise=0.01)
    >>> model = model.fit(x, ["right", "up", "left"])
    >>> model.predict([[0.9, 0.1]]).tolist(), model.predict_proba([[0.9, 0.1]]).round(2).tolist()
    (['right'], [[0.0, 1.0, 0.0]])
    """

    def decision_function(self, X: Any, mask: Any = None, test_kernel: Any = None) -> Any:
        """Return each class's mean in units of the standard deviation of its noisy output, m/s.

        The standard deviation s has s² = variance + σ_n², so that for two classes P = Φ(m/s) and
        samples are ranked as by :meth:`predict_proba`.

        Parameters
        ----------
        X
            (sample, feature).
        mask
            Which positions of each sample are present, (sample, *space); required if ``fit`` had
            one.
        test_kernel
            With ``kernel="precomputed"``: K(x, x) of each new sample, (sample,).

        Returns
        -------
        array
            (sample, class); for two classes (sample,), positive for the second.

        Raises
        ------
        InvalidInput
            If a mask is missing.
        """
        mean, s = self._outputs(X, mask, test_kernel)
        return mean / s if mean.ndim == 1 else mean / s[:, None]

    def _outputs(self, X: Any, mask: Any, test_kernel: Any) -> tuple[Any, Any]:
        """Return means of the outputs, and the standard deviation of a noisy output."""
        mean, variance, _ = self._predicted(X, mask, test_kernel, spread=True)
        least = np.finfo(np.float64).tiny  # where a function is known exactly
        return mean, np.sqrt(np.maximum(variance + self._noise_of_targets, least))

    def predict_proba(self, X: Any, mask: Any = None, test_kernel: Any = None) -> Any:
        """Return the probability that a class's noisy output is the largest.

        Outputs are independent Gaussians m_c + s z_c with s² = variance + σ_n², so that

            P(c) = E[Π_{k≠c} Φ(z + (m_c − m_k)/s)],   z ~ N(0, 1);

        for two classes there is one output, and P = Φ(m/s). These probabilities belong to the
        regression on ±1, not to a model of labels, and are not calibrated.

        Parameters
        ----------
        X
            (sample, feature).
        mask, test_kernel
            As in :meth:`decision_function`.

        Returns
        -------
        array
            (sample, class).
        """
        from scipy.special import ndtr

        mean, s = self._outputs(X, mask, test_kernel)
        if mean.ndim == 1:
            positive = ndtr(mean / s)
            return np.stack([1 - positive, positive], axis=1)
        nodes, weights = np.polynomial.hermite_e.hermegauss(101)
        above = (mean[:, :, None] - mean[:, None, :]) / s[:, None, None]
        beaten = np.ones((*mean.shape, len(nodes)))
        for k in range(mean.shape[1]):
            other = np.arange(mean.shape[1]) != k
            beaten[:, other] *= ndtr(nodes + above[:, other, k, None])
        found = beaten @ weights
        return found / found.sum(axis=1, keepdims=True)


class KernelFlowClassifier(KernelClassifier, Flow):
    """Infinitely wide networks trained on class labels for a finite time, in the kernel limit.

    Gradient flow on the squared error of ±1 targets, as in :class:`NTKClassifier`, stops at a
    finite time, which replaces the ridge.

    Parameters
    ----------
    net
        The architecture; None for a fully connected one of ``depth`` and ``activation``.
    depth, activation
        The default network, with σ_b = 0.5 and σ_w² = 1/E[φ(z)²]: its number of hidden layers,
        2 by default, and its activation as for :func:`largen.Activation`, relu by default.
    kernel
        ``"network"``, or ``"precomputed"``: ``X`` is then the kernel matrix.
    time
        η₀t > 0, the time of gradient flow on the loss (1/P) Σ ½(f − y)²: outputs approach the
        targets with time. :func:`largen.regression.relaxation_times` returns the time at which each
        mode is learned. ``"auto"`` minimises the error of generalised cross-validation.
    param
        The parameterization; None for :func:`largen.ntk`.
    optimize
        Whether to fit σ_w, σ_b and the time by :func:`largen.regression.fit_cross_validation`
        first, from those of ``net`` and ``time``; this fit ignores the weights of samples.
    sample_shape
        (*space, channels) for networks that read images: scikit-learn requires ``X`` as (sample,
        feature), whose rows are reshaped to it. None for networks without spatial axes.

    Attributes
    ----------
    classes_
        The labels.
    posterior_
        The :class:`largen.regression.FlowPosterior` of the ±1 targets.
    net_, time_
        The network and the time after fitting, if they were fitted.
    n_features_in_
        Number of features.

    Notes
    -----
    A sample's weight w multiplies its term of the loss (1/Σw) Σ ½w(f − y)², which is equivalent to
    repeating the sample.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> model = lg.regression.KernelFlowClassifier(lg.mlp(1, "relu")).fit(
    ...     x, ["right", "up", "left"]
    ... )
    >>> model.predict([[0.9, 0.1]]).tolist()
    ['right']
    """
