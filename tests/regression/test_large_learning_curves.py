"""Learning curves of large pools against those of small ones, with limits that are lowered."""

import numpy as np
import pytest

import largen as lg
from largen.regression.learning_curves import curve, large_pools

RNG = np.random.default_rng(0)
M = 500
X = RNG.standard_normal((M, 6))
Y = np.stack([np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], np.abs(X[:, 3])], axis=1)
NET = lg.mlp(1, "relu", bias_std=0.5)
K = lg.ntk_kernel(NET, X)
SIZES = [20, 60, 180, 300, M - 1, 2000]


def small_and_large(monkeypatch, kernel=K, y=Y, **options):
    """Return the curve by one eigendecomposition, and that by parts of at most 100 samples."""
    small = lg.regression.learning_curve(kernel, y=y, sizes=SIZES, **options)
    monkeypatch.setattr(curve, "LARGE", 400)
    monkeypatch.setattr(large_pools, "_PART", 100)
    monkeypatch.setattr(large_pools, "_BLOCK", 40)
    return small, lg.regression.learning_curve(kernel, y=y, sizes=SIZES, **options)


@pytest.mark.parametrize(
    ("ridge", "noise"), [pytest.param(0.0, 0.0, marks=pytest.mark.slow), (0.05, 0.2)]
)
def test_large_pools_have_the_curves_of_small_ones(monkeypatch, ridge, noise):
    small, large = small_and_large(monkeypatch, ridge=ridge, noise=noise, measure=2)
    assert small.extrapolated_from == large.extrapolated_from == M
    within = slice(0, -1)
    error = large.data["mse_test_error"].values
    off = np.abs(large.mse_test - small.mse_test)
    assert (off < 0.06 * small.mse_test + 2 * error).all()
    np.testing.assert_allclose(large.mse_test[within], small.mse_test[within], rtol=0.13)
    np.testing.assert_allclose(large.mse_train[within], small.mse_train[within], rtol=0.15)
    logs = np.log(error[within] / small.data["mse_test_error"].values[within])
    assert np.abs(logs.mean()) < np.log(3)
    measured = large.data["measured_test"].values[1:-2]
    np.testing.assert_allclose(measured, large.mse_test[1:-2], rtol=0.3)


def test_what_all_samples_say_is_exact(monkeypatch):
    small, large = (found.data for found in small_and_large(monkeypatch, ridge=0.05))
    for name in ("leave_one_out", "cross_validation"):
        np.testing.assert_allclose(large[name], small[name], rtol=1e-8)
    count = large.sizes["mode"]
    off = np.abs(large["eigenvalue"] - small["eigenvalue"][:count])
    assert count >= 20
    assert bool((off <= large["eigenvalue_error"] + 1e-14).all())
    rest = small["eigenvalue"][count:].sum()
    np.testing.assert_allclose(large["eigenvalue_rest"], rest, rtol=1e-3)
    np.testing.assert_allclose(large["alignment"], small["alignment"][:count], atol=0.01)


@pytest.mark.slow
def test_what_parts_do_not_say_is_extrapolated(monkeypatch):
    """In time, and of kernels that are singular, the curve goes on as a power law."""
    _, flow = small_and_large(monkeypatch, time=[30.0, np.inf])
    assert flow.extrapolated_from == 100
    features = X[:, :4]
    y = features @ np.ones(4) + 0.3 * np.random.default_rng(1).standard_normal(M)
    small, large = small_and_large(monkeypatch, features @ features.T, y)
    assert large.extrapolated_from == 100
    assert "leave_one_out" not in large.data
    np.testing.assert_allclose(large.mse_test[:-1], small.mse_test[:-1], rtol=0.05)
    assert "extrapolated" in str(large)


@pytest.mark.slow
def test_networks_are_computed_in_parts(monkeypatch):
    _, of_kernel = small_and_large(monkeypatch, ridge=0.1)
    of_network = lg.regression.learning_curve(NET, X, Y, sizes=SIZES, ridge=0.1)
    np.testing.assert_allclose(of_network.mse_test, of_kernel.mse_test, rtol=1e-9)


def test_pools_beyond_memory_have_curves_of_parts(monkeypatch):
    monkeypatch.setattr(large_pools, "available_bytes", lambda: 1e6)
    _, large = small_and_large(monkeypatch)
    assert large.extrapolated_from == 100
    assert "alignment" not in large.data
    assert large.plot() is not None
