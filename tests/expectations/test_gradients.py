"""Derivatives by autodiff, also where the two inputs coincide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largen.expectations import pair_moments, second_moment

NAMES = ["linear", "relu", "leaky_relu", "abs", "erf", "gelu", "sin", "cos", "exp", "tanh"]


def moments(name, point):
    return jnp.stack(pair_moments(name, *point))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_against_differences(name):
    """First derivatives in q1, q2 and gap, forward and reverse, and two Hessians."""
    with jax.enable_x64(True):
        point = jnp.array([1.3, 0.8, 0.4])
        step = 1e-5 * jnp.eye(3)
        differences = jnp.stack(
            [(moments(name, point + e) - moments(name, point - e)) / 2e-5 for e in step], axis=-1
        )
        forward = jax.jit(jax.jacfwd(lambda p: moments(name, p)))(point)
        np.testing.assert_allclose(forward, differences, rtol=1e-7, atol=1e-8)
        if name not in ("relu", "erf", "tanh"):  # one of each way to differentiate
            return
        backward = jax.jit(jax.jacrev(lambda p: moments(name, p)))(point)
        np.testing.assert_allclose(backward, forward, rtol=1e-12, atol=1e-13)
        if name == "tanh":
            return
        slope = jax.grad(lambda p: jnp.sin(moments(name, p)[0]))
        second = jax.jit(jax.jacfwd(slope))(point)
        slope = jax.jit(slope)
        differences = jnp.stack(
            [(slope(point + e) - slope(point - e)) / 2e-5 for e in step], axis=-1
        )
        np.testing.assert_allclose(second, differences, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_where_the_inputs_coincide(name):
    """∂gap'/∂gap = E[φ'²]; gap' stays 0 along the diagonal; D grows there as E[φ'²] does."""
    with jax.enable_x64(True):
        q = 1.3
        point = jnp.array([q, q, 0.0])
        jacobian = jax.jit(jax.jacfwd(lambda p: moments(name, p)))(point)
        diagonal = moments(name, point)[1]
        np.testing.assert_allclose(jacobian[0], [0, 0, diagonal], atol=1e-11)
        along = (
            moments(name, point + 1e-5 * jnp.array([1, 1, 0.0]))[1]
            - moments(name, point - 1e-5 * jnp.array([1, 1, 0.0]))[1]
        ) / 2e-5
        np.testing.assert_allclose(jacobian[1, 0] + jacobian[1, 1], along, atol=1e-8)
        if name not in ("relu", "leaky_relu", "abs"):
            # one-sided in the gap, which cannot be negative
            def d(g):
                return moments(name, jnp.array([q, q, g]))[1]

            slope = (-3 * d(0.0) + 4 * d(1e-5) - d(2e-5)) / 2e-5
            np.testing.assert_allclose(jacobian[1, 2], slope, rtol=2e-5, atol=1e-7)
        else:
            np.testing.assert_allclose(jacobian[1], 0, atol=1e-14)


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_kernel_gradient_with_respect_to_inputs(name):
    """∇_x of E[φ(u)φ(v)] at x = x', from inputs to kernel, is half of ∇ of the diagonal."""

    def kernel(x, y):
        q1, q2, gap = x @ x, y @ y, (x - y) @ (x - y) / 2
        gap, _ = pair_moments(name, q1, q2, gap)
        return (second_moment(name, q1) + second_moment(name, q2)) / 2 - gap

    with jax.enable_x64(True):
        x = jnp.array([0.3, -0.7, 0.5])
        got = jax.grad(kernel)(x, x)
        want = jax.grad(lambda x: second_moment(name, x @ x))(x) / 2
        np.testing.assert_allclose(got, want, rtol=1e-10)
        zero = jax.grad(kernel)(jnp.zeros(3), x)
        assert np.all(np.isfinite(zero))


@pytest.mark.slow
def test_price_and_stein_for_the_series():
    """∂E[φφ]/∂q12 = E[φ'φ'] (Price), and ∂E[φ²]/∂q = E[φ'² + φφ''] (Stein, by quadrature)."""
    with jax.enable_x64(True):
        for c in (0.2, 0.95, 1.0):
            q1, q2 = 2.0, 1.5 if c < 1 else 2.0
            gap = (q1 + q2) / 2 - c * np.sqrt(q1 * q2)
            value, derivative = pair_moments("tanh", q1, q2, gap)
            slope = jax.grad(lambda p: pair_moments("tanh", *p).gap)((q1, q2, gap))[2]
            np.testing.assert_allclose(slope, derivative, rtol=1e-13)
            step = 1e-4
            there = pair_moments("tanh", q1, q2, gap + step).gap
            further = pair_moments("tanh", q1, q2, gap + 2 * step).gap
            np.testing.assert_allclose(
                (-3 * value + 4 * there - further) / (2 * step), derivative, rtol=1e-7
            )
        z = np.arange(-1000, 1001) / 100
        weights = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / 100
        t = np.tanh(np.sqrt(2.0) * z)
        stein = ((1 - t**2) ** 2 - 2 * t**2 * (1 - t**2)) @ weights
        slope = jax.grad(lambda q: second_moment("tanh", q))(2.0)
        np.testing.assert_allclose(slope, stein, rtol=1e-11)
