"""Classification by regression on ±1 with the tangent kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from largen.errors import InvalidInput
from largen.kernels.estimators.samples import condition, default_network

_FLOATS = (np.float64, np.float32)


class NTKClassifier(ClassifierMixin, BaseEstimator):
    """Infinitely wide networks trained on class labels by the squared error, in the kernel limit.

    One output for each class with target +1 for its own samples and −1 for all others; the
    largest output wins. The outputs are the means of :class:`NTKRegressor`. There is no
    ``predict_proba``: the squared error does not estimate probabilities.

    Parameters
    ----------
    net
        The architecture; None for two hidden layers of relu with biases.
    noise
        The ridge ≥ 0, added to the kernel's diagonal as it is.
    param
        The parameterization; None for :func:`largen.ntk`.
    kind
        ``"ntk"``, or ``"nngp"`` for the Bayesian mean with the network as prior.

    Attributes
    ----------
    classes_
        The labels.
    posterior_
        The :class:`largen.kernels.prediction.Posterior` of the ±1 targets.
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
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> model = lg.NTKClassifier(lg.mlp(1, "relu")).fit(x, ["right", "up", "left"])
    >>> model.predict([[0.9, 0.1]]).tolist()
    ['right']
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NTKClassifier:
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
        if self.kind not in ("ntk", "nngp"):
            raise InvalidInput(f"kind: wanted 'ntk' or 'nngp', got {self.kind!r}.")
        self.classes_, position = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                f"y: wanted samples of two classes or more, got one class, {self.classes_[0]!r}."
            )
        targets = np.where(position[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        if len(self.classes_) == 2:
            targets = targets[:, 1]
        self.net_ = default_network() if self.net is None else self.net
        self.posterior_ = condition(
            self.net_, X, targets, sample_weight, self.noise, kind=self.kind, param=self.param
        )
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
        check_is_fitted(self)
        X = validate_data(self, X, dtype=_FLOATS, reset=False)
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
