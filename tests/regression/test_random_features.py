"""Errors of random features against printed equations, simulations and networks."""

from functools import cache

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.datasets import load_digits

import largen as lg
from largen.errors import InvalidInput
from largen.regression.learning_curves.inputs import Matrix
from largen.regression.learning_curves.mean_squares import mean_squares
from largen.regression.learning_curves.measured import measure
from largen.regression.learning_curves.pool import pool_of

MODES = 300
I = np.arange(1, MODES + 1.0)
VALUES, POWER, SIGMA2 = I**-1.5, I**-1.6, 0.05
TASK = lg.regression.Spectrum(VALUES, POWER, noise=SIGMA2)


def curve(net, *data, **options):
    return lg.regression.random_feature_curve(net, *data, **options)


def printed(n, k, ridge):
    """Simon et al. (2024) as printed, without and with the part that features scatter."""

    def excess(log):
        kappa = np.exp(log)
        z = np.sum(VALUES / (VALUES + kappa))
        return kappa * (n - z) * (k - z) / k - ridge

    least = brentq(lambda s: np.sum(VALUES / (VALUES + np.exp(s))) - min(n, k), -40, 20)
    kappa = np.exp(brentq(excess, least + 1e-12, 20, xtol=1e-15))
    learned = VALUES / (VALUES + kappa)
    z, q = learned.sum(), (learned**2).sum()
    seen = kappa * VALUES / (VALUES + kappa) ** 2
    missed = np.sum(POWER * (kappa / (VALUES + kappa) - seen * (k - z) / (k - q)))
    alone = np.sum(POWER * (1 - learned) ** 2)
    below = 1 - (q * (k - 2 * z) + z**2) / (n * (k - q))
    return (alone + SIGMA2) / below, (missed + SIGMA2) / below


CASES = [(50, 30, 1e-2), (50, 100, 1e-3), (100, 100, 1e-2), (200, 50, 1e-4), (100, 60, 0.5)]


@pytest.mark.parametrize(("n", "k", "ridge"), CASES)
def test_a_population_is_the_printed_equation(n, k, ridge):
    found = curve(TASK, sizes=[n], widths=[k], ridge=ridge).mse_test[0, 0]
    assert found == pytest.approx(printed(n, k, ridge)[1], rel=1e-9)


def simulated(n, k, ridge, draws, rng):
    errors = []
    for _ in range(draws):
        features = rng.standard_normal((MODES, k)) / np.sqrt(k)
        x = rng.standard_normal((n, MODES))
        y = x @ np.sqrt(POWER) + np.sqrt(SIGMA2) * rng.standard_normal(n)
        z = (x * np.sqrt(VALUES)) @ features
        w = np.linalg.solve(z.T @ z + ridge * np.eye(k), z.T @ y)
        missed = np.sqrt(POWER) - np.sqrt(VALUES) * (features @ w)
        errors.append((missed @ missed + SIGMA2, np.mean((y - z @ w) ** 2)))
    found = np.array(errors)
    return found.mean(0), found.std(0, ddof=1) / np.sqrt(draws)


def test_against_regression_on_gaussian_features():
    """z-scores of ridge regression in fact; a formula without the features' scatter fails."""
    rng, scores, without = np.random.default_rng(0), [], []
    for n, k, ridge in ((120, 60, 3e-2), (120, 240, 1e-2), (200, 200, 0.1), (240, 80, 1e-3)):
        mean, error = simulated(n, k, ridge, 40, rng)
        data = curve(TASK, sizes=[n], widths=[k], ridge=ridge).data
        test, train = (float(data[name].values[0, 0]) for name in ("mse_test", "mse_train"))
        scores += [(test - mean[0]) / error[0], (train - mean[1]) / error[1]]
        without.append((printed(n, k, ridge)[0] - mean[0]) / error[0])
    assert np.abs(scores).max() < 3.5
    assert np.sqrt(np.mean(np.square(scores))) < 1.8
    assert np.abs(without).min() > 5


