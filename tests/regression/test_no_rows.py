"""Predictions at no samples, as the last batch of a loop may have: arrays without rows."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y, LABELS = np.sin(X), np.arange(12) % 3
NONE = X[:0]
NET = lg.mlp(1, "relu", bias_std=0.3)
KERNEL = np.asarray(lg.ntk_kernel(NET, X))


def check(predict, none=NONE, some=X[:2]):
    """Hold what is returned of no samples against the first rows of what is returned of two."""
    empty, two = predict(none), predict(some)
    for one, other in zip(
        *(r if isinstance(r, tuple) else (r,) for r in (empty, two)), strict=True
    ):
        if other is None:
            assert one is None
            continue
        rows = tuple(0 if size == 2 else size for size in other.shape)
        assert one.shape == rows
        assert one.dtype == other.dtype


@pytest.mark.parametrize("y", [Y[:, 0], Y])
def test_posteriors(y):
    for kind in ("nngp", "ntk"):
        given = lg.posterior(NET, X, y, kind=kind, noise=0.1)
        check(given.predict)
        check(lambda x, given=given: given.predict(x, covariance=True))
        check(lambda x, given=given: given.sample(x, draws=5))
        check(given.predict, NONE.astype(np.float32), X[:2].astype(np.float32))
        assert given.predict(jnp.asarray(NONE)).mean.shape == (0, *y.shape[1:])
    flow = lg.regression.flow_posterior(NET, X, y, time=[1.0, 3.0, 9.0])
    check(flow.predict)
    kernels = lg.regression.posterior_from_kernel(KERNEL, y, noise=0.1)
    check(kernels.predict, KERNEL[:0], KERNEL[:2])
    for own in (np.zeros(0), np.zeros((0, 0))):
        assert kernels.predict(KERNEL[:0], own).mean.shape == (0, *y.shape[1:])
    assert kernels.sample(KERNEL[:0], np.zeros((0, 0)), draws=5).shape == (5, 0, *y.shape[1:])
    low = lg.regression.large.low_rank_posterior(NET, X, y, noise=0.1, landmarks=6)
    check(low.predict)
    with pytest.raises(InvalidInput, match=r"x_test: .*4 inputs"):
        low.predict(np.zeros((0, 4)))


@pytest.mark.parametrize(
    "model",
    [
        lg.NTKRegressor(NET, noise=0.1),
        pytest.param(lg.NNGPRegressor(NET), marks=pytest.mark.slow),
        pytest.param(lg.regression.KernelFlowRegressor(NET), marks=pytest.mark.slow),
    ],
)
def test_regressors(model):
    for y in (Y[:, 0], Y):
        model.fit(X, y)
        check(model.predict)
        check(lambda x: model.predict(x, return_std=True))
        check(lambda x: model.predict(x, return_cov=True))
        check(lambda x: model.sample_y(x, 5))


@pytest.mark.parametrize(
    "model",
    [
        lg.NTKClassifier(NET, noise=0.1),
        pytest.param(lg.NNGPClassifier(NET), marks=pytest.mark.slow),
        pytest.param(lg.regression.KernelFlowClassifier(NET), marks=pytest.mark.slow),
    ],
)
def test_classifiers(model):
    frame = pd.DataFrame(X, columns=list("abc"))
    for labels in (LABELS, LABELS % 2):
        model.fit(frame, labels)
        for ask in (model.predict, model.decision_function):
            check(ask, frame[:0], frame[:2])
        assert model.predict_proba(frame[:0]).shape == (0, len(model.classes_))
    with pytest.raises(InvalidInput, match="0 sample"):
        model.fit(X[:0], LABELS[:0])


def test_precomputed_kernels():
    model = lg.NTKRegressor(kernel="precomputed", noise=0.1).fit(KERNEL, Y[:, 0])
    check(model.predict, KERNEL[:0], KERNEL[:2])


@pytest.mark.slow
def test_posteriors_of_moving_features():
    for net in (lg.mlp(1, "linear"), lg.mlp(1, "erf"), lg.mlp(2, "erf")):
        given = lg.regression.adaptive_posterior(
            net, X, Y[:, 0], noise=0.1, param=lg.mean_field(gamma=0.5)
        )
        check(given.predict)
        check(lambda x, given=given: given.predict(x, width=100))
    with pytest.raises(InvalidInput, match="x_test: is empty"):
        lg.regression.rescaled_posterior(NET, X, Y[:, 0], NONE, width=10, noise=0.1)
