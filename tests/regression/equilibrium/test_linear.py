"""Linear networks at rest against direct quadrature, the limit, and Monte Carlo."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(0)
ALL = RNG.standard_normal((6, 5))
X, X_TEST, Y = ALL[:4], ALL[4:], RNG.standard_normal(4)
K = ALL @ ALL.T / 5


def linear(hidden, gamma, noise, x=X, y=Y, **options):
    net = lg.mlp(hidden, "linear", **options)
    return lg.posterior(net, x, y, noise=noise, param=lg.mean_field(gamma))


def given_q(q, gamma, noise, width):
    """Return log p(y | Q), and mean and covariance of test outputs given Q."""
    a = q * K[:4, :4] + noise * np.eye(4)
    unit = gamma**2 * width
    log_p = -unit / 2 * Y @ np.linalg.solve(a, Y) - np.linalg.slogdet(a)[1] / 2
    log_p += 2 * np.log(unit / (2 * np.pi))
    mean = q * K[4:, :4] @ np.linalg.solve(a, Y)
    inner = q**2 * K[4:, :4] @ np.linalg.solve(a, K[:4, 4:])
    return log_p, mean, (q * K[4:, 4:] - inner) / unit


def test_one_hidden_layer_is_an_integral_over_one_gamma_variable():
    gamma, noise, width = 2.0, 0.1, 30
    found = linear(1, gamma, noise)
    shift = found.log_likelihood(width)

    def average(function):
        def integrand(q):
            density = chi2.logpdf(q * width, width) + np.log(width)
            return np.exp(density + given_q(q, gamma, noise, width)[0] - shift) * function(q)

        return quad(integrand, 0.05, 60, epsabs=1e-12, epsrel=1e-11, limit=500)[0]

    assert average(lambda q: 1.0) == pytest.approx(1, abs=1e-9)
    predicted = found.predict(X_TEST, covariance=True, width=width)
    means = [average(lambda q, i=i: given_q(q, gamma, noise, width)[1][i]) for i in range(2)]
    np.testing.assert_allclose(predicted.mean, means, rtol=1e-9)

    def second(q):
        _, mean, covariance = given_q(q, gamma, noise, width)
        return covariance[0, 1] + mean[0] * mean[1]

    want = average(second) - means[0] * means[1]
    assert predicted.covariance[0, 1] == pytest.approx(want, rel=1e-8)
    assert found.predict(X_TEST, width=width).variance == pytest.approx(predicted.variance)


@pytest.mark.parametrize(("hidden", "gamma", "noise"), [(2, 1.0, 0.5), (3, 0.5, 1.0)])
def test_deep_networks_are_those_of_random_weights(hidden, gamma, noise):
    """The prior of Q is drawn, at widths where posterior and prior overlap."""
    width, draws = 3, 400_000
    q = np.prod(RNG.chisquare(width, (hidden, draws)) / width, 0)
    values, vectors = np.linalg.eigh(K[:4, :4])
    spread = q[:, None] * values + noise
    unit = gamma**2 * width
    b = vectors.T @ Y
    logs = -unit / 2 * np.sum(b**2 / spread, 1) - np.sum(np.log(spread), 1) / 2
    w = np.exp(logs) * (unit / (2 * np.pi)) ** 2
    found = linear(hidden, gamma, noise)
    error = w.std() / np.sqrt(draws)
    assert abs(w.mean() - np.exp(found.log_likelihood(width))) < 4 * error
    assert error < 0.005 * w.mean()
    means = (q[:, None] / spread * b) @ (K[4:, :4] @ vectors).T
    mean = found.predict(X_TEST, width=width).mean
    moved = w[:, None] * (means - mean)
    z = moved.mean(0) / (moved.std(0) / np.sqrt(draws))
    assert np.abs(z).max() < 4
    # The NNGP posterior, Q = 1, is another one.
    lazy = lg.posterior(lg.mlp(hidden, "linear"), X, Y, noise=noise).predict(X_TEST).mean
    wrong = w[:, None] * (means - lazy)
    assert np.abs(wrong.mean(0) / (wrong.std(0) / np.sqrt(draws))).max() > 20


@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_widths_approach_the_limit_as_one_over_n(hidden):
    found = linear(hidden, 2.0, 0.1)
    limit = found.predict(X_TEST)
    for width in (20_000, 80_000):
        at = found.predict(X_TEST, width=width)
        moved = width * (at.mean - limit.mean)
        np.testing.assert_allclose(moved, limit.correction, atol=600 / width)
        unit = 4.0 * width
        np.testing.assert_allclose(at.variance * unit, limit.variance, rtol=300 / width)
    # V = rᴸK + 2Lγ₀²r²ᴸ/(r − L(r − 1)) ααᵀ in kernels, conditioned as a Gaussian process.
    r, alpha = found.scale, found.dual
    e = K[:, :4] @ alpha
    assert r - 1 == pytest.approx(4 * r**hidden * alpha @ e[:4], rel=1e-9)
    v = r**hidden * K
    v += 2 * hidden * 4 * r ** (2 * hidden) / (r - hidden * (r - 1)) * np.outer(e, e)
    want = v - v[:, :4] @ np.linalg.solve(v[:4, :4] + 0.1 * np.eye(4), v[:4])
    np.testing.assert_allclose(limit.variance, np.diag(want)[4:], rtol=1e-9)
    np.testing.assert_allclose(limit.mean, r**hidden * e[4:], rtol=1e-9)


def test_transition_of_first_order():
    x, y = np.sqrt(2) * np.eye(2), np.array([1.0, 0.0])
    assert linear(3, 34.0, 100.0, x, y).status == "ok"
    both = linear(3, 35.5, 100.0, x, y)
    assert both.status == "several_branches"
    assert both.scale < 1.3 < 4 < linear(3, 36.0, 100.0, x, y).scale
    found = linear(3, 36.0, 100.0, x, y)
    assert found.scale == pytest.approx(4.15, abs=0.005)
    assert found.predict(x).mean[0] == pytest.approx(0.417, abs=5e-4)
    means = [found.predict(x, width=width).mean[0] for width in (50, 200, 800)]
    np.testing.assert_allclose(means, [0.1146, 0.3905, 0.4156], atol=5e-5)


def test_one_hidden_layer_is_the_dual_problem():
    exact = linear(1, 2.0, 0.1)
    both = lg.posterior(
        lg.mlp(1, "linear"), X, np.stack([Y, 0 * Y], 1), noise=0.1, param=lg.mean_field(2.0)
    )
    assert both.action == pytest.approx(exact.action, rel=1e-3)
    got, want = both.predict(X_TEST), exact.predict(X_TEST)
    np.testing.assert_allclose(got.mean[:, 0], want.mean, atol=0.01)
    np.testing.assert_allclose(got.correction[:, 0], want.correction, atol=0.2)
    np.testing.assert_allclose(got.variance[:, 0], want.variance, rtol=0.02)
    np.testing.assert_allclose(both.feature_kernel, exact.feature_kernel, atol=0.02)


@pytest.mark.parametrize("hidden", [1, 3])
def test_small_gamma_and_noise_of_each_sample(hidden):
    noise = np.array([0.1, 0.2, 0.3, 0.1])
    net = lg.serial(lg.Dense(weight_std=1.3, bias_std=0.5), *[lg.Dense()] * hidden)
    want = lg.posterior(net, X, Y, noise=noise).predict(X_TEST, covariance=True)
    found = lg.posterior(net, X, Y, noise=noise, param=lg.mean_field(1e-6))
    got = found.predict(X_TEST, covariance=True)
    np.testing.assert_allclose(got.mean, want.mean, atol=1e-10)
    np.testing.assert_allclose(got.covariance, want.covariance, atol=1e-10)
    equal = lg.posterior(net, X, Y, noise=0.2, param=lg.mean_field(1.5))
    nearly = lg.posterior(net, X, Y, noise=0.2 + 1e-12 * noise, param=lg.mean_field(1.5))
    assert nearly.log_likelihood(50) == pytest.approx(equal.log_likelihood(50), rel=1e-8)
    np.testing.assert_allclose(nearly.predict(X_TEST).mean, equal.predict(X_TEST).mean, rtol=1e-8)


def test_refusals():
    with pytest.raises(NoTheory, match="one output"):
        linear(2, 1.0, 0.1, y=np.stack([Y, Y], 1))
    with pytest.raises(InvalidInput, match="width"):
        linear(2, 1.0, 0.1).predict(X_TEST, width=10**9)
