"""Generalised cross-validation: its formula, its slopes, and what minimises it."""

import numpy as np
import pytest
from scipy.linalg import expm

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.regression.cross_validation import Validation
from largen.regression.likelihood import evidence

RNG = np.random.default_rng(11)
X = RNG.standard_normal((25, 3))
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]], axis=1) + 0.3 * RNG.standard_normal((25, 2))
NET = lg.mlp(1, "erf", weight_std=1.2, bias_std=0.5)
KERNELS = {"ntk": lg.ntk_kernel, "nngp": lg.nngp_kernel}


def by_hand(kernel, number, flow):
    """P |(1 − S)y|²/(tr(1 − S))² with the smoother S as a matrix."""
    if flow:
        left = expm(-kernel * number / 25)
    else:
        left = number * np.linalg.inv(kernel + number * np.eye(25))
    return 25 * np.sum((left @ Y) ** 2) / np.trace(left) ** 2


@pytest.mark.parametrize("left", [1e-6, 1e-13, 1e-40])
def test_value_at_late_times(left):
    """What is left of the slowest mode does not drown in the padding's modes."""
    values, vectors = np.linalg.eigh(lg.ntk_kernel(NET, X))
    time = -25 * np.log(left) / values[0]
    r = np.exp(-values * time / 25)
    want = 25 * np.sum((r[:, None] * (vectors.T @ Y)) ** 2) / np.sum(r) ** 2
    of = Validation(evidence(NET, X, Y, None), "ntk", flow=True)
    value, _, _ = of.at(of.given.stds, time)
    np.testing.assert_allclose(value, -25 * np.log(want), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "flow", "number"), [("ntk", True, 40.0), ("ntk", False, 0.2), ("nngp", False, 0.05)]
)
def test_value_and_slopes(kind, flow, number):
    of = Validation(evidence(NET, X, Y, None), kind, flow)
    start = of.given.stds
    value, slopes, by_number = of.at(start, number)
    want = by_hand(KERNELS[kind](NET, X), number, flow)
    np.testing.assert_allclose(value, -25 * np.log(want), rtol=1e-10)
    for i in range(len(start)):
        step = 1e-5 * np.eye(len(start))[i]
        around = [of.at(start + sign * step, number)[0] for sign in (1, -1)]
        np.testing.assert_allclose(slopes[i], (around[0] - around[1]) / 2e-5, rtol=1e-6, atol=1e-6)
    around = [of.at(start, number * (1 + sign * 1e-6))[0] for sign in (1, -1)]
    np.testing.assert_allclose(by_number, (around[0] - around[1]) / (2e-6 * number), rtol=1e-6)


def test_equal_rows_have_slopes_too():
    """Eigenvalues that coincide: the divided differences become derivatives."""
    of = Validation(evidence(NET, np.repeat(X[:5], 5, axis=0), Y, None), "ntk", True)
    value, slopes, _ = of.at(of.given.stds, 3.0)
    step = 1e-5 * np.eye(len(slopes))[0]
    around = [of.at(of.given.stds + sign * step, 3.0)[0] for sign in (1, -1)]
    assert np.isfinite(value)
    np.testing.assert_allclose(slopes[0], (around[0] - around[1]) / 2e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (lg.NTKRegressor, {"noise": 1e-5}),
        pytest.param(lg.regression.KernelFlowRegressor, {"time": 1e6}, marks=pytest.mark.slow),
    ],
)
def test_what_is_fitted_predicts_better(estimator, options):
    """On samples that were not there."""
    x, x_new = np.linspace(-2, 2, 40)[:, None], np.linspace(-2, 2, 200)[:, None]
    y = np.sin(2 * x) + 0.4 * np.random.default_rng(5).standard_normal((40, 6))

    def off(model):
        return np.mean((model.fit(x, y).predict(x_new) - np.sin(2 * x_new)) ** 2)

    plain, fitted = (estimator(NET, optimize=fit, **options) for fit in (False, True))
    assert off(fitted) < 0.7 * off(plain)
    assert fitted.net_ != NET


def test_fit_returns_the_error_of_what_it_found():
    fit = lg.regression.fit_cross_validation(NET, X, Y, noise=1e-3)
    assert fit.error < fit.start
    kernel = lg.ntk_kernel(fit.net, X)
    np.testing.assert_allclose(fit.error, by_hand(kernel, fit.noise, False), rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, InvalidInput, "wanted one of them"),
        ({"noise": 1.0, "time": 1.0}, InvalidInput, "wanted one of them"),
        ({"noise": 0.0}, InvalidInput, "noise: wanted"),
        ({"noise": 1.0, "kind": "rbf"}, InvalidInput, "kind: 'rbf'"),
        ({"time": 1.0, "param": lg.standard()}, NoTheory, "standard"),
        ({"time": 1e9}, NumericalFailure, "a shorter time"),
        ({"time": 1.0, "max_steps": 1}, NumericalFailure, "no minimum within 1 steps"),
    ],
)
def test_what_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        lg.regression.fit_cross_validation(NET, X, Y, **options)
