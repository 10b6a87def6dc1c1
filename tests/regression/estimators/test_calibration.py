"""Probabilities of NTKClassifier are those of labels, by predictions that leave samples out."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import log_loss

import largen as lg
from largen.regression.estimators.calibration import _left_out, probabilities

RNG = np.random.default_rng(0)
NET = lg.mlp(1, "relu", bias_std=0.4)
X = RNG.standard_normal((20, 3))
LABELS = np.where(X[:, 0] + 0.7 * RNG.standard_normal(20) > 0, 1, 0)
LOADERS = {"digits": load_digits, "cancer": load_breast_cancer, "wine": load_wine}


def test_left_out_predictions_are_those_of_other_fits():
    """Of one copy of a sample, where it has a weight."""
    y, weights = 2.0 * LABELS - 1, np.tile([1.0, 3.0, 0.5, 1.0], 5)
    for w in (np.ones(20), weights):
        given = lg.NTKClassifier(NET, noise=0.2).fit(X, LABELS, sample_weight=w).posterior_.given
        found = _left_out(given, y[:, None], w)[:, 0]
        for i in range(6):
            left = np.where(np.arange(20) == i, w - np.minimum(w, 1), w)
            model = lg.NTKClassifier(NET, noise=0.2).fit(X, LABELS, sample_weight=left)
            assert found[i] == pytest.approx(model.decision_function(X[i : i + 1])[0], abs=1e-9)


def test_weights_are_repetitions_and_kernels_are_networks():
    weights = np.tile([1, 2, 3, 0], 5)
    rows = np.repeat(np.arange(20), weights)
    for labels in (LABELS, np.digitize(X[:, 0], [-0.5, 0.5])):
        one = lg.NTKClassifier(NET, noise=0.3).fit(X, labels, sample_weight=weights)
        two = lg.NTKClassifier(NET, noise=0.3).fit(X[rows], labels[rows])
        assert one.scale_ == two.scale_
        np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-7)
        kernel = lg.ntk_kernel(NET, X)
        three = lg.NTKClassifier(kernel="precomputed", noise=0.3)
        three.fit(kernel, labels, sample_weight=weights)
        assert three.scale_ == one.scale_
        np.testing.assert_allclose(three.predict_proba(kernel), one.predict_proba(X), rtol=1e-7)


def test_labels_that_are_all_right_leave_a_doubt():
    x = np.array([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [-0.9, 0.1]])
    model = lg.NTKClassifier(NET, noise=1e-3).fit(x, [1, 1, 0, 0])
    assert 0.7 < model.predict_proba(x).max() < 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("digits", 300), ("cancer", 300), ("wine", 100)])
def test_the_log_loss_of_new_samples_falls(name, count):
    data = LOADERS[name]()
    x, y = (data.data - data.data.mean(0)) / np.maximum(data.data.std(0), 1e-9), data.target
    order = np.random.default_rng(0).permutation(len(x))
    fit, new = order[:count], order[count : count + 400]
    model = lg.NTKClassifier().fit(x[fit], y[fit])
    found = model.predict_proba(x[new])
    moments = model.posterior_.predict(x[new])
    of_networks = probabilities(moments.mean, np.sqrt(moments.variance))
    losses = [log_loss(y[new], each, labels=model.classes_) for each in (found, of_networks)]
    assert losses[0] < 0.95 * losses[1]
    best = min(
        log_loss(y[new], probabilities(moments.mean, np.full(len(new), s)), labels=model.classes_)
        for s in 2.0 ** np.arange(-4, 2, 0.5)
    )
    assert losses[0] < 1.3 * best + 0.05  # in wine all labels are right, and the best scale is 0
    np.testing.assert_array_equal(model.classes_[found.argmax(1)], model.predict(x[new]))
