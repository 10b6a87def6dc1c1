"""A random scale of the kernel: exact for linear networks, and their limits."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(2)
X, X_TEST = RNG.standard_normal((6, 4)), RNG.standard_normal((5, 4))
Y = np.array([1.0, -1.0, 0.5, 2.0, -0.3, 0.8])


def rescaled(phi, width, **options):
    return lg.regression.rescaled_posterior(
        lg.mlp(1, phi), X, Y, X_TEST, width=width, noise=0.3, **options
    )


def test_linear_networks_are_exact():
    """Those of the mean field with γ₀ = N^(−1/2) are the same networks."""
    same = lg.posterior(lg.mlp(1, "linear"), X, Y, noise=0.3, param=lg.mean_field(gamma=8**-0.5))
    want = same.predict(X_TEST, width=8, covariance=True)
    found = rescaled("linear", 8, covariance=True)
    np.testing.assert_allclose(found.mean, want.mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, want.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.variance, np.diag(found.covariance), rtol=1e-12)


def test_draws_of_the_scale():
    """Against 4·10⁵ draws of Q from its prior, weighted by the likelihood."""
    found = rescaled("relu", 10)
    K = lg.nngp_kernel(lg.mlp(1, "relu"), np.concatenate([X, X_TEST]))
    values, vectors = np.linalg.eigh(K[:6, :6])
    q = np.random.default_rng(0).chisquare(10, 400_000) / 10
    spread = q[:, None] * values + 0.3
    targets = vectors.T @ Y
    weights = np.exp(-np.sum(targets**2 / spread + np.log(spread), 1) / 2)
    weights /= weights.sum()
    cross = K[6:, :6] @ vectors
    means = (q[:, None] / spread * targets) @ cross.T
    inner = q[:, None] * np.diag(K[6:, 6:]) - (q[:, None] ** 2 / spread) @ (cross**2).T
    mean = weights @ means
    variance = weights @ (inner + means**2) - mean**2
    error = 5 / np.sqrt(1 / np.sum(weights**2))
    np.testing.assert_allclose(found.mean, mean, atol=error * means.std())
    np.testing.assert_allclose(found.variance, variance, rtol=error)


def test_wide_networks_are_the_gaussian_process():
    want = lg.posterior(lg.mlp(1, "erf"), X, Y, noise=0.3).predict(X_TEST)
    apart = [np.abs(rescaled("erf", n).variance - want.variance).max() for n in (10**4, 10**5)]
    assert apart[0] / apart[1] == pytest.approx(10, rel=0.02)


@pytest.mark.slow
def test_variances_are_closer_to_those_of_networks():
    net, options = lg.mlp(1, "relu"), {"width": 6, "noise": 0.05}
    drawn = lg.regression.sample_posterior(
        net, X, Y, X_TEST, param=lg.mean_field(gamma=6**-0.5), draws=1500, **options
    )
    found = lg.regression.rescaled_posterior(net, X, Y, X_TEST, **options).variance
    fixed = lg.posterior(net, X, Y, noise=0.05).predict(X_TEST).variance
    off = [np.abs(v / drawn.variance - 1).mean() for v in (found, fixed)]
    assert off[0] < off[1] / 2


def test_refusals():
    with pytest.raises(NoTheory, match="one hidden layer"):
        lg.regression.rescaled_posterior(lg.mlp(2), X, Y, X_TEST, width=8, noise=0.1)
    with pytest.raises(NoTheory, match="one output"):
        lg.regression.rescaled_posterior(
            lg.mlp(1), X, np.stack([Y, Y], 1), X_TEST, width=8, noise=0.1
        )
    with pytest.raises(InvalidInput, match="noise"):
        lg.regression.rescaled_posterior(lg.mlp(1), X, Y, X_TEST, width=8, noise=0.0)
