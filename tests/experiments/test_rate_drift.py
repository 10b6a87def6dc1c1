"""The drift of the best rate with the width: exact curves, kernels at a width, networks."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.experiments import LearningRateCurve

RNG = np.random.default_rng(3)
X = RNG.standard_normal((70, 6))
CLEAN = np.tanh(X @ RNG.standard_normal(6) / 6**0.5)
# The test loss has a minimum inside: larger rates fit the noise.
NOISY = lg.Dataset(X[:20], CLEAN[:20] + RNG.standard_normal(20), X[20:], CLEAN[20:])
RATES = np.exp(np.linspace(-1, 1, 15))


def curves(width=10, slope=-0.5, seeds=1):
    x = np.log(RATES)
    limit = 0.3 + 0.05 * (x - 0.1) ** 2
    networks = limit + (0.4 + slope * x) / width
    nan = np.full(len(x), np.nan)
    each = np.repeat(networks[:, None], seeds, axis=1)
    return (
        LearningRateCurve(RATES, limit, nan, 1.0, "a limit", "test"),
        LearningRateCurve(RATES, networks, nan, 1.0, "networks", "test", width, each),
    )


def test_a_parabola_and_a_line():
    limit, networks = curves()
    found = limit.drift([20, 100], networks)
    # −c'/(nℓ''), exact for these curves: ℓ'' = 0.1, c' = −0.5.
    exact = 0.5 / (0.1 * np.array([20, 100]))
    np.testing.assert_allclose(found.drift, exact, atol=2e-3)
    assert found.limit == pytest.approx(np.exp(0.1), rel=2e-3)
    np.testing.assert_allclose(found.gap, (0.4 - 0.05) / np.array([20, 100]), rtol=1e-2)
    np.testing.assert_allclose(found.excess, 0.5 * 0.1 * exact**2, rtol=3e-2, atol=1e-6)
    assert np.isnan(found.drift_error).all()
    assert limit.drift([20], curves(seeds=3)[1]).drift_error[0] == pytest.approx(0, abs=1e-12)


def test_the_minimum_of_the_limit_is_followed():
    limit, networks = curves(slope=0.0)
    # A deep second minimum of the networks beyond a bump.
    dip = -0.5 * np.exp(-(((np.log(RATES) - 0.9) / 0.1) ** 2))
    each = networks.losses[:, None] + dip[:, None]
    further = LearningRateCurve(RATES, each[:, 0], networks.errors, 1.0, "", "test", 10, each)
    assert abs(limit.drift([20], further).drift[0]) < 0.02


def test_minima_at_an_end_of_the_rates_are_refused():
    limit, networks = curves()
    with pytest.raises(InvalidInput, match="widths: at 1, 3 the smallest loss is at an end"):
        limit.drift([1, 3, 20], networks)
    for end, side in ((2.0, "beyond it"), (-2.0, "lower rates")):
        falling = 0.3 + 0.05 * (np.log(RATES) - end) ** 2
        low = LearningRateCurve(RATES, falling, limit.errors, 1.0, "a limit", "test")
        with pytest.raises(InvalidInput, match=f"at an end .* take .*{side}"):
            low.drift([100], networks)


def test_the_error_says_whether_the_rates_are_close_enough():
    x = np.linspace(-1, 1, 10001)
    limit = lambda x: 0.3 + 0.05 * np.log(np.cosh(5 * (x - 0.1)))  # noqa: E731
    shift = lambda x: 0.4 - 0.5 * x  # noqa: E731
    exact = x[np.argmin(limit(x) + shift(x) / 10)] - 0.1
    errors = []
    for count in (6, 8, 12, 40):
        rates = np.exp(np.linspace(-1, 1, count))
        losses, nan = limit(np.log(rates)), np.full(count, np.nan)
        each = np.repeat((losses + shift(np.log(rates)) / 20)[:, None], 3, axis=1)
        networks = LearningRateCurve(rates, each[:, 0], nan, 1.0, "", "test", 20, each)
        found = LearningRateCurve(rates, losses, nan, 1.0, "", "test").drift([10], networks)
        errors.append(found.drift_error[0])
        assert abs(found.drift[0] - exact) < 2 * errors[-1] + 2e-3
    assert errors[0] > 0.01
    assert errors[-1] < 2e-3


def test_kernels_of_networks_of_a_width():
    net = lg.mlp(2, "tanh", weight_std=1.2, bias_std=0.3)
    data = lg.Dataset(X[:2], NOISY.y_train[:2])
    for param in (lg.standard(), lg.mup(gamma=0.7), lg.ntk()):
        run = lg.Run(net, param, data, optimizer=lg.gd(0.1), steps=3)
        theta = lg.finite_width.width_corrections(net, X[:2], width=24, param=param).ntk
        expected = lg.regression.critical_learning_rate(theta)
        assert lg.training.critical_rates(run, [24])[0] == pytest.approx(expected, rel=1e-5)
    standard = lg.Run(net, lg.standard(), data, optimizer=lg.gd(0.1), steps=3)
    rates = lg.training.critical_rates(standard, [10**4, 2 * 10**4])
    assert rates[0] / rates[1] == pytest.approx(2, rel=1e-2)


def test_what_is_no_pair_of_curves_is_refused():
    limit, networks = curves()
    with pytest.raises(InvalidInput, match="curve of a limit"):
        networks.drift([20], networks)
    with pytest.raises(InvalidInput, match="wanted a curve of networks"):
        limit.drift([20], limit)
    lost = LearningRateCurve(RATES, limit.losses, limit.errors, 0.31, "", "test")
    with pytest.raises(InvalidInput, match="stable at"):
        lost.drift([20], networks)
    flow = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), NOISY, optimizer=lg.gradient_flow(1.0), times=[1.0])
    with pytest.raises(NoTheory, match="wanted gradient descent"):
        lg.training.critical_rates(flow, [8])
    signs = lg.Dataset(X[:4], np.array([1.0, -1.0, 1.0, -1.0]))
    run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), signs, loss="logistic", optimizer=lg.gd(1.0), steps=2)
    with pytest.raises(NoTheory, match='wanted the loss "mse"'):
        lg.training.critical_rates(run, [8])


@pytest.mark.slow
def test_networks_drift_as_predicted_from_other_widths():
    run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), NOISY, optimizer=lg.gd(1.0), steps=10)
    unit = lg.training.critical_rates(run, [8])[0] / 2
    rates = unit * np.geomspace(0.025, 0.4, 9)
    limit = lg.learning_rate_curve(run, rates)
    networks = {
        n: lg.learning_rate_curve(run, rates, width=n, seeds=1500, key=n) for n in (8, 16, 32)
    }
    for n in (8, 16):
        predicted = limit.drift([n], networks[32])
        measured = limit.drift([n], networks[n])
        error = np.hypot(predicted.drift_error, measured.drift_error)
        assert abs((predicted.drift - measured.drift) / error)[0] < 3.5
        assert measured.drift[0] > 3.5 * measured.drift_error[0]
        assert measured.gap[0] == pytest.approx(predicted.gap[0], rel=0.2)
        assert 0 <= predicted.excess[0] < 0.1 * predicted.gap[0]
