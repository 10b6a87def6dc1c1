"""The public functions: values, dtypes, and the errors that they name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largen.errors import InvalidInput
from largen.expectations import (
    as_activation,
    derivative_second_moment,
    gaussian_moments,
    mean,
    moment_error,
    pair_error,
    pair_moments,
    second_moment,
)


def test_values_and_dtypes():
    value, derivative = gaussian_moments("relu", np.ones(2), np.array([1.0, 0.0]), np.ones(2))
    assert isinstance(value, np.ndarray)
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, [0.5, 1 / (2 * np.pi)], rtol=1e-15)
    np.testing.assert_allclose(derivative, [0.5, 0.25], rtol=1e-15)
    single, _ = gaussian_moments("tanh", *(np.float32(x) * np.ones(1, "f") for x in (1, 0.5, 1)))
    double, _ = gaussian_moments("tanh", 1.0, 0.5, 1.0)
    assert single.dtype == np.float32
    assert double.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=1e-6)
    assert not jax.config.jax_enable_x64


def test_negative_variances_are_refused():
    for function in (second_moment, derivative_second_moment, mean, moment_error):
        with pytest.raises(InvalidInput, match="q: wanted variances ≥ 0, got -1"):
            function("tanh", np.array([2.0, -1.0]))
    for function in (pair_moments, pair_error):
        with pytest.raises(InvalidInput, match="gap: wanted variances ≥ 0, got -1"):
            function("relu", 1.0, 1.0, -1.0)
    assert np.isnan(second_moment("relu", np.nan))


def test_under_jit_and_grad():
    slope = jax.jit(jax.grad(lambda c: gaussian_moments("erf", jnp.ones(()), c, jnp.ones(()))[0]))
    _, derivative = gaussian_moments("erf", 1.0, 0.5, 1.0)
    np.testing.assert_allclose(slope(0.5), derivative, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tanh", -1.0, 0.0, 1.0), "q1: wanted variances ≥ 0"),
        (("tanh", 1.0, 0.0, -1.0), "q2: wanted variances ≥ 0"),
        (("tanh", 1.0, 1.1, 1.0), "q12: wanted"),
        (("tanh", np.nan, 0.0, 1.0), "q1"),
        (("tanh", np.ones(2), np.zeros(3), np.ones(2)), "do not broadcast"),
        (("tahn", 1.0, 0.0, 1.0), "Did you mean 'tanh'"),
        (("rbf", 1.0, 0.0, 1.0), r"'rbf' has parameters: largen.expectations.rbf\(gamma\)"),
        (("hermite", 1.0, 0.0, 1.0), r"expectations.hermite\(degree\)"),
        ((3, 1.0, 0.0, 1.0), "activation: wanted a name"),
        ((np.tanh, 1.0, 0.0, 1.0), "pass that of jax.numpy"),
    ],
)
def test_wrong_input(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        gaussian_moments(*arguments)


@pytest.mark.parametrize(
    "function",
    [
        np.tanh,
        jax.nn.softmax,
        lambda x: jnp.sum(x),
        lambda x: float(x),
        lambda x: x > 0,
        lambda x: x * x.ndim,  # another function of batches of samples than of one
    ],
)
def test_not_an_elementwise_function(function):
    with pytest.raises(InvalidInput, match="activation"):
        as_activation(function)


def test_swish_is_silu():
    assert as_activation("swish") is as_activation("silu")
