"""The posterior of one hidden layer against quadrature, exact finite widths and limits."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import erf
from tests.regression.equilibrium.exact_widths import at_width

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure

RNG = np.random.default_rng(3)
PLANE = RNG.standard_normal((6, 2))
X, X_TEST = PLANE[:4], PLANE[4:]
Y = np.array([1.0, -1.0, 1.0, -1.0])
TWO = np.stack([Y, np.array([0.2, 0.5, -0.8, 0.4])], 1)
PHI = {"tanh": np.tanh, "erf": erf, "relu": lambda h: np.maximum(h, 0)}


def adaptive(phi, gamma, noise, y=Y, **options):
    net, param = lg.mlp(1, phi), lg.mean_field(gamma)
    return lg.regression.adaptive_posterior(net, X, y, noise=noise, param=param, **options)


def by_quadrature(phi, gamma, noise, y, step=0.1, reach=11.0):
    """Return α, f, V (tests last), Φ and S from the trapezoidal rule on the plane of weights."""
    axis = np.arange(-reach, reach + step / 2, step)
    xi = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    logs = -np.sum(xi**2, 1) / 2 + 2 * np.log(step) - np.log(2 * np.pi)
    values = PHI[phi](xi @ PLANE.T / np.sqrt(2))
    y = y.reshape(4, -1)

    def negative(alpha):
        alpha = alpha.reshape(y.shape)
        s = values[:, :4] @ alpha
        exponents = logs + gamma**2 * np.sum(s**2, 1) / 2
        top = exponents.max()
        w = np.exp(exponents - top)
        f = values.T @ (w[:, None] * s) / w.sum()
        d = gamma**2 * (np.sum(alpha * y) - noise * np.sum(alpha**2) / 2) - top - np.log(w.sum())
        return -d, -(gamma**2) * (y - noise * alpha - f[:4]).ravel()

    found = minimize(negative, np.zeros(y.size), jac=True, method="BFGS", options={"gtol": 1e-10})
    alpha = found.x.reshape(y.shape)
    s = values[:, :4] @ alpha
    exponents = logs + gamma**2 * np.sum(s**2, 1) / 2
    w = np.exp(exponents - exponents.max())
    w /= w.sum()
    f = values.T @ (w[:, None] * s)
    second = np.eye(y.shape[1]) + gamma**2 * s[:, :, None] * s[:, None, :]
    v = np.einsum("s,sa,sb,scd->acbd", w, values, values, second, optimize=True)
    v -= gamma**2 * np.einsum("ac,bd->acbd", f, f)
    return alpha, f, v, (values * w[:, None]).T @ values, -found.fun


def conditioned(v, noise):
    """Return the covariance of the last two samples given the others."""
    outputs = v.shape[1]
    v = v.reshape(6 * outputs, -1)
    t, rest = slice(4 * outputs), slice(4 * outputs, None)
    m = v[t, t] + noise * np.eye(4 * outputs)
    return v[rest, rest] - v[rest, t] @ np.linalg.solve(m, v[t, rest])


@pytest.mark.parametrize(
    ("phi", "gamma", "noise", "y"),
    [("tanh", 1.0, 0.1, Y), ("erf", 2.0, 0.1, Y), ("tanh", 1.0, 0.1, TWO)],
)
def test_posterior_is_that_of_quadrature(phi, gamma, noise, y):
    alpha, f, v, kernel, action = by_quadrature(phi, gamma, noise, y)
    found = adaptive(phi, gamma, noise, y, replicates=12)
    assert found.status == "ok"
    np.testing.assert_allclose(found.dual.reshape(alpha.shape), alpha, atol=0.01)
    np.testing.assert_allclose(found.feature_kernel, kernel[:4, :4], atol=0.004)
    # Beyond five standard errors of twelve scramblings: probability 4e-4 by Student's t.
    assert abs(found.action - action) < 5 * found.action_error + 1e-5
    assert found.action_error < 0.003
    predicted = found.predict(X_TEST, covariance=True)
    mean = predicted.mean.reshape(2, -1)
    errors = predicted.mean_error.reshape(2, -1)
    assert np.all(np.abs(mean - f[4:]) < 5 * errors + 1e-5)
    assert errors.max() < 0.002
    want = conditioned(v, noise)
    covariance = predicted.covariance.reshape(want.shape)
    np.testing.assert_allclose(covariance, want, atol=0.02 * want.max())
    np.testing.assert_allclose(predicted.variance.ravel(), np.diag(covariance), rtol=1e-9)
    only = found.predict(X_TEST)
    np.testing.assert_allclose(only.variance, predicted.variance, atol=1e-9)
    # The covariance of a Gaussian process with the adapted kernel is another one.
    if y.ndim == 1:
        wrong = conditioned(kernel[:, None, :, None], noise)
        assert np.abs(wrong - want).max() > 0.3 * want.max()


def test_relu_has_its_radius_integrated():
    found = adaptive("relu", 1.0, 0.1).predict(X_TEST)
    # From the trapezoidal rule between the kinks on the circle, to twelve digits.
    np.testing.assert_allclose(found.mean, [-4.6835175, 0.1100557], atol=0.02)
    np.testing.assert_allclose(found.correction, [5.06605236, -0.0310625], rtol=0.02)


@pytest.mark.parametrize("phi", ["tanh", "relu", "gelu"])
def test_small_gamma_is_the_posterior_of_a_fixed_kernel(phi):
    first, last = lg.Dense(bias_std=0.3, weight_std=1.3), lg.Dense(weight_std=0.7)
    net, noise = lg.serial(first, lg.Activation(phi), last), np.array([0.1, 0.2, 0.1, 0.3])
    lazy = lg.posterior(net, X, TWO, noise=noise)
    found = lg.posterior(net, X, TWO, noise=noise, param=lg.mean_field(gamma=1e-6))
    want, got = lazy.predict(X_TEST, covariance=True), found.predict(X_TEST, covariance=True)
    np.testing.assert_allclose(got.mean, want.mean, atol=1e-10)
    np.testing.assert_allclose(got.variance, np.stack([want.variance] * 2, 1), atol=1e-10)
    np.testing.assert_allclose(got.covariance[:, 1, :, 1], want.covariance, atol=1e-10)
    # At γ₀²N = 1 the prior and the noise are those of the kernel.
    found = lg.posterior(net, X, TWO, noise=noise, param=lg.mean_field(gamma=1e-4))
    assert found.log_likelihood(10**8) == pytest.approx(lazy.log_likelihood, rel=1e-5)


@pytest.mark.slow
def test_corrections_of_a_width_are_those_of_exact_networks():
    gamma, noise, y = 1.5, 0.2, 1.2
    x = np.ones((1, 1))
    found = lg.posterior(
        lg.mlp(1, "tanh"), x, np.array([y]), noise=noise, param=lg.mean_field(gamma)
    )
    limit = found.predict(x)
    assert abs(limit.correction[0]) > 0.01
    left = []
    for width in (50, 200):
        mean, variance, log_p = at_width(np.tanh, gamma, noise, y, width)
        assert width * (mean - limit.mean[0]) == pytest.approx(limit.correction[0], abs=2e-4)
        at = found.predict(x, width=width)
        assert at.mean[0] == pytest.approx(mean, abs=1e-5)
        left.append(gamma**2 * width * variance / limit.variance[0] - 1)
        assert at.variance[0] == pytest.approx(variance, rel=2 * abs(left[-1]))
        assert found.log_likelihood(width) == pytest.approx(log_p, abs=5e-3)
    # The variance is right to leading order.
    assert left[0] / left[1] == pytest.approx(4, rel=0.05)


@pytest.mark.slow
def test_errors_are_reported_and_refused():
    net, param = lg.mlp(1, "tanh"), lg.mean_field(2.0)
    with pytest.raises(NoTheory, match=r"kind='adaptive'"):
        lg.posterior(net, X, Y, noise=0.1, param=param, kind="nngp")
    with pytest.raises(NoTheory, match="grows faster"):
        lg.posterior(lg.mlp(1, "exp"), X, Y, noise=0.1, param=param)
    with pytest.raises(NoTheory, match="biases behind"):
        lg.posterior(lg.mlp(1, "tanh", bias_std=0.1), X, Y, noise=0.1, param=param)
    with pytest.raises(NoTheory, match="d = 0"):
        lg.posterior(net, X, Y, noise=0.1, kind="adaptive", param=lg.ntk())
    with pytest.raises(InvalidInput, match="auto"):
        lg.posterior(net, X, Y, noise="auto", param=param)
    rng = np.random.default_rng(0)
    many, y = rng.standard_normal((60, 100)), np.sign(rng.standard_normal(60))
    with pytest.raises(NumericalFailure, match="more sites") as caught:
        lg.regression.adaptive_posterior(
            lg.mlp(1, "tanh"), many, y, noise=0.01, param=lg.mean_field(3.0), sites=2048
        )
    assert getattr(caught.value.result, "status", "ok") != "ok"


@pytest.mark.slow
def test_weights_repeat_samples():
    net, param = lg.mlp(1, "erf"), lg.mean_field(1.0)
    weighted = lg.posterior(
        net, X, Y, noise=0.3, weights=np.array([2.0, 1.0, 0.0, 1.0]), param=param
    )
    noise = np.array([0.15, 0.3, 0.3])
    divided = lg.posterior(net, X[[0, 1, 3]], Y[[0, 1, 3]], noise=noise, param=param)
    np.testing.assert_allclose(weighted.dual, divided.dual, rtol=1e-9)
