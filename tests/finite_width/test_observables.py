"""Averages of functions with kinks and jumps at order 1/width, or named refusals."""

from math import erf, exp, pi, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import NumericalFailure

X = np.array([[1.2, 0.3, -0.7, 0.4], [0.2, 1.0, 0.5, -1.1]])
FOUND = lg.finite_width.width_corrections(
    lg.mlp(2, "tanh", weight_std=1.3, bias_std=0.3), X, width=60
)
K, M, V = FOUND.kernel[0, 0], FOUND.kernel_shift[0, 0], FOUND.kernel_covariance[0, 0]


def of_one(function):
    return FOUND.expectation(lambda z: function(z[:, 0, 0]), [0])


def test_probabilities():
    above = of_one(lambda z: z > 0)
    assert above == pytest.approx((0.5, 0), abs=1e-12)
    # g(K) = P(z > c): g' = φ(a) a/2K and g'' = φ(a) a (a² − 3)/4K² with a = c/√K.
    for c in (0.3, -0.7123456):
        a = c / sqrt(K)
        density = exp(-(a**2) / 2) / sqrt(2 * pi)
        limit = (1 - erf(a / sqrt(2))) / 2
        shift = density * a * (M / (2 * K) + V * (a**2 - 3) / (8 * K**2))
        assert of_one(lambda z, c=c: z > c) == pytest.approx((limit, shift), rel=1e-8)


def test_kinks():
    mean = sqrt(K / (2 * pi))
    shift = mean * (M / (2 * K) - V / (8 * K**2))
    assert of_one(lambda z: np.maximum(z, 0)) == pytest.approx((mean, shift), rel=1e-9)
    assert of_one(abs) == pytest.approx((2 * mean, 2 * shift), rel=1e-9)


def test_functions_of_jax():
    """Nodes are of double precision, and a function in jax.numpy keeps them so."""
    for one, other in ((jax.nn.relu, lambda z: np.maximum(z, 0)), (jnp.tanh, np.tanh)):
        assert of_one(one) == pytest.approx(of_one(other), rel=1e-12)


def test_functions_that_grow():
    """E exp(cz²) = (1 − 2cK)^(−1/2), and exists for 2cK < 1 only; E exp(cz) = exp(c²K/2)."""

    def of_square(c):
        g = (1 - 2 * c * K) ** -0.5
        return g, c * g**3 * M + 1.5 * c**2 * g**5 * V

    for part in (0.5, 0.7):
        c = part / (2 * K)
        assert of_one(lambda z, c=c: np.exp(c * z**2)) == pytest.approx(of_square(c), rel=1e-5)
    c = 5 / sqrt(K)
    g = exp(12.5)
    shift = g * c**2 * (M / 2 + c**2 * V / 8)
    assert of_one(lambda z: np.exp(c * z)) == pytest.approx((g, shift), rel=1e-6)
    for function in (
        lambda z: np.exp(0.99 / (2 * K) * z**2),
        lambda z: np.exp(1.1 / (2 * K) * z**2),
        lambda z: np.exp(3 / K * z**2),
        lambda z: np.exp(9 / sqrt(K) * z),
    ):
        with pytest.raises(NumericalFailure, match="grows too fast"):
            of_one(function)


def test_kinks_of_several_outputs():
    # E[sign z₁ sign z₂] = (2/π) arcsin ρ.
    k = FOUND.kernel
    rho = k[0, 1] / sqrt(k[0, 0] * k[1, 1])
    found = FOUND.expectation(lambda z: np.sign(z[:, 0, 0] * z[:, 0, 1]))
    assert found.limit == pytest.approx(2 / pi * np.arcsin(rho), rel=1e-6)
    # Outputs are independent given S: E[|z|₁ |z|₂] = (2/π) E S.
    two = FOUND.expectation(lambda z: abs(z[:, 0, 0] * z[:, 1, 0]), [0], neurons=2)
    assert two == pytest.approx((2 * K / pi, 2 * M / pi), rel=1e-6)


@pytest.mark.slow
def test_kinks_of_four_outputs():
    found = FOUND.expectation(
        lambda z: np.maximum(z[:, 0, 0], 0) * np.maximum(z[:, 0, 1], 0) * z[:, 1, 0] * z[:, 1, 1],
        neurons=2,
    )
    drawn = lg.finite_width.sample_kernels(lg.mlp(2, "tanh", weight_std=1.3, bias_std=0.3), X,
        width=60,
                              draws=200_000, key=0)  # fmt: skip
    s1, s2, c = drawn[:, 0, 0], drawn[:, 1, 1], drawn[:, 0, 1]
    theta = np.arccos(c / np.sqrt(s1 * s2))
    relu = np.sqrt(s1 * s2) * (np.sin(theta) + (pi - theta) * np.cos(theta)) / (2 * pi)
    seen = relu * c
    error = seen.std() / np.sqrt(len(seen))
    assert abs(seen.mean() - found.value) < 3.5 * error + 0.02 * abs(found.shift)
    assert abs(found.shift) > 10 * error


def test_what_two_rules_do_not_agree_on_is_refused():
    for function in (
        lambda z: z[:, 0, 0] > z[:, 0, 1],
        lambda z: np.maximum(z[:, 0, 0] + z[:, 0, 1], 0),
        lambda z: abs(z[:, 0, 0] - 0.4 * z[:, 0, 1]),
    ):
        with pytest.raises(NumericalFailure, match="function: two rules"):
            FOUND.expectation(function)
    with pytest.raises(NumericalFailure, match="not finite"):
        of_one(lambda z: np.where(z > 3, np.nan, z))
