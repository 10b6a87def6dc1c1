"""Closed forms against mpmath, and the precision of the gap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.expectations.references import COVARIANCES, derivative_of, gap_of

from largen.errors import NumericalFailure
from largen.expectations import (
    derivative_second_moment,
    gaussian_moments,
    mean,
    pair_moments,
    second_moment,
)
from largen.expectations.homogeneous import angle_and_folding

VARIANCES = [(1.0, 1.0), (2.0, 0.5), (1e-6, 2e-6), (1.0, 1.001), (25.0, 30.0), (3e-8, 4.0)]
HUGE = [(1e4, 1e4), (1e4, 3.0)]
ONE_MINUS_C = [0.0, 1e-13, 1e-8, 1e-4, 0.1, 0.7, 1.0, 1.4, 1.999999, 2.0]


def gap_at(q1, q2, one_minus_c):
    return (np.sqrt(q1) - np.sqrt(q2)) ** 2 / 2 + np.sqrt(q1 * q2) * one_minus_c


@pytest.mark.parametrize("name", list(COVARIANCES))
def test_pairs_against_mpmath(name):
    """Gap to 1e-12 of its own size, derivative kernel to 1e-12 and what its angle allows."""
    variances = VARIANCES if name == "exp" else VARIANCES + HUGE
    cases = [(q1, q2, gap_at(q1, q2, x)) for q1, q2 in variances for x in ONE_MINUS_C]
    q1, q2, gap = np.array(cases).T
    with jax.enable_x64(True):
        got = pair_moments(name, q1, q2, gap)
    for i, (a, b, g) in enumerate(cases):
        want, half = float(gap_of(name, a, b, g)), (a + b) / 2
        # A part of second order in q1 − q2 is known as well as that difference is; an even φ
        # folds opposite vectors onto one another, and their distance is not carried.
        loose = 1e-12 if a != b else 1e-15 if name in ("abs", "cos") else 0.0
        loose *= float(gap_of(name, a, b, half))
        assert abs(float(got.gap[i]) - want) <= 1e-12 * abs(want) + loose, (a, b, g)
        want = float(derivative_of(name, a, b, g))
        slack = 1e-12 * (1 + abs(want))
        if name in ("relu", "abs", "leaky_relu"):
            # Near c = ±1 the error of the angle is the root of that of c, as given.
            c, error_of_c = (half - g) / np.sqrt(a * b), 8e-16 * half / np.sqrt(a * b)
            slack += min(error_of_c / np.sqrt(max(1 - c * c, 1e-300)), 2 * np.sqrt(error_of_c))
        assert abs(float(got.derivative[i]) - want) < slack, (a, b, g)


@pytest.mark.parametrize("name", list(COVARIANCES))
def test_coincidence_is_exact(name):
    """Gap 0 gives gap 0, and the derivative kernel its diagonal value."""
    q = np.array([1e-6, 0.3, 1.0, 7.0])
    with jax.enable_x64(True):
        gap, derivative = pair_moments(name, q, q, np.zeros(4))
        assert np.all(np.asarray(gap) == 0)
        np.testing.assert_allclose(derivative, derivative_second_moment(name, q), rtol=1e-14)


@pytest.mark.parametrize("name", list(COVARIANCES))
def test_single_moments(name):
    """E[φ²] and E[φ'²] are the diagonal of the pair; E[φ] agrees with quadrature."""
    q = np.array([1e-3, 0.3, 1.0, 4.0])
    z = (np.arange(-2400, 2400) + 0.5) / 200
    weights = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / 200
    functions = {
        "linear": lambda x: x,
        "abs": np.abs,
        "relu": lambda x: np.maximum(x, 0),
        "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
        "cos": np.cos,
        "exp": np.exp,
        "erf": np.zeros_like,
        "sin": np.zeros_like,
    }
    with jax.enable_x64(True):
        for x, value in zip(q, second_moment(name, q), strict=True):
            assert abs(float(value) - float(COVARIANCES[name](x, x, x))) < 1e-13 * float(value)
        if name in functions:
            want = functions[name](np.sqrt(q)[:, None] * z) @ weights
            tolerance = 1e-5 if name in ("abs", "relu", "leaky_relu") else 1e-13
            np.testing.assert_allclose(mean(name, q), want, rtol=tolerance, atol=1e-14)


def test_float32_gap_keeps_its_relative_precision():
    """1 − c = 1e-12 is far below float32's resolution of c, and relu's gap has 6 digits of it."""
    gap = np.logspace(-14, 0, 29).astype(np.float32)
    one = np.ones_like(gap)
    for name in ("relu", "erf", "tanh"):
        got = np.asarray(pair_moments(name, one, one, gap).gap)
        assert got.dtype == np.float32
        with jax.enable_x64(True):
            want = np.asarray(pair_moments(name, one.astype(float), one, gap.astype(float)).gap)
        np.testing.assert_allclose(got, want, rtol=2e-5 if name == "tanh" else 2e-6)
    want = [float(derivative_of("relu", 1, 1, g)) for g in gap]
    np.testing.assert_allclose(pair_moments("relu", one, one, gap).derivative, want, rtol=3e-7)


def test_deep_float32_relu_ntk():
    """Depth 100: float32 within 1e-5 of float64, diagonal and near-duplicates included."""

    def ntk(x):
        kernel = x @ x.T
        q = jnp.diag(kernel)
        gap = jnp.sum((x[:, None] - x[None]) ** 2, axis=-1) / 2
        q1, q2 = q[:, None], q[None, :]

        def layer(_, state):
            q1, q2, gap, theta = state
            gap, derivative = pair_moments("relu", q1, q2, gap)
            gap, q1, q2 = 2 * gap, 2 * second_moment("relu", q1), 2 * second_moment("relu", q2)
            return q1, q2, gap, (q1 + q2) / 2 - gap + 2 * derivative * theta

        return jax.lax.fori_loop(0, 100, layer, (q1, q2, gap, kernel))[-1]

    x = np.random.default_rng(0).normal(size=(12, 20))
    x = np.concatenate([x, x[:1] + 1e-4 * x[1:2], x[:1], -x[2:3]]).astype(np.float32)
    got = jax.jit(ntk)(x)
    with jax.enable_x64(True):
        want = jax.jit(ntk)(x.astype(np.float64))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("name", ["relu", "erf", "gelu", "tanh", "leaky_relu"])
def test_zero_rows(name):
    """A variance of 0 gives E[φ(0)φ(v)] and φ'(0) E[φ'(v)], in a finite network's sense."""
    with jax.enable_x64(True):
        gap, derivative = pair_moments(name, np.zeros(2), np.array([0.0, 2.0]), np.array([0.0, 1]))
        assert float(gap[0]) == 0
        np.testing.assert_allclose(gap[1], float(second_moment(name, 2.0)) / 2, rtol=1e-12)
        at_zero = {"relu": 0.0, "leaky_relu": 0.01, "gelu": 0.5, "tanh": 1.0}
        slope = at_zero.get(name, 2 / np.sqrt(np.pi))
        np.testing.assert_allclose(derivative[0], slope**2, atol=1e-14)
        np.testing.assert_allclose(derivative_second_moment(name, 0.0), slope**2, atol=1e-14)


def test_angle_and_folding_of_vectors_of_any_lengths():
    draw = np.random.default_rng(0)
    u, v = draw.normal(size=(2, 40, 3)) * draw.uniform(0.1, 3.0, size=(2, 40, 1))
    lengths = np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=1)
    chord = np.linalg.norm(u / lengths[0][:, None] - v / lengths[1][:, None], axis=1)
    theta = 2 * np.arcsin(chord / 2)
    folding = lengths[0] * lengths[1] * (np.sin(theta) - theta * np.cos(theta))
    moments = np.sum(u**2, 1), np.sum(v**2, 1), np.sum((u - v) ** 2, 1) / 2
    with jax.enable_x64(True):
        found = angle_and_folding(*map(jnp.asarray, moments))
    np.testing.assert_allclose(found[0], theta, rtol=1e-12)
    np.testing.assert_allclose(found[1], folding, rtol=1e-12)


def test_moments_that_overflow_are_said_to():
    with pytest.raises(NumericalFailure, match="overflow at variances up to 1e\\+04"):
        gaussian_moments("exp", 1e4, 1e4, 1e4)
