"""Kernels of every activation against finite networks: z-scores of means over many neurons.

With one hidden layer, kernels of networks of any width have the kernels of infinite width as their
means, without a term of order 1/N: nothing but the statistical error is allowed for.
"""

import jax
import numpy as np
import pytest

import largen as lg
from largen.expectations import (
    as_activation,
    gaussian,
    hermite,
    leaky_relu,
    monomial,
    polynomial,
    rbf,
)

X = 0.6 * np.random.default_rng(3).standard_normal((3, 4))
DATA = lg.Dataset(X, X[:, 0])
WIDTH, SEEDS = 4096, 64
WEIGHT_STD, BIAS_STD = 1.3, 0.4
MOST = 4.5  # of |z| over 18 entries: chance exceeds it once in 10⁴ such tests

QUICK = [
    "linear", "relu", "leaky_relu", leaky_relu(-0.5), "abs", jax.nn.hard_tanh,
    "erf", "gelu", "sin", "cos", "exp", "gaussian", gaussian(2.0), rbf(0.7), "tanh",
    hermite(3), hermite(4), monomial(2), monomial(3), polynomial((0.3, -1.0, 0.5, 0.25)),
]  # fmt: skip
SLOW = ["sigmoid", "silu", "softplus", "elu", "selu", jax.nn.hard_swish, jax.nn.soft_sign]


def network(phi, factor=1.0):
    return lg.mlp(1, phi, weight_std=factor * WEIGHT_STD, bias_std=BIAS_STD)


def largest_z(samples, want):
    """|z| of the mean over networks, (seed, sample, sample), in the worst entry."""
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    rounding = 1e-12 * np.abs(want)  # sign² is 1 in every network
    return np.abs((samples.mean(0) - want) / (error + rounding)).max()


def features(nngp, factor=1.0):
    """E[φφ'] from the covariance of the outputs, σ_b² + σ_w² E[φφ']."""
    return (nngp - BIAS_STD**2) / (factor * WEIGHT_STD) ** 2


def networks(phi, record):
    run = lg.Run(network(phi), lg.ntk(), DATA, optimizer=lg.gd(1e-9), steps=1)
    return lg.train(run, width=WIDTH, seeds=SEEDS, key=5, record=record, record_at=[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "phi",
    QUICK + [pytest.param(phi, marks=pytest.mark.slow) for phi in SLOW],
    ids=lambda phi: str(as_activation(phi)),
)
def test_means_over_networks(phi):
    nets, limit = networks(phi, ["feature_kernel", "ntk"]), lg.kernel(network(phi), X)
    assert largest_z(nets.feature_kernel[:, 0, 0], features(limit.nngp)) < MOST
    assert largest_z(nets.ntk[:, 0], limit.ntk) < MOST
    # An activation whose argument is 3 % too large would be seen.
    wrong = lg.kernel(network(phi, 1.03), X)
    assert largest_z(nets.ntk[:, 0], wrong.ntk) > 2 * MOST


@pytest.mark.slow
@pytest.mark.parametrize("phi", ["sign", "step"])
def test_means_over_networks_that_jump(phi):
    nets, limit = networks(phi, ["feature_kernel"]), lg.nngp_kernel(network(phi), X)
    assert largest_z(nets.feature_kernel[:, 0, 0], features(limit)) < MOST
    # A covariance that is 3 % too large would be seen.
    assert largest_z(nets.feature_kernel[:, 0, 0], 1.03 * features(limit)) > 2 * MOST