def test_many_features_are_their_kernel_and_many_samples_their_projection():
    n, ridge = 80, 0.05
    wide = curve(TASK, sizes=[n], widths=[10**9], ridge=ridge)
    y = np.random.default_rng(0).standard_normal(60)
    x = np.random.default_rng(1).standard_normal((60, 4))
    kernel = lg.nngp_kernel(lg.mlp(1, "relu"), x)
    pool = pool_of(kernel, y[:, None])
    for time in (2.0, np.inf):
        infinite, finite = (mean_squares(pool, 30, 0.1, time, width=k) for k in (np.inf, 1e10))
        np.testing.assert_allclose(finite.outside, infinite.outside, rtol=1e-8)
        np.testing.assert_allclose(finite.train, infinite.train, rtol=1e-8)
    kappa = np.exp(brentq(
        lambda s: np.sum(VALUES / (VALUES + np.exp(s))) + ridge / np.exp(s) - n, -40, 20
    ))  # fmt: skip
    left = kappa / (VALUES + kappa)
    want = (POWER @ left**2 + SIGMA2) / (1 - np.sum((1 - left) ** 2) / n)
    assert wide.mse_test[0, 0] == pytest.approx(want, rel=1e-6)
    k = 40
    kappa = np.exp(brentq(lambda s: np.sum(VALUES / (VALUES + np.exp(s))) - k, -40, 20))
    many = curve(TASK, sizes=[10**9], widths=[k]).mse_test[0, 0]
    assert many == pytest.approx(POWER @ (kappa / (VALUES + kappa)) + SIGMA2, rel=1e-6)


def test_times_of_gradient_flow_on_features():
    """Against flow on drawn features and subsets, on a pool and on a population of its kind."""
    rng = np.random.default_rng(2)
    M, n, k, times = 300, 90, 60, np.array([5.0, 100.0, np.inf])
    x = rng.standard_normal((M, MODES))
    kernel = (x * VALUES) @ x.T
    y = (x @ np.sqrt(POWER) + np.sqrt(SIGMA2) * rng.standard_normal(M))[:, None]
    pool, root, squares = pool_of(kernel, y), x * np.sqrt(VALUES), []
    for _ in range(60):
        features = root @ rng.standard_normal((MODES, k)) / np.sqrt(k)
        drawn = measure(Matrix(features @ features.T), y, [n], times, 0.02, 0.0, 1, rng)
        squares.append((drawn.test.ravel(), drawn.train.ravel()))
    mean, error = np.mean(squares, 0), np.std(squares, 0, ddof=1) / np.sqrt(60)
    said = [mean_squares(pool, n, 0.02, t, width=k) for t in times]
    found = np.array([[float(f[i][0]) for f in said] for i in range(2)])
    assert (np.abs(found - mean) < 3.5 * error + 0.01 * mean).all()
    flow = curve(TASK, sizes=[n], widths=[k], ridge=0.02, time=[1e-9, 1e9, np.inf]).mse_test
    np.testing.assert_allclose(flow[1], flow[2], rtol=1e-8)
    assert flow[0, 0, 0] == pytest.approx(POWER.sum() + SIGMA2, rel=1e-6)


def test_features_that_span_the_kernel_learn_what_is_in_its_span():
    f = np.random.default_rng(0).standard_normal((40, 3))
    found = curve(f @ f.T, y=f @ np.ones(3), sizes=[3, 10], widths=[2, 3, 50]).mse_test
    np.testing.assert_allclose(found[1, 1:], 0, atol=1e-7)
    assert found[1, 0] > 0.5
    assert np.isfinite(found).all()


def test_best_ridges_are_best_and_more_features_are_better_with_them():
    sizes, widths = [60], [20, 55, 60, 66, 300]
    found = curve(TASK, sizes=sizes, widths=widths, ridge=1e-3)
    error = found.data["best_mse"].values
    for k, ridge, best in zip(widths, found.best_ridge[0], error[0], strict=True):
        near = [curve(TASK, sizes=sizes, widths=[k], ridge=f * ridge).mse_test[0, 0]
                for f in (0.01, 0.7, 1.0, 1.4, 100)]  # fmt: skip
        assert best <= min(near) * (1 + 1e-6)
        assert best == pytest.approx(near[2], rel=1e-3)
    assert (np.diff(error[0]) < 0).all()
    assert (np.diff(found.mse_test[0, [0, 1]]) > 0).all()  # double descent without
    peak = found.peak_width[0]
    around = curve(TASK, sizes=sizes, widths=[50, 70], ridge=1e-3).mse_test[0]
    assert 50 < peak < 70
    assert curve(TASK, sizes=sizes, widths=[round(peak)], ridge=1e-3).mse_test[0, 0] > around.max()
    assert np.isnan(curve(TASK, sizes=sizes, widths=[60], ridge=10.0).peak_width[0])


def test_without_a_ridge_the_error_diverges_where_features_are_as_many_as_samples():
    with pytest.raises(InvalidInput, match="widths: without a ridge the mean error of 60 features"):
        curve(TASK, sizes=[60], widths=[59, 60, 61])
    found = curve(TASK, sizes=[60], widths=[59, 61])
    assert (found.mse_test > 10).all()
    assert found.peak_width[0] == 60
    assert np.isfinite(found.data["best_mse"]).all()
    assert "61 features" in str(found)
    assert np.isfinite(curve(TASK, sizes=[64]).mse_test).all()


