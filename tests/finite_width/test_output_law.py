"""The distribution of an output at one input: linear and relu exactly, others by networks."""

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

X = np.ones((1, 4))


def law_of(width, activation: Any = "tanh", layers=2, **options):
    return lg.finite_width.output_law(lg.mlp(layers, activation, **options), X, width=width)


@pytest.mark.parametrize("width", [(1,), (2, 1), (4, 5, 3), (100,) * 4, (10**6,)])
def test_linear_networks_have_meijers_density(width):
    law = law_of(width, "linear", len(width))
    exact = lg.finite_width.linear_network_output(lg.mlp(len(width), "linear"), X, width=width)
    f = np.linspace(0.05, 4, 20)
    np.testing.assert_allclose(law.density(f), exact.density(f), rtol=2e-3)
    for order in (1, 2, 4):
        assert law.moment(order) == pytest.approx(exact.moment(order), rel=3e-3)
    # Gauss–Legendre between two points where the density is smooth.
    nodes, weights = np.polynomial.legendre.leggauss(60)
    mass = weights @ exact.density(0.5 + 1.5 * (nodes + 1) / 2) * 0.75
    assert np.diff(law.cdf(np.array([0.5, 2.0])))[0] == pytest.approx(mass, abs=2 * law.error)
    assert law.error < 1e-4


@pytest.mark.parametrize("width", [(1, 1), (2, 3), (30, 30, 30)])
def test_relu_networks_have_their_moments_and_die(width):
    net = lg.mlp(len(width), "relu", weight_std=2**0.5)
    law = lg.finite_width.output_law(net, X, width=width)
    exact = lg.finite_width.homogeneous_moments(net, X, width=width)
    assert law.dead == pytest.approx(exact.dead, rel=1e-12, abs=1e-14)
    assert law.variance == pytest.approx(exact.kernel, rel=2e-3)
    variance = law.kernel_moment(2) - law.variance**2
    assert variance == pytest.approx(exact.kernel_variance, rel=1e-2)


def test_a_single_neuron_is_an_integral():
    # f = v tanh(u): P(f ≤ z) = E Φ(z/|tanh u|).
    nodes = np.linspace(-9, 9, 2000)  # none at 0
    weights = np.exp(-(nodes**2) / 2)
    z = np.array([0.2, 0.7, 1.5])
    exact = ndtr(z / np.abs(np.tanh(nodes))[:, None]).T @ weights / weights.sum()
    np.testing.assert_allclose(law_of(1, layers=1).cdf(z), exact, atol=1e-4)


def test_wide_networks_follow_the_expansion():
    net = lg.mlp(3, "tanh", weight_std=1.3, bias_std=0.2)
    law = lg.finite_width.output_law(net, X, width=500)
    found = lg.finite_width.width_corrections(net, X, width=500)
    variance = law.kernel_moment(2) - law.variance**2
    assert variance == pytest.approx(found.kernel_covariance[0, 0], rel=0.02)
    shift, expected = law.variance - found.kernel[0, 0], found.kernel_shift[0, 0]
    assert shift == pytest.approx(expected, rel=0.03)


def test_a_parameterization_scales_the_read_out():
    net, param = lg.mlp(1, "tanh"), lg.mean_field(gamma=0.5)
    law = lg.finite_width.output_law(net, X, width=9, param=param)
    assert law.moment(4) == pytest.approx((2 / 3) ** 4 * law_of(9, layers=1).moment(4), rel=1e-9)


def test_biases_keep_outputs_of_dead_networks():
    law = law_of(1, "relu", layers=1, bias_std=0.5)
    assert law.dead == 0
    assert law.kernels[0] == 0.25
    assert law.weights[0] == pytest.approx(0.5)


def test_bad_inputs_are_named():
    with pytest.raises(InvalidInput, match="one input"):
        lg.finite_width.output_law(lg.mlp(1, "tanh"), np.ones((2, 3)), width=5)
    with pytest.raises(InvalidInput, match="have the variance 0"):
        lg.finite_width.output_law(lg.mlp(1, "tanh"), np.zeros((1, 3)), width=5)
    with pytest.raises(NumericalFailure, match=r"two resolutions|overflow"):
        law_of(3, lambda z: z**9, layers=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "width", "options"),
    [
        ("tanh", (2, 2, 2, 2), {"weight_std": 3.0, "bias_std": 0.3}),
        ("gelu", (5,) * 4, {"weight_std": 1.5, "bias_std": 0.1}),
        ("erf", (4, 4), {"weight_std": 10.0}),
        ("relu", (3, 6), {"weight_std": 2**0.5}),
    ],
)
def test_a_million_networks_have_the_distribution(activation, width, options):
    net = lg.mlp(len(width), activation, **options)
    law = lg.finite_width.output_law(net, X, width=width)
    drawn = lg.finite_width.sample_kernels(net, X, width=width, draws=10**6, key=1)[:, 0, 0]
    z = np.linspace(0.1, 3, 12) * law.variance**0.5
    means = [ndtr(at / np.sqrt(np.maximum(drawn, 1e-300))).mean() for at in z]
    assert np.max(np.abs(law.cdf(z) - means)) < 1e-3
