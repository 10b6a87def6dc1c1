"""Closed forms of the mean-field limit against equations that know nothing of them."""

import numpy as np
import pytest
from tests.theories.mean_field.deep import closed_equations, residual_equations

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("blocks", [1, 3, 5])
def test_kernel_after_one_step_at_finite_depth(blocks):
    y, gamma, lr = 0.7, 1.3, 0.8
    one = lg.theories.kernel_after_one_step(y, gamma=gamma, lr=lr, blocks=blocks)
    _, h, _ = residual_equations.solve(
        np.ones((1, 1)), np.array([y]), blocks, gamma, lr, 2, branch=blocks**-0.5, rate=1, ends=0
    )
    np.testing.assert_allclose(one.before, h[0, :, 0, 0], rtol=1e-12)
    np.testing.assert_allclose(one.after, h[1, :, 0, 0], rtol=1e-12)


def test_kernel_after_one_step_at_infinite_depth():
    """Finite depths approach it as 1/L; the printed (9), (101) does not."""
    limit = lg.theories.kernel_after_one_step(0.9, points=2)
    k, e = 0.81, np.e
    gaps = [
        lg.theories.kernel_after_one_step(0.9, blocks=blocks).after[-1] - limit.after[-1]
        for blocks in (100, 1000, 10000)
    ]
    assert abs(gaps[-1]) < 1e-3 * limit.after[-1]
    np.testing.assert_allclose(np.divide(gaps[:-1], gaps[1:]), 10, rtol=0.1)
    # With G₀ = e^τ the change would be a quarter smaller or larger.
    change = limit.after[-1] / e - 1
    np.testing.assert_allclose(change, 2 * e * k * 5 / 6)
    assert abs(change / (2 * e * k * 5 / 6 * 0.75) - 1) > 0.2


@pytest.mark.slow
def test_deep_linear_is_closed_equations():
    x, y = RNG.standard_normal((3, 5)), np.array([1.0, -0.5, 0.3])
    kernel = x @ x.T / 5
    found = lg.theories.solve_deep_linear(
        kernel, y, hidden_layers=2, gamma=1.2, lr=0.5, steps=6, record_at=[0, 6]
    )
    f, h, g = closed_equations.solve(kernel, y, 2, 1.2, 0.5, 7)
    np.testing.assert_allclose(found.f_train, f, atol=1e-11)
    np.testing.assert_allclose(found.feature_kernel, h[[0, 6]], atol=1e-8)
    np.testing.assert_allclose(found.gradient_kernel, g[[0, 6]], atol=1e-8)
    for wrong in (kernel[:2], kernel - 5 * np.eye(3), np.triu(kernel)):
        with pytest.raises(InvalidInput, match="kernel"):
            lg.theories.solve_deep_linear(wrong, y, hidden_layers=2)


def test_conservation_law():
    found = lg.theories.whitened_linear_flow(np.linspace(0, 9, 10), 1.4, gamma=0.8)
    np.testing.assert_allclose(found.conserved, 1, atol=1e-12)