@cache
def digits():
    x, labels = load_digits(return_X_y=True)
    x = ((x - x.mean(0)) / np.sqrt(np.mean((x - x.mean(0)) ** 2)))[::4]
    return x, np.where(labels > 4, 1.0, -1.0)[::4]


@pytest.mark.slow
def test_networks_with_random_hidden_weights_on_digits():
    """Relu features of drawn weights, not Gaussian ones; n and k on both sides of the peak."""
    x, y = digits()
    sizes, widths, ridge, rng = [60, 140], [30, 140, 500], 0.05, np.random.default_rng(0)
    said = curve(lg.mlp(1, "relu"), x, y, sizes=sizes, widths=widths, ridge=ridge, noise=0.02)
    for j, k in enumerate(widths):
        errors = []
        for _ in range(60):
            features = np.maximum(x @ rng.standard_normal((x.shape[1], k)) / 8, 0) / np.sqrt(k)
            drawn = measure(
                Matrix(features @ features.T), y[:, None], sizes, np.inf, ridge, 0.02, 1, rng
            )
            errors.append(drawn.test[0, :, 0])
        mean, error = np.mean(errors, 0), np.std(errors, 0, ddof=1) / np.sqrt(60)
        off = np.abs(said.mse_test[:, j] - mean)
        assert (off < 0.04 * mean + 3 * error).all()


def test_draws_are_predicted_and_standard_errors_are_those_of_pools():
    x, y = digits()
    kernel = lg.nngp_kernel(lg.mlp(1, "relu"), x)
    options = {"sizes": [60, 300], "widths": [40, 200], "ridge": 0.1}
    found = curve(kernel, y=np.stack([y, x[:, 3]], 1), measure=20, **options).data
    off = np.abs(found["mse_test"] - found["measured_test"])
    assert bool((off < 0.03 * found["measured_test"] + 3.5 * found["measured_test_error"]).all())
    assert np.isnan(found["mse_test_error"].isel(size=1)).all()
    known = found.isel(size=0)
    assert bool((known["mse_test_error"] < 0.1 * known["mse_test"]).all())
    one = curve(kernel, y=y, **options)
    np.testing.assert_allclose(one.mse_test, found["mse_test"].isel(output=0))


def test_spectra_of_samples_are_those_of_the_learning_curve():
    x, y = digits()
    net = lg.mlp(1, "relu")
    task = lg.regression.target_spectrum(net, x, y, kernel="nngp")
    data = lg.regression.learning_curve(net, x, y, sizes=[20], kernel="nngp", ridge=1.0).data
    np.testing.assert_allclose(task.eigenvalues, data["eigenvalue"])
    np.testing.assert_allclose(task.power, data["power"])
    assert task.samples == len(x)
    backwards = lg.regression.Spectrum(VALUES[::-1], POWER[::-1])
    np.testing.assert_array_equal(backwards.power, POWER)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("sizes: wanted at least one", {}),
        ("x: is not used with a Spectrum", {"x": np.eye(3), "sizes": [5]}),
        ("noise: is not used with a Spectrum", {"noise": 0.1, "sizes": [5]}),
        ("measure: a spectrum has no samples", {"measure": 2, "sizes": [5]}),
        ("widths: wanted different", {"sizes": [5], "widths": [3, 3]}),
        ("sizes: wanted numbers below 3", {"net": np.eye(3), "y": np.ones(3), "sizes": [5]}),
        ("sizes: 40 samples are more than half", {"net": "samples", "sizes": [40]}),
        ("net: the kernel of these samples is 0", {"net": np.zeros((4, 4)), "y": np.ones(4)}),
        ("net: wanted a network", {"net": np.eye(3), "x": np.eye(3), "y": np.ones(3)}),
    ],
)
def test_wrong_arguments(message, arguments):
    if isinstance(arguments.get("net"), str):
        of = lg.regression.target_spectrum(np.eye(50), y=np.ones(50))
        arguments = {**arguments, "net": of}
    with pytest.raises(InvalidInput, match=message):
        curve(**{"net": TASK, **arguments})


@pytest.mark.parametrize(
    ("message", "eigenvalues", "power"),
    [
        ("power: has 2 modes", [1.0], [1.0, 2.0]),
        ("eigenvalues: wanted numbers ≥ 0", [-1.0, 2.0], [1.0, 2.0]),
        ("eigenvalues: wanted at least one", [0.0, 0.0], [1.0, 2.0]),
        ("power: ", [1.0, 0.5], [1.0, np.nan]),
    ],
)
def test_wrong_spectra(message, eigenvalues, power):
    with pytest.raises(InvalidInput, match=message):
        lg.regression.Spectrum(eigenvalues, power)
