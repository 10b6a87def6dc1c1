"""Predictions from matrices: those of the networks, of coupled outputs, and from files."""

import re

import numpy as np
import pytest
from scipy.linalg import expm

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

RNG = np.random.default_rng(11)
X, X_TEST = RNG.standard_normal((30, 4)), RNG.standard_normal((30, 4))  # as in test_posterior
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
NET = lg.mlp(1, "erf", weight_std=1.4, bias_std=0.3)
K, THETA = lg.kernel(NET, X)
K_CROSS, THETA_CROSS = lg.kernel(NET, X_TEST, X)
K_TEST = lg.nngp_kernel(NET, X_TEST)
WEIGHTS = np.tile([0.0, 1.0, 2.0], 10)


@pytest.mark.parametrize("weights", [pytest.param(None, marks=pytest.mark.slow), WEIGHTS])
def test_kernels_of_networks_give_what_networks_give(weights):
    options = {"noise": 0.05, "weights": weights}
    bayesian = lg.posterior(NET, X, Y, **options)
    given = lg.regression.posterior_from_kernel(K, Y, **options)
    wanted = bayesian.predict(X_TEST, covariance=True)
    for got, want in zip(given.predict(K_CROSS, K_TEST), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-10)
    np.testing.assert_allclose(
        given.predict(K_CROSS, np.diagonal(K_TEST)).variance, wanted.variance, atol=1e-10
    )
    assert given.log_likelihood == pytest.approx(bayesian.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(
        given.sample(K_CROSS, K_TEST, key=1, draws=2),
        bayesian.sample(X_TEST, key=1, draws=2),
        atol=1e-6,
    )
    trained = lg.posterior(NET, X, Y, kind="ntk", **options).predict(X_TEST, covariance=True)
    given = lg.regression.posterior_from_kernel(THETA, Y, kind="ntk", prior=K, **options)
    for got, want in zip(
        given.predict(THETA_CROSS, K_TEST, prior_cross=K_CROSS), trained, strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-10)
    alone = lg.regression.posterior_from_kernel(THETA, Y, kind="ntk", **options)
    np.testing.assert_allclose(alone.predict(THETA_CROSS).mean, trained.mean, atol=1e-10)
    assert alone.predict(THETA_CROSS).variance is None


TIMES = [0.5, 20.0, np.inf]


def test_flow_at_many_times():
    """Against each time alone, against the matrix exponential, and forever against the inverse."""
    many = lg.regression.flow_posterior(NET, X, Y, time=TIMES)
    found = many.predict(X_TEST, covariance=True)
    assert found.mean.shape == (3, 30, 2)
    for t, mean, variance, covariance in zip(TIMES, *found, strict=True):
        alone = lg.regression.flow_posterior(NET, X, Y, time=t).predict(X_TEST, covariance=True)
        for got, want in zip((mean, variance, covariance), alone, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-12)
        response = THETA_CROSS @ np.linalg.solve(
            THETA, np.eye(30) - expm(-THETA * min(t, 1e9) / 30)
        )
        np.testing.assert_allclose(mean, response @ Y, atol=1e-9)
        spread = K_TEST - response @ K_CROSS.T - K_CROSS @ response.T + response @ K @ response.T
        np.testing.assert_allclose(covariance, spread, atol=1e-9)
    np.testing.assert_allclose(
        found.mean[-1], lg.posterior(NET, X, Y, kind="ntk").predict(X_TEST).mean, atol=1e-9
    )
    given = lg.regression.flow_posterior_from_kernel(THETA, Y, time=TIMES, prior=K)
    for got, want in zip(
        given.predict(THETA_CROSS, K_TEST, prior_cross=K_CROSS), found, strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-9)
    with pytest.raises(InvalidInput, match=r"time: sample\(\) needs a single time"):
        many.sample(X_TEST, key=0)


@pytest.mark.slow
def test_an_infinite_time_of_a_singular_kernel():
    """Equal rows end at the mean of their targets."""
    x, y = X[[0, 0, 1]], np.array([1.0, 3.0, 0.0])
    with pytest.raises(NumericalFailure, match="rank 2 of 3"):
        lg.regression.flow_posterior(NET, x, y, time=np.inf)
    given = lg.regression.flow_posterior(NET, x, y, time=[1.0, np.inf], throw=False)
    assert given.status == "singular"
    np.testing.assert_allclose(given.predict(x).mean[1], [2.0, 2.0, 0.0], atol=1e-9)
    assert lg.regression.flow_posterior(NET, x, y, time=[1.0, 1e9]).status == "ok"


@pytest.mark.slow
def test_outputs_that_are_coupled():
    """The empirical tangent kernel of a network of two outputs, against one large matrix."""
    net, param = lg.mlp(1, "erf"), lg.ntk()
    params = lg.networks.init(net, param, width=6, inputs=4, outputs=2, key=0, dtype=np.float64)
    kernel, cross, test = (
        lg.networks.empirical_ntk(net, params, *x)
        for x in ((X[:12],), (X_TEST[:5], X[:12]), (X_TEST[:5],))
    )
    large = kernel.transpose(0, 2, 1, 3).reshape(24, 24)
    large_cross = cross.transpose(0, 2, 1, 3).reshape(10, 24)
    y = Y[:12]
    given = lg.regression.posterior_from_kernel(kernel, y, noise=0.1)
    inverse = np.linalg.inv(large + 0.1 * np.eye(24))
    found = given.predict(cross, test)
    np.testing.assert_allclose(
        found.mean, (large_cross @ inverse @ y.ravel()).reshape(5, 2), atol=1e-10
    )
    covariance = test.transpose(0, 2, 1, 3).reshape(10, 10) - large_cross @ inverse @ large_cross.T
    np.testing.assert_allclose(
        found.covariance.transpose(0, 2, 1, 3).reshape(10, 10), covariance, atol=1e-10
    )
    np.testing.assert_allclose(found.variance.ravel(), np.diagonal(covariance), atol=1e-10)
    assert given.sample(cross, test, key=0, draws=3).shape == (3, 5, 2)
    flow = lg.regression.flow_posterior_from_kernel(kernel, y, time=[3.0, 9.0]).predict(cross).mean
    left = np.linalg.solve(large, np.eye(24) - expm(-large * 9.0 / 12))
    np.testing.assert_allclose(flow[1].ravel(), large_cross @ left @ y.ravel(), atol=1e-10)
    largest = np.linalg.eigvalsh(large)[-1]
    assert lg.regression.critical_learning_rate(kernel) == pytest.approx(2 * 12 / largest)
    times, modes = lg.regression.relaxation_times(kernel)
    assert modes.shape == (12, 2, 24)
    assert times[0] == pytest.approx(12 / largest)


def test_kernels_that_are_stored(tmp_path):
    stored = lg.regression.large.stored_kernel(tmp_path / "kernel", NET, X)
    found = lg.regression.posterior_from_kernel(stored["nngp"], Y, noise=0.05)
    np.testing.assert_allclose(
        found.predict(K_CROSS).mean, lg.posterior(NET, X, Y, noise=0.05).predict(X_TEST).mean,
        atol=1e-10,
    )  # fmt: skip
    assert lg.regression.critical_learning_rate(stored["ntk"]) == pytest.approx(
        lg.regression.critical_learning_rate(THETA)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": K[:, :4]}, "kernel: wanted a square"),
        ({"kernel": K + np.triu(K)}, "kernel: wanted a symmetric"),
        ({"kernel": K * np.nan}, "kernel: .* NaN"),
        ({"y": Y[:3]}, "y: has 3 rows"),
        ({"kind": "gauss"}, "kind: 'gauss' is not known"),
        ({"prior": K}, "prior: belongs to kind='ntk'"),
        ({"kind": "ntk", "prior": K[:4, :4]}, "prior: wanted the shape"),
        ({"noise": "small"}, "noise: wanted a variance or 'auto'"),
        ({"weights": -WEIGHTS}, "weights: wanted finite numbers ≥ 0"),
    ],
)
def test_bad_matrices(change, message):
    arguments = {"kernel": K, "y": Y, "noise": 0.1, **change}
    with pytest.raises(InvalidInput, match=message):
        lg.regression.posterior_from_kernel(
            arguments.pop("kernel"), arguments.pop("y"), **arguments
        )


