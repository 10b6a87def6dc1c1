"""Ridge regression at fixed N/n against samples of finite size, and the formula as printed."""

import mpmath
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput


def drawn(samples, features, penalty, sigma, solve, repeats=40):
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(repeats):
        beta = rng.standard_normal(features)
        beta /= np.linalg.norm(beta)
        X = rng.standard_normal((samples, features))
        W = solve(X, X @ beta + sigma * rng.standard_normal(samples), penalty)
        errors.append((np.sum((W - beta) ** 2) + sigma**2) / 2)
    return np.mean(errors), np.std(errors) / np.sqrt(repeats)


def right(X, Y, penalty):
    return np.linalg.solve(X.T @ X + len(X) * penalty * np.eye(X.shape[1]), X.T @ Y)


def printed(X, Y, penalty):
    return X.T @ np.linalg.solve(X @ X.T + penalty * np.eye(len(X)), Y)  # without n


@pytest.mark.parametrize(
    ("samples", "features", "penalty", "value"),
    [(100, 300, 0.1, 0.5132), (300, 100, 0.1, 0.1783), (200, 200, 0.01, 0.7148)],
)
def test_against_samples(samples, features, penalty, value):
    found = lg.regression.ridge_test_error(features / samples, penalty, noise_std=0.5)
    assert found.total == pytest.approx(value, abs=5e-5)
    assert found.total == pytest.approx(found.bias + found.variance + found.noise)
    mean, error = drawn(samples, features, penalty, 0.5, right)
    assert abs(mean - found.total) < 3.5 * error + 2 / samples * found.total


def test_the_printed_formula_lacks_n():
    mean, error = drawn(200, 200, 0.01, 0.5, printed)
    assert mean - lg.regression.ridge_test_error(1.0, 0.01, noise_std=0.5).total > 5 * error
    assert mean > 2


def test_limits_of_one_size_after_the_other():
    assert lg.regression.ridge_test_error(1e-8, 1e-6, noise_std=0.5).total == pytest.approx(
        0.125, rel=1e-4
    )
    assert lg.regression.ridge_test_error(1e8, 0.1, noise_std=0.5).total == pytest.approx(
        0.625, rel=1e-4
    )


@pytest.mark.parametrize("gamma", [1e-8, 0.01, 0.5, 0.999, 1.0, 1 + 1e-9, 1.001, 3.0, 100.0, 1e8])
@pytest.mark.parametrize(
    "penalty", [1e-140, 1e-30, 1e-20, 1e-16, 1e-14, 1e-9, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e20]
)
def test_against_many_digits(gamma, penalty):
    """The formula of the docstring as it stands, with so many digits that none are lost."""
    with mpmath.workdps(400):
        g, lam = mpmath.mpf(gamma), mpmath.mpf(penalty)
        b = 1 - g + lam
        root = mpmath.sqrt(b**2 + 4 * g * lam)
        m = (root - b) / (2 * g * lam)
        slope = (g * m**2 + m) / root
        bias, variance = float(lam**2 * slope / 2), float(g * (m - lam * slope) / 8)
    found = lg.regression.ridge_test_error(gamma, penalty, noise_std=0.5)
    assert found.bias == pytest.approx(bias, rel=1e-14)
    assert found.variance == pytest.approx(variance, rel=1e-14)
    assert found.total == pytest.approx(bias + variance + 0.125, rel=1e-14)


@pytest.mark.parametrize(
    ("gamma", "bias", "variance"),
    [(0.25, 0, 1 / 3), (3.0, 2 / 3, 1 / 2), (1.25, 0.2, 4.0), (0.999, 0, 999.0)],
)
def test_without_a_penalty(gamma, bias, variance):
    """Least squares, and its limit: Hastie et al., Annals of Statistics 50 (2022), Theorem 1."""
    found = lg.regression.ridge_test_error(gamma, 0.0, noise_std=0.5)
    assert found.bias == pytest.approx(bias / 2, rel=1e-12)
    assert found.variance == pytest.approx(variance / 8, rel=1e-12)
    near = lg.regression.ridge_test_error(gamma, 1e-30, noise_std=0.5)
    np.testing.assert_allclose(near, found, atol=1e-14)


def test_one_feature_a_sample_without_a_penalty():
    assert lg.regression.ridge_test_error(1.0, 0.0).total == 0
    with pytest.raises(InvalidInput, match="penalty: at features_per_sample=1"):
        lg.regression.ridge_test_error(1.0, 0.0, noise_std=0.1)
    with pytest.raises(InvalidInput, match="penalty: wanted a finite number ≥ 0"):
        lg.regression.ridge_test_error(1.0, -0.1)
