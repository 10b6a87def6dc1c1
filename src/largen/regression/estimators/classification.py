"""Classification with a posterior, by scikit-learn's contract."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from largen.arrays import opened
from largen.errors import InvalidInput
from largen.regression import KernelPosterior
from largen.regression.estimators.calibration import probabilities
from largen.regression.estimators.checks import checked_by_sklearn, named_by
from largen.regression.estimators.samples import weights_of
from largen.regression.estimators.tasks import FLOATS, KernelEstimator
from largen.text import shown


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """Classification by regression on ±1: the class with the largest output is predicted."""

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> Any:
        """Condition on samples.

        ``X``, ``y``: (sample, feature), or with ``kernel="precomputed"`` the kernel, (sample,
        sample); and labels (sample,). ``sample_weight``: (sample,), ≥ 0, equivalent to
        repeating samples. ``mask``: which positions of each sample are present, Booleans (sample,
        *space), for networks that read a ``sample_shape``; all by default.
        """
        X, y = checked_by_sklearn(self, X, y, dtype=FLOATS)
        with named_by("y"):
            check_classification_targets(y)
            self.classes_, position = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                "y: wanted samples of two classes or more, got one class, "
                f"{shown(self.classes_[0])}."
            )
        targets = np.where(position[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        if len(self.classes_) == 2:
            targets = targets[:, 1]
        self.posterior_ = self._condition(self._training(X, mask), targets, sample_weight)
        self._calibrate(targets, sample_weight)
        return self

    def _calibrate(self, targets: np.ndarray, sample_weight: Any) -> None:
        """Choose a scale of probabilities, in estimators that have one."""

    def decision_function(self, X: Any, mask: Any = None) -> Any:
        """Return the outputs, (sample, class); for two classes (sample,), positive for the second.

        ``X``: (sample, feature). ``mask``: which positions of each sample are present, (sample,
        *space); required if ``fit`` had one.
        """
        return self._predicted(X, mask).mean

    def predict_proba(self, X: Any, mask: Any = None, test_kernel: Any = None) -> Any:
        """Return the probability that a class's output is the largest, (sample, class).

        Outputs are independent Gaussians m_c + s z_c, so that

            P(c) = E[Π_{k≠c} Φ(z + (m_c − m_k)/s)],   z ~ N(0, 1);

        for two classes there is one output, and P = Φ(m/s). In :class:`largen.NTKClassifier` s is
        one number, the ``scale_`` with the least log-loss at predictions of each training sample by
        the others, so that probabilities are calibrated. In Bayesian inference s² is the predictive
        variance with σ_n², and for networks at a finite time the variance over initialisations, of
        which they are the fraction that choose the class, near 0 or 1 where all agree, right or
        wrong. These two belong to the regression on ±1, not to a model of labels; to calibrate them
        from labels, use ``sklearn.calibration.CalibratedClassifierCV``.

        ``X``: (sample, feature); ``mask``: as in :meth:`decision_function`; ``test_kernel``: with
        ``kernel="precomputed"``: K(x, x) of each new sample, (sample,), where s is a variance.
        """
        return probabilities(*self._outputs(X, mask, test_kernel))

    def _outputs(self, X: Any, mask: Any, test_kernel: Any) -> tuple[Any, Any]:
        """Return means of the outputs and their standard deviation, which all of them share."""
        check_is_fitted(self)
        if isinstance(self.posterior_, KernelPosterior) and not self.posterior_.bayesian:
            raise InvalidInput(
                "kernel: a precomputed NTK does not determine the variance over initialisations, "
                "which needs the network; wanted kernel='network'."
            )
        mean, variance, _ = self._predicted(X, mask, test_kernel, spread=True)
        least = np.finfo(np.float64).tiny  # where a function is known exactly
        return mean, np.sqrt(np.maximum(variance + self._noise_of_targets, least))

    def predict(self, X: Any, mask: Any = None) -> Any:
        """Return the label of the largest output; arguments as of :meth:`decision_function`."""
        outputs = self._predicted(X, mask).mean
        if outputs.ndim == 1:
            return self.classes_[(outputs > 0).astype(int)]
        return self.classes_[outputs.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, mask: Any = None) -> float:
        """Return the accuracy, the fraction of samples whose predicted label is right."""
        weights = weights_of(sample_weight, len(X))
        return float(accuracy_score(opened("y", y), self.predict(X, mask), sample_weight=weights))