def test_bad_matrices_of_test_samples():
    given = lg.regression.posterior_from_kernel(THETA, Y, kind="ntk", noise=0.1)
    with pytest.raises(InvalidInput, match=r"cross: wanted \(test_sample, 30\)"):
        given.predict(THETA_CROSS.T[:5, :7])
    with pytest.raises(InvalidInput, match="variances of trained networks need the NNGP"):
        given.predict(THETA_CROSS, K_TEST)
    with pytest.raises(InvalidInput, match="test: does not fit"):
        lg.regression.posterior_from_kernel(K, Y, noise=0.1).predict(K_CROSS, K_TEST[:3])
    with pytest.raises(InvalidInput, match="no marginal likelihood"):
        _ = given.log_likelihood
    for time in (-1.0, [1.0, -1.0], [], "soon", np.nan):
        with pytest.raises(InvalidInput, match="time: wanted"):
            lg.regression.flow_posterior_from_kernel(THETA, Y, time=time)
    with pytest.raises(NumericalFailure, match="kernel of 60 training inputs is singular"):
        lg.regression.posterior_from_kernel(np.tile(K, (2, 2)), np.tile(Y, (2, 1)))


INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and -1


@pytest.mark.parametrize(
    "call",
    [
        lambda k: lg.regression.posterior_from_kernel(k, np.ones(2)),
        lambda k: lg.regression.posterior_from_kernel(k, np.ones(2), noise="auto"),
        lambda k: lg.regression.posterior_from_kernel(k, np.ones(2), noise=0.9),
        lambda k: lg.regression.posterior_from_kernel(np.eye(2), np.ones(2), kind="ntk", prior=k),
        lambda k: lg.regression.flow_posterior_from_kernel(k, np.ones(2), time=1.0),
        lambda k: lg.regression.flow_posterior_from_kernel(
            np.eye(2), np.ones(2), time=1.0, prior=k
        ),
        lg.regression.critical_learning_rate,
        lg.regression.optimal_learning_rate,
        lg.regression.relaxation_times,
        lambda k: lg.NNGPRegressor(kernel="precomputed").fit(k, np.ones(2)),
        lambda k: lg.regression.relaxation_times(np.einsum("ij,kl->ijkl", k, np.eye(3))),
    ],
)
def test_a_kernel_has_no_negative_eigenvalues(call):
    with pytest.raises(
        InvalidInput, match=r"wanted a positive semidefinite kernel, got .* -1 to 3"
    ):
        call(INDEFINITE)
    with pytest.raises(InvalidInput, match="negative eigenvalue"):
        lg.regression.large.solve_kernel(INDEFINITE, np.array([1.0, -1.0]), noise=0.1)


