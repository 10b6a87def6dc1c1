"""Posteriors against direct solves, samples against their covariance, singular kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kernels.references import numpy_mlp

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

RNG = np.random.default_rng(11)
X, X_TEST = RNG.standard_normal((30, 4)), RNG.standard_normal((30, 4))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
NET = lg.mlp(1, "erf", weight_std=1.4, bias_std=0.3)
KINDS = ("nngp", "ntk", "ntk-gp")


def direct(kind, noise, y):
    """Mean and covariance by np.linalg.solve, from kernels of another implementation."""
    nngp, ntk = numpy_mlp(np.concatenate([X, X_TEST]), "erf", 1, 1.4, 0.3)
    k = nngp if kind == "nngp" else ntk
    n = len(X)
    a = k[:n, :n] + np.diag(np.broadcast_to(noise, n))
    mean = k[n:, :n] @ np.linalg.solve(a, y)
    if kind != "ntk":
        return mean, k[n:, n:] - k[n:, :n] @ np.linalg.solve(a, k[:n, n:])
    response = np.linalg.solve(a, k[:n, n:]).T
    full = np.concatenate([-response, np.eye(len(X_TEST))], axis=1)
    return mean, full @ nngp @ full.T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.05, np.linspace(0.01, 1, 30)])
def test_equals_direct_solve(kind, noise):
    given = lg.posterior(NET, X, Y, kind=kind, noise=noise)
    mean, variance, none = given.predict(X_TEST)
    wanted_mean, wanted = direct(kind, noise, Y)
    assert none is None
    np.testing.assert_allclose(mean, wanted_mean, atol=1e-10)
    np.testing.assert_allclose(variance, np.diagonal(wanted), atol=1e-10)
    _, again, covariance = given.predict(X_TEST, covariance=True)
    np.testing.assert_allclose(covariance, wanted, atol=1e-10)
    np.testing.assert_array_equal(covariance, covariance.T)
    np.testing.assert_allclose(again, variance, atol=1e-10)
    assert given.status == "ok"
    assert given.rank == 30
    one, same, _ = lg.posterior(NET, X, Y[:, 1], kind=kind, noise=noise).predict(X_TEST)
    np.testing.assert_allclose(one, mean[:, 1], atol=1e-12)
    np.testing.assert_allclose(same, variance, atol=1e-12)


def test_many_test_samples():
    given = lg.posterior(NET, X, Y, noise=0.1)
    many = RNG.standard_normal((140, 4))
    mean, variance, covariance = given.predict(many, covariance=True)
    _, blockwise, _ = given.predict(many)
    np.testing.assert_allclose(blockwise, variance, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(covariance), variance, rtol=1e-12)
    np.testing.assert_allclose(given.predict(many[120:]).mean, mean[120:], atol=1e-13)


def test_interpolates_without_noise():
    for kind in KINDS:
        mean, variance, _ = lg.posterior(NET, X, Y, kind=kind).predict(X)
        np.testing.assert_allclose(mean, Y, atol=1e-9)
        np.testing.assert_allclose(variance, 0, atol=1e-9)


def test_trained_networks_are_those_of_the_kernel_limit():
    data = lg.Dataset(X, Y[:, 0], X_TEST, np.zeros(len(X_TEST)))
    flow = lg.gradient_flow()
    limit = lg.solve(lg.Run(NET, lg.ntk(), data, optimizer=flow, times=[0.0, 1e9]))
    mean, variance, _ = lg.posterior(NET, X, Y[:, 0], kind="ntk").predict(X_TEST)
    np.testing.assert_allclose(limit.f_test[-1], mean, atol=1e-9)
    np.testing.assert_allclose(limit.f_test_std[-1] ** 2, variance, atol=1e-9)


@pytest.mark.parametrize("kind", ["nngp", "ntk-gp"])
def test_log_likelihood_is_that_of_a_gaussian(kind):
    from scipy.stats import multivariate_normal

    k = lg.kernel(NET, X)[kind != "nngp"]
    given = lg.posterior(NET, X, Y, kind=kind, noise=0.1)
    law = multivariate_normal(np.zeros(30), k + 0.1 * np.eye(30))
    assert given.log_likelihood == pytest.approx(law.logpdf(Y.T).sum(), rel=1e-12)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_covariance_of_samples(kind):
    given = lg.posterior(NET, X, Y, kind=kind, noise=0.1)
    draws = given.sample(X_TEST[:6], key=3, draws=20_000)
    assert draws.shape == (20_000, 6, 2)
    mean, _, covariance = given.predict(X_TEST[:6], covariance=True)
    centred = draws - mean
    for c in (0, 1):
        found = centred[..., c].T @ centred[..., c] / len(draws)
        spread = np.sqrt((np.outer(*2 * [np.diagonal(covariance)]) + covariance**2) / len(draws))
        assert np.abs((found - covariance) / spread).max() < 4.5
        z = centred[..., c].mean(0) / np.sqrt(np.diagonal(covariance) / len(draws))
        assert np.abs(z).max() < 4
    between = (centred[..., 0] * centred[..., 1]).mean(0)
    assert np.abs(between / np.diagonal(covariance)).max() < 4 / np.sqrt(len(draws))


def test_equal_rows_are_reported_and_handled():
    x, y = np.concatenate([X, X[3:5]]), np.concatenate([Y, Y[3:5]])
    with pytest.raises(NumericalFailure, match=r"rank 30 of 32.*Rows 3 and 30, 4 and 31") as caught:
        lg.posterior(NET, x, y)
    assert "noise=" in str(caught.value)
    given = lg.posterior(NET, x, y, throw=False)
    assert given.status == caught.value.result.status == "singular"
    assert given.log_likelihood == -np.inf
    wanted = lg.posterior(NET, X, Y).predict(X_TEST, covariance=True)
    for got, want in zip(given.predict(X_TEST, covariance=True), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)
    assert lg.posterior(NET, x, y, noise=1e-6).status == "ok"


def test_a_smooth_kernel_of_many_close_rows_is_singular_too():
    x = np.linspace(0, 1, 60)[:, None]
    with pytest.raises(NumericalFailure, match=r"No two rows of x are equal.* ([^ ]+) is enough"):
        lg.posterior(NET, x, x[:, 0])
    given = lg.posterior(NET, x, x[:, 0], throw=False)
    assert given.rank < 60
    assert np.abs(given.predict(x).mean - x[:, 0]).max() < 1e-4
    assert lg.posterior(NET, x, x[:, 0], noise=1e-8).condition < 1e12


def test_condition_number_is_about_right():
    for noise in (1e-6, 1e-3, 1.0):
        given = lg.posterior(NET, X, Y, noise=noise)
        exact = np.linalg.cond(lg.nngp_kernel(NET, X) + noise * np.eye(30))
        assert 0.5 < given.condition / exact < 1.0001


def test_precision_follows_the_inputs_and_work_is_done_in_float64():
    x, x_test = X.astype(np.float32), X_TEST.astype(np.float32)
    single = lg.posterior(NET, x, Y, noise=1e-8).predict(x_test)
    double = lg.posterior(NET, x.astype(float), Y, noise=1e-8).predict(x_test.astype(float))
    assert single.mean.dtype == single.variance.dtype == np.float32
    np.testing.assert_allclose(single.mean, double.mean, atol=1e-6)
    np.testing.assert_allclose(single.variance, double.variance, atol=1e-6)
    assert isinstance(lg.posterior(NET, x, Y).predict(jnp.asarray(x_test)).mean, jax.Array)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_gradients_in_the_test_inputs(kind):
    given = lg.posterior(NET, X, Y[:, 0], kind=kind, noise=0.1)

    def moments(row):
        mean, variance, _ = given.predict(row[None])
        return mean[0], variance[0]

    with jax.enable_x64(True):
        slopes = jax.jacrev(moments)(jnp.asarray(X_TEST[0]))
    for i in range(4):
        step = 1e-5 * np.eye(4)[i]
        ahead, behind = moments(X_TEST[0] + step), moments(X_TEST[0] - step)
        for slope, a, b in zip(slopes, ahead, behind, strict=True):
            assert slope[i] == pytest.approx((a - b) / 2e-5, abs=1e-8)


BAD = [
    ({"x": X[:0], "y": Y[:0]}, "x: is empty"),
    ({"x": X * np.nan}, "x: .* NaN"),
    ({"x": X[0]}, r"x: wanted samples.*x\[None, :\]"),
    ({"x": X * 1j}, "x: wanted floats"),
    ({"y": Y[:5]}, "y: has 5 rows, x has 30"),
    ({"y": np.where(Y > 1, np.nan, Y) * np.inf}, "y: .* NaN or infinite"),
    ({"y": np.full(30, "a")}, "y: wanted"),
    ({"y": Y[:, :, None]}, "y: wanted 1 or 2 axes"),
    ({"noise": -1e-3}, "noise: wanted finite numbers ≥ 0"),
    ({"noise": np.nan}, "noise: .*NaN"),
    ({"noise": np.ones(7)}, r"noise: wanted one number or \(30,\)"),
    ({"noise": "small"}, "noise: wanted a variance or 'auto'"),
    ({"kind": "gp"}, "kind: 'gp' is not known"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input(change, message):
    arguments = {"net": NET, "x": X, "y": Y, **change}
    function = lg.posterior
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    with pytest.raises(InvalidInput, match=message):
        function(arguments.pop("net"), arguments.pop("x"), arguments.pop("y"), **arguments)


def test_bad_test_input():
    given = lg.posterior(NET, X, Y, noise=0.1)
    with pytest.raises(InvalidInput, match="x_test: has 3 inputs a sample, x has 4"):
        given.predict(X_TEST[:, :3])
    assert given.predict(X_TEST[:0]).mean.shape == (0, *Y.shape[1:])
    with pytest.raises(InvalidInput, match="draws"):
        given.sample(X_TEST, key=0, draws=0)
    with pytest.raises(InvalidInput, match="no marginal likelihood"):
        _ = lg.posterior(NET, X, Y, kind="ntk").log_likelihood
    with pytest.raises(InvalidInput, match="x: is traced"):
        jax.jit(lambda x: lg.posterior(NET, x, Y[:, 0]).predict(X_TEST).mean)(X)


@pytest.mark.parametrize(
    ("phi", "rows", "words"),
    [
        ("tanh", lambda x: np.concatenate([x, -x]), "0 and 3, 1 and 4, 2 and 5 of x are opposite"),
        ("erf", lambda x: np.concatenate([x, 0 * x[:1]]), "kernel of row 3 of x is zero"),
        ("relu", lambda x: np.concatenate([x, 2 * x[1:2]]), "1 and 3 of x are multiples"),
        ("tanh", lambda x: np.concatenate([x, x[:1] + 1e-9]), "some are too close"),
    ],
)
def test_rows_that_a_network_without_biases_cannot_tell_apart(phi, rows, words):
    x = rows(np.random.default_rng(0).standard_normal((3, 4)))
    y = np.arange(len(x), dtype=float)
    with pytest.raises(NumericalFailure, match=words):
        lg.posterior(lg.mlp(1, phi), x, y)
    if phi != "relu":  # whose tangent kernel of multiples is that of any rows
        with pytest.raises(NumericalFailure, match=f"{words}.* take finite times"):
            lg.regression.flow_posterior(lg.mlp(1, phi), x, y, time=np.inf)
