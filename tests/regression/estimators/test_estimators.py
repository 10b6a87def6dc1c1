"""The contract of scikit-learn, and what the estimators add to the posteriors."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import norm
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import (
    load_diabetes,
    load_digits,
    make_friedman1,
    make_sparse_uncorrelated,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.kernels import padding

RNG = np.random.default_rng(2)
X, X_TEST = RNG.standard_normal((30, 4)), RNG.standard_normal((30, 4))  # as in test_posterior
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
NET = lg.mlp(1, "erf", bias_std=0.5)
LINEAR = lg.serial(lg.Dense(bias_std=1.0), lg.Dense())
ALL = (
    lg.NNGPRegressor,
    lg.NTKRegressor,
    lg.regression.KernelFlowRegressor,
    lg.NNGPClassifier,
    lg.NTKClassifier,
    lg.regression.KernelFlowClassifier,
)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ALL)
def test_contract_of_scikit_learn(estimator, monkeypatch):
    # The checks fit many sizes; with fewer standard ones less is compiled.
    monkeypatch.setattr(padding, "standard_size", lambda n, *_: 32 if n <= 32 else max(256, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator(LINEAR), on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    assert len(results) > 50


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (lg.NNGPRegressor(NET, noise=0.1, normalize_y=False), "nngp"),
        (lg.NTKRegressor(NET, noise=0.1, normalize_y=False), "ntk"),
        (lg.NTKRegressor(NET, noise=0.1, kind="ntk-gp", normalize_y=False), "ntk-gp"),
    ],
)
def test_regressors_are_the_posteriors(estimator, kind):
    """With the noise of new targets, where the posterior is a Bayesian one."""
    given = lg.posterior(NET, X, Y, kind=kind, noise=0.1)
    wanted = given.predict(X_TEST, covariance=True)
    noise = 0.0 if kind == "ntk" else 0.1
    mean, std = estimator.fit(X, Y).predict(X_TEST, return_std=True)
    np.testing.assert_allclose(mean, wanted.mean, atol=1e-12)
    np.testing.assert_allclose(std**2, np.stack([wanted.variance + noise] * 2, axis=1), atol=1e-12)
    _, covariance = estimator.predict(X_TEST, return_cov=True)
    np.testing.assert_allclose(
        covariance[..., 1], wanted.covariance + noise * np.eye(30), atol=1e-12
    )
    draws = estimator.sample_y(X_TEST, 4000, random_state=1)
    np.testing.assert_array_equal(draws, estimator.sample_y(X_TEST, 4000, random_state=1))
    z = (draws.mean(-1) - mean) / (std / np.sqrt(4000))
    assert np.abs(z).max() < 4.5
    np.testing.assert_allclose(draws.var(-1) / std**2, 1.0, atol=4.5 * np.sqrt(2 / 4000))
    one, its_std = estimator.fit(X, Y[:, 0]).predict(X_TEST, return_std=True)
    assert one.shape == its_std.shape == (30,)
    with pytest.raises(InvalidInput, match="at most one"):
        estimator.predict(X_TEST, return_std=True, return_cov=True)


DATA = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "friedman": lambda: make_friedman1(442, noise=1.0, random_state=0),
    "sparse": lambda: make_sparse_uncorrelated(442, random_state=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
def test_intervals_hold_as_many_targets_as_they_say(data):
    """At 95 %, and as many as those of scikit-learn with its white kernel."""
    x, y = (standardised(each) for each in DATA[data]())
    seen, new = slice(200), slice(200, None)

    def held(model):
        mean, std = model.fit(x[seen], y[seen]).predict(x[new], return_std=True)
        return np.mean(np.abs(mean - y[new]) < norm.ppf(0.975) * std)

    net = lg.mlp(1, "erf", bias_std=0.5)
    bayesian = lg.NNGPRegressor(net, noise=0.5, optimize=True)
    tangent = lg.NTKRegressor(net, noise=0.5, kind="ntk-gp", optimize=True)
    peer = GaussianProcessRegressor(ConstantKernel() * RBF(3.0) + WhiteKernel(0.5))
    theirs = held(peer)
    for model in (bayesian, tangent):
        share = held(model)
        # The standard error of a share of 242 targets is 0.014.
        assert 0.95 - 3 * 0.014 < share < 1
        assert abs(share - theirs) < 3 * 0.014
    if data == "diabetes":  # most of the variance is noise, and must not be left out
        mean, variance, _ = bayesian.posterior_.predict(x[new])
        assert np.mean(np.abs(mean - y[new]) < norm.ppf(0.975) * variance**0.5) < 0.6


def standardised(columns):
    return (columns - columns.mean(0)) / columns.std(0)


@pytest.mark.parametrize("kind", ["nngp", "ntk", "ntk-gp", "flow"])
def test_a_weight_counts_as_so_many_equal_samples(kind):
    def estimator():
        if kind == "nngp":
            return lg.NNGPRegressor(NET, noise=0.1)
        if kind == "flow":
            return lg.regression.KernelFlowRegressor(NET, time=20.0)
        return lg.NTKRegressor(NET, noise=0.1, kind=kind)

    weight = np.tile([0, 1, 2], 10)
    weighted = estimator().fit(X, Y, sample_weight=weight).predict(X_TEST, return_std=True)
    x, y = np.repeat(X, weight, axis=0), np.repeat(Y, weight, axis=0)
    for got, want in zip(
        weighted, estimator().fit(x, y).predict(X_TEST, return_std=True), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-10)


def test_optimize_raises_the_likelihood():
    y = 1 + np.cos(X[:, 0]) + 0.1 * RNG.standard_normal(30)
    plain = lg.NNGPRegressor(NET, noise=0.5).fit(X, y)
    fitted = lg.NNGPRegressor(NET, noise=0.5, optimize=True).fit(X, y)
    assert fitted.posterior_.log_likelihood > plain.posterior_.log_likelihood + 1
    assert fitted.net_ != NET
    assert fitted.noise_ != 0.5
    assert fitted.get_params()["net"] == NET


def test_networks_survive_copies_and_pickles():
    custom = lg.mlp(1, _rational)
    for net in (NET, LINEAR, lg.mlp(2, "tanh"), custom):
        assert pickle.loads(pickle.dumps(net)) == net
        assert copy.deepcopy(net) == net
    model = clone(lg.NNGPRegressor(NET, noise=0.1)).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X_TEST), model.predict(X_TEST))


def _rational(x):
    return x**2 / (1 + x**2)


def test_inside_pipelines_and_searches():
    pipeline = make_pipeline(StandardScaler(), lg.NNGPRegressor(NET))
    grid = {"nngpregressor__noise": [1e-3, 1e3]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, np.sin(X[:, 0]))
    assert search.best_params_ == {"nngpregressor__noise": 1e-3}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_digits(kind):
    images, labels = load_digits(return_X_y=True)
    x = (images - images.mean(0)) / 6.0
    net = lg.mlp(1, "relu", weight_std=2**0.5)
    model = lg.NTKClassifier(net, noise=1e-2, kind=kind).fit(x[:900], labels[:900])
    assert model.score(x[900:], labels[900:]) > 0.94
    assert model.decision_function(x[900:]).shape == (897, 10)
    assert model.predict(x[:900]).tolist() == labels[:900].tolist()


@pytest.mark.slow
def test_flow_is_the_kernel_limit_at_its_time():
    """Mean and standard deviation of lg.solve; at late times, of networks trained for ever."""
    data = lg.Dataset(X, Y, X_TEST, Y)
    run = lg.Run(NET, lg.ntk(), data, optimizer=lg.gradient_flow(1.0), times=np.array([0.0, 7.0]))
    limit = lg.solve(run)
    model = lg.regression.KernelFlowRegressor(NET, time=7.0, normalize_y=False).fit(X, Y)
    mean, std = model.predict(X_TEST, return_std=True)
    np.testing.assert_allclose(mean, limit.f_test[-1], atol=1e-10)
    np.testing.assert_allclose(std, limit.f_test_std[-1], atol=1e-10)
    late = lg.regression.KernelFlowRegressor(NET, time=1e12).fit(X, Y).predict(X_TEST)
    exact = lg.NTKRegressor(NET, noise=0.0).fit(X, Y).predict(X_TEST)
    np.testing.assert_allclose(late, exact, rtol=1e-6, atol=1e-6)
    twice = lg.regression.flow_posterior(NET, X[[0, 0, 1]], Y[[0, 0, 1]], time=5.0)
    assert twice.status == "ok"
    assert np.isfinite(twice.predict(X_TEST).mean).all()


def test_probabilities_of_classes():
    """P(largest) against draws from the same Gaussians, and Φ for two classes."""
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    model = lg.NNGPClassifier(NET, noise=0.3).fit(X, labels)
    found = model.predict_proba(X_TEST)
    mean, variance, _ = model.posterior_.predict(X_TEST)
    z = np.random.default_rng(0).standard_normal((40_000, 1, 3))
    draws = np.argmax(mean + np.sqrt(variance + 0.3)[:, None] * z, axis=2)
    counted = np.stack([np.mean(draws == c, axis=0) for c in range(3)], axis=1)
    np.testing.assert_allclose(found, counted, atol=5 * 0.5 / 200)
    np.testing.assert_array_equal(found.argmax(1), mean.argmax(1))
    scores = mean / np.sqrt(variance + 0.3)[:, None]
    np.testing.assert_allclose(model.decision_function(X_TEST), scores, rtol=1e-12)


@pytest.mark.parametrize("labels", [X[:, 0] > 0, np.digitize(X[:, 0], [-0.5, 0.5])])
def test_probabilities_are_the_fraction_of_trained_networks_that_choose_a_class(labels):
    model = lg.regression.KernelFlowClassifier(NET, time=5.0)
    found = model.fit(X, labels).predict_proba(X_TEST)
    draws = model.posterior_.sample(X_TEST, key=0, draws=4000)
    chosen = (draws > 0).astype(int) if draws.ndim == 2 else draws.argmax(-1)
    counted = np.stack([np.mean(chosen == c, axis=0) for c in range(found.shape[1])], axis=1)
    error = np.sqrt(np.maximum(found * (1 - found), 1e-4) / 4000)
    assert np.abs((counted - found) / error).max() < 4.5


def test_probabilities_need_more_than_a_precomputed_tangent_kernel():
    flow = lg.regression.KernelFlowClassifier(kernel="precomputed")
    model = flow.fit(lg.ntk_kernel(NET, X), X[:, 0] > 0)
    with pytest.raises(InvalidInput, match="needs the network"):
        model.predict_proba(lg.ntk_kernel(NET, X_TEST, X), test_kernel=np.ones(len(X_TEST)))


@pytest.mark.parametrize("noise", [1e-4, 0.3])
def test_scores_of_two_classes_rank_samples_as_probabilities_do(noise):
    two = lg.NNGPClassifier(NET, noise=noise).fit(X, X[:, 0] > 0)
    mean, variance, _ = two.posterior_.predict(X_TEST)
    scores = two.decision_function(X_TEST)
    np.testing.assert_allclose(scores, mean / np.sqrt(variance + noise), rtol=1e-10)
    found = two.predict_proba(X_TEST)[:, 1]
    np.testing.assert_allclose(found, norm.cdf(scores), rtol=1e-10)
    assert not np.array_equal(np.argsort(mean), np.argsort(scores))  # the means rank otherwise
    np.testing.assert_array_equal(two.predict(X_TEST), scores > 0)


def test_labels_of_two_classes_and_of_one():
    labels = np.where(X[:, 0] > 0, "right", "left")
    model = lg.NTKClassifier(NET).fit(X, labels)
    assert model.decision_function(X_TEST).shape == (30,)
    assert model.score(X, labels) > 0.9
    with pytest.raises(InvalidInput, match="one class"):
        model.fit(X, np.full(30, "left"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": -1.0}, "noise: wanted 'auto' or a finite variance ≥ 0"),
        ({"noise": "best"}, "noise: wanted 'auto'"),
        ({"kind": "rbf"}, "kind: 'rbf' is not known"),
        ({"kernel": "rbf"}, "kernel: 'rbf' is not known"),
        ({"depth": 0}, "depth: wanted an integer ≥ 1"),
        ({"activation": "rely"}, "activation: 'rely' is not known"),
        ({"net": NET, "depth": 1}, "depth: belongs to the default network"),
        ({"kernel": "precomputed"}, "X: wanted a square kernel"),
    ],
)
def test_bad_parameters_are_named_when_fitted(change, message):
    for estimator in (lg.NTKRegressor, lg.NTKClassifier):
        model = estimator().set_params(**change)
        with pytest.raises(InvalidInput, match=message):
            model.fit(X, (X[:, 0] > 0).astype(int))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": -1.0}, "time: wanted a finite number ≥ 0"),
        ({"time": 1.0, "weights": np.ones(3)}, r"weights: wanted \(30,\)"),
        ({"time": 1.0, "weights": np.zeros(30)}, "weights: all are zero"),
    ],
)
def test_bad_times_and_weights(options, message):
    with pytest.raises(InvalidInput, match=message):
        lg.regression.flow_posterior(NET, X, Y, **options)


def test_rows_as_images():
    """Rows are reshaped for convolutions: the posterior of the images themselves."""
    net = lg.serial(lg.Conv((2, 2)), lg.Activation("relu"), lg.Flatten(), lg.Dense())
    options = {"noise": 0.1, "sample_shape": (2, 2, 1), "normalize_y": False}
    model = lg.NTKRegressor(net, **options).fit(X, Y)
    given = lg.posterior(net, X.reshape(30, 2, 2, 1), Y, kind="ntk", noise=0.1)
    wanted = given.predict(X_TEST.reshape(30, 2, 2, 1)).mean
    np.testing.assert_allclose(model.predict(X_TEST), wanted, rtol=1e-12)
    assert clone(model).get_params()["sample_shape"] == (2, 2, 1)
    with pytest.raises(InvalidInput, match="has 9 numbers, and X 4 features"):
        lg.NTKClassifier(net, sample_shape=(3, 3, 1)).fit(X, X[:, 0] > 0)


THERE, THERE_TEST = (np.arange(4) < RNG.integers(2, 5, (30, 1)) for _ in range(2))
SPATIAL = {"net": lg.serial(lg.Conv((2,)), lg.Activation("erf"), lg.GlobalAvgPool(), lg.Dense())}
SPATIAL |= {"sample_shape": (4, 1)}


@pytest.mark.slow
def test_masks_are_those_of_the_posterior():
    """Also of weighted samples, some of which are left out with their masks."""
    weight = np.tile([0, 1, 2], 10)
    model = lg.NNGPRegressor(**SPATIAL, noise=0.1, normalize_y=False)
    model.fit(X, Y, sample_weight=weight, mask=THERE)
    x, y, there = (np.repeat(a, weight, axis=0) for a in (X.reshape(30, 4, 1), Y, THERE))
    given = lg.posterior(SPATIAL["net"], x, y, noise=0.1, mask=there)
    wanted = given.predict(X_TEST.reshape(30, 4, 1), mask=THERE_TEST, covariance=True)
    mean, covariance = model.predict(X_TEST, return_cov=True, mask=THERE_TEST)
    np.testing.assert_allclose(mean, wanted.mean, atol=1e-10)
    of_targets = wanted.covariance + 0.1 * np.eye(30)
    np.testing.assert_allclose(covariance[..., 0], of_targets, atol=1e-10)
    off = np.sum((Y - wanted.mean) ** 2, axis=0) / np.sum((Y - Y.mean(0)) ** 2, axis=0)
    assert model.score(X_TEST, Y, mask=THERE_TEST) == pytest.approx(1 - off.mean(), abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ALL)
def test_what_is_hidden_does_not_matter(estimator):
    """Neither to fitted constants, nor to what is predicted; and forgotten masks are refused."""
    classes = (X[:, 0] > 0).astype(int)
    y, methods = Y[:, 0], ["predict", "sample_y"]
    if hasattr(estimator, "decision_function"):
        y, methods = classes, ["predict", "decision_function", "predict_proba"]
    other, other_test = (np.where(*each, 7.0) for each in ((THERE, X), (THERE_TEST, X_TEST)))
    one, two = (estimator(**SPATIAL, optimize=True).fit(x, y, mask=THERE) for x in (X, other))
    for name in methods:
        got, want = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(
            got(X_TEST, mask=THERE_TEST), want(other_test, mask=THERE_TEST), rtol=1e-6, atol=1e-9
        )
        with pytest.raises(InvalidInput, match="mask: fit had one"):
            got(X_TEST)
    scores = one.score(X_TEST, y, mask=THERE_TEST), two.score(other_test, y, mask=THERE_TEST)
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    with pytest.raises(InvalidInput, match="set_score_request"):
        one.score(X_TEST, y)


@pytest.mark.slow
def test_masks_are_routed_through_searches():
    model = lg.NNGPRegressor(**SPATIAL)
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(mask=True).set_score_request(mask=True)
        folds = KFold(3)
        found = cross_val_score(model, X, Y, cv=folds, params={"mask": THERE})
        for score, (seen, new) in zip(found, folds.split(X), strict=True):
            fitted = clone(model).fit(X[seen], Y[seen], mask=THERE[seen])
            assert score == fitted.score(X[new], Y[new], mask=THERE[new])


def test_bad_samples():
    model = lg.NNGPRegressor(NET)
    for x, y, message in [
        (X[:0], Y[:0], "0 sample"),
        (X * np.nan, Y, "NaN"),
        (X, Y[:4], "inconsistent numbers of samples"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(x, y)
    with pytest.raises(ValueError, match="expecting 4 features"):
        model.fit(X, Y).predict(X[:, :3])
    with pytest.raises(InvalidInput, match="all weights are zero"):
        model.fit(X, Y, sample_weight=np.zeros(30))
    with pytest.raises(InvalidInput, match="weights ≥ 0"):
        model.fit(X, Y, sample_weight=-np.ones(30))
    with pytest.raises(NumericalFailure, match="Rows 0 and 30"):
        lg.NNGPRegressor(NET, noise=0.0).fit(np.concatenate([X, X[:1]]), np.ones(31))