def test_rounding_in_single_precision_is_no_negative_eigenvalue():
    """Of a kernel of low rank, half of whose eigenvalues are rounding."""
    rows = np.random.default_rng(0).standard_normal((60, 20))
    kernel = (rows @ rows.T).astype(np.float32).astype(float)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] < -1e-7
    times = lg.regression.relaxation_times(kernel).times
    assert times[0] == pytest.approx(60 / values[-1])
    assert lg.regression.flow_posterior_from_kernel(kernel, rows[:, 0], time=1.0).status == "ok"
    one_sided = kernel + np.triu(kernel, 1) * 1e-7
    assert lg.regression.critical_learning_rate(one_sided) == pytest.approx(2 * times[0], rel=1e-6)
    lg.regression.posterior_from_kernel(kernel, rows[:, 0], noise=1e-3)


def _kernels_that_need_noise():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((12, 5))
    low = rows @ rows.T
    yield "indefinite", INDEFINITE, {}
    yield "indefinite with some noise", INDEFINITE, {"noise": 0.97}
    yield "weights", low, {"weights": np.linspace(0.0, 30.0, 12)}
    yield "indefinite with weights", INDEFINITE, {"weights": np.array([0.3, 7.0])}
    yield "low rank", low, {}
    yield "low rank, single precision", low.astype(np.float32).astype(float), {}
    yield "some noise", low, {"noise": 1e-13 * np.trace(low)}
    yield "noises", low, {"noise": np.linspace(0, 1e-12, 12)}
    yield "estimate", low / 5 + 0.01 * (lambda e: e + e.T)(rng.standard_normal((12, 12))), {}
    yield "zero", np.zeros((3, 3)), {}
    yield "large", 1e12 * low, {}
    yield "small", 1e-12 * low, {}


@pytest.mark.parametrize(("name", "kernel", "options"), list(_kernels_that_need_noise()))
@pytest.mark.parametrize("kind", ["gp", "ntk"])
def test_the_noise_that_a_message_names_is_enough(name, kernel, options, kind):
    y = np.ones(len(kernel))
    with pytest.raises(
        (InvalidInput, NumericalFailure), match=r"(is enough|any will do)"
    ) as refused:
        lg.regression.posterior_from_kernel(kernel, y, kind=kind, **options)
    words = str(refused.value)
    noise = 1e-3 if "any will do" in words else float(re.search(r"(\S+) is enough", words)[1])
    given = lg.regression.posterior_from_kernel(kernel, y, kind=kind, **{**options, "noise": noise})
    assert given.status == "ok"
    assert given.condition < 1e12
