"""Ridge regression at fixed N/n against samples of finite size, and the formula as printed."""

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
    found = lg.ridge_test_error(features / samples, penalty, noise_std=0.5)
    assert found.total == pytest.approx(value, abs=5e-5)
    assert found.total == pytest.approx(found.bias + found.variance + found.noise)
    mean, error = drawn(samples, features, penalty, 0.5, right)
    assert abs(mean - found.total) < 3.5 * error + 2 / samples * found.total


def test_the_printed_formula_lacks_n():
    mean, error = drawn(200, 200, 0.01, 0.5, printed)
    assert mean - lg.ridge_test_error(1.0, 0.01, noise_std=0.5).total > 5 * error
    assert mean > 2


def test_limits_of_one_size_after_the_other():
    assert lg.ridge_test_error(1e-8, 1e-6, noise_std=0.5).total == pytest.approx(0.125, rel=1e-4)
    assert lg.ridge_test_error(1e8, 0.1, noise_std=0.5).total == pytest.approx(0.625, rel=1e-4)
    with pytest.raises(InvalidInput, match="penalty"):
        lg.ridge_test_error(1.0, 0.0)
