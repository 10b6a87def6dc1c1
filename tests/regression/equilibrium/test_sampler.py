"""Networks drawn from their posterior, against exact widths and against the limit."""

import numpy as np
import pytest
from tests.regression.equilibrium.exact_widths import at_width

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(3)
PLANE = RNG.standard_normal((6, 2))
X, X_TEST, Y = PLANE[:4], PLANE[4:], np.array([1.0, -1.0, 1.0, -1.0])


def drawn(phi, x, y, x_test, width, noise, gamma, **options):
    net, param = lg.mlp(1, phi), lg.mean_field(gamma)
    return lg.regression.sample_posterior(
        net, x, y, x_test, width=width, noise=noise, param=param, **options
    )


@pytest.mark.slow
def test_networks_of_few_neurons_are_those_of_a_fourier_transform():
    gamma, noise, y, width = 1.5, 0.2, 1.2, 12
    one = np.ones((1, 1))
    found = drawn("tanh", one, np.array([y]), one, width, noise, gamma, draws=1500, chains=8)
    mean, variance, _ = at_width(np.tanh, gamma, noise, y, width)
    # Student's distribution of seven degrees of freedom.
    assert abs(found.mean[0] - mean) < 6 * found.mean_error[0]
    assert abs(found.variance[0] - variance) < 6 * found.variance_error[0]
    assert found.mean_error[0] < 5e-4 < 2 * abs(mean - lazy_mean(gamma, noise, y))
    assert found.variance_error[0] < 0.02 * variance


def lazy_mean(gamma, noise, y):
    one = np.ones((1, 1))
    lazy = lg.posterior(lg.mlp(1, "tanh"), one, np.array([y]), noise=noise)
    return float(lazy.predict(one).mean[0])


@pytest.mark.slow
def test_draws_do_not_depend_on_the_number_of_outputs_of_zero_weight():
    """Several outputs are independent given the neurons."""
    two = np.stack([Y, -Y], 1)
    found = drawn("erf", X, two, X_TEST, 8, 0.3, 1.0, draws=20, chains=2)
    np.testing.assert_allclose(found.mean[:, 0], -found.mean[:, 1], rtol=1e-9)
    assert found.variance.shape == (2, 2)


@pytest.mark.slow
@pytest.mark.long_loops
@pytest.mark.parametrize(("phi", "gamma", "noise"), [("tanh", 1.0, 0.1), ("relu", 1.0, 0.1)])
def test_wide_networks_are_those_of_the_limit_and_its_correction(phi, gamma, noise):
    width = 64
    found = drawn(phi, X, Y, X_TEST, width, noise, gamma, draws=1200, chains=16)
    limit = lg.posterior(lg.mlp(1, phi), X, Y, noise=noise, param=lg.mean_field(gamma))
    at = limit.predict(X_TEST, width=width)
    z = (found.mean - at.mean) / np.hypot(found.mean_error, at.mean_error)
    assert np.abs(z).max() < 4.5, z
    ratio = found.variance / at.variance
    error = found.variance_error / at.variance
    assert np.all(np.abs(ratio - 1) < 4.5 * error + 1.5 / width), ratio
    # The lazy posterior is far from it.
    lazy = lg.posterior(lg.mlp(1, phi), X, Y, noise=noise).predict(X_TEST)
    assert np.abs((found.mean - lazy.mean) / found.mean_error).max() > 20
    np.testing.assert_allclose(
        found.feature_kernel, limit.feature_kernel, atol=0.03 * limit.feature_kernel.max()
    )


def test_refusals():
    with pytest.raises(InvalidInput, match="noise"):
        drawn("tanh", X, Y, X_TEST, 8, 0.0, 1.0)
    with pytest.raises(NoTheory, match="one hidden layer"):
        lg.regression.sample_posterior(
            lg.mlp(2, "linear"), X, Y, X_TEST, width=8, noise=0.1, param=lg.mean_field()
        )
