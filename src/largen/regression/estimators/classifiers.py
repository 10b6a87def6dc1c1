"""Classification by regression on ±1 with the kernels of infinitely wide networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from largen.regression.conditioning import Inference
from largen.regression.estimators.calibration import scale_of
from largen.regression.estimators.classification import KernelClassifier
from largen.regression.estimators.models import Bayesian, Flow, Trained
from largen.regression.estimators.samples import weights_of


@dataclass(eq=False, repr=False, kw_only=True)
class NTKClassifier(KernelClassifier, Trained):
    """Infinitely wide networks trained on class labels by the squared error, in the kernel limit.

    Each class has one output, with target +1 for its own samples and −1 for all others; the
    predicted class has the largest output. Outputs are the means of :class:`NTKRegressor`.
    ``predict_proba`` is calibrated by predictions of each training sample by the others, which
    have a closed form. On digits, breast cancer and wine of scikit-learn the log-loss of new
    samples falls to between a sixth and nine tenths of that of the fraction of networks, over
    initialisations, that choose a class.

    Parameters
    ----------
    net, depth, activation, kernel, param, sample_shape, noise
        As in :class:`largen.NTKRegressor`.
    kind
        ``"ntk"``, or ``"nngp"`` for the Bayesian mean with the network as prior.
    optimize
        Whether to fit σ_w, σ_b and the ridge by :func:`largen.regression.fit_cross_validation`
        first, from those of ``net`` and ``noise``; this fit ignores the weights of samples.

    Attributes
    ----------
    classes_, posterior_
        The labels, and the :class:`largen.regression.Posterior` of the ±1 targets.
    scale_
        The standard deviation of outputs that makes their probabilities those of labels.
    net_, noise_, n_features_in_
        As in :class:`largen.NNGPRegressor`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> model = lg.NTKClassifier(lg.mlp(1, "relu")).fit(x, ["right", "up", "left"])
    >>> model.predict([[0.9, 0.1]]).tolist()
    ['right']
    """

    _kinds = ("ntk", "nngp")

    def _calibrate(self, targets: np.ndarray, sample_weight: Any) -> None:
        weights = weights_of(sample_weight, len(targets))
        if weights is not None:  # the posterior has samples of positive weight only
            targets, weights = targets[weights > 0], weights[weights > 0]
        given = self.posterior_.given
        assert isinstance(given, Inference)
        self.scale_ = scale_of(given, targets, weights)

    def _outputs(self, X: Any, mask: Any, test_kernel: Any) -> tuple[Any, Any]:
        check_is_fitted(self)
        # A precomputed kernel of new samples gives variances, which are not needed.
        mean = self._predicted(X, mask, None if self._precomputed else test_kernel).mean
        return mean, np.full(len(mean), self.scale_)


@dataclass(eq=False, repr=False, kw_only=True)
class NNGPClassifier(KernelClassifier, Bayesian):
    """Bayesian regression on class labels with an infinitely wide network as prior.

    Each class has one output, with target +1 for its own samples and −1 for all others; the
    predicted class has the largest mean. Outputs are those of :class:`NNGPRegressor`, and
    ``decision_function`` returns them in units of their standard deviations, noise included.

    Parameters
    ----------
    net, depth, activation, kernel, param, sample_shape, noise
        As in :class:`largen.NNGPRegressor`.
    optimize
        Whether to fit σ_w, σ_b and the noise to the ±1 targets by
        :func:`largen.regression.fit_likelihood` first.

    Attributes
    ----------
    classes_, posterior_
        The labels, and the :class:`largen.regression.Posterior` of the ±1 targets.
    net_, noise_, n_features_in_
        As in :class:`largen.NNGPRegressor`.

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

        Arguments are those of :meth:`predict_proba`. (sample, class), or for two classes (sample,),
        positive for the second.
        """
        mean, s = self._outputs(X, mask, test_kernel)
        return mean / s if mean.ndim == 1 else mean / s[:, None]


@dataclass(eq=False, repr=False, kw_only=True)
class KernelFlowClassifier(KernelClassifier, Flow):
    """Infinitely wide networks trained on class labels for a finite time, in the kernel limit.

    Gradient flow on the squared error of ±1 targets, as in :class:`NTKClassifier`, stops at a
    finite time, which replaces the ridge.

    Parameters
    ----------
    net, depth, activation, kernel, param, sample_shape, time, optimize
        As in :class:`largen.regression.KernelFlowRegressor`.

    Attributes
    ----------
    classes_, posterior_
        The labels, and the :class:`largen.regression.FlowPosterior` of the ±1 targets.
    net_, time_, n_features_in_
        As in :class:`largen.regression.KernelFlowRegressor`.

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
