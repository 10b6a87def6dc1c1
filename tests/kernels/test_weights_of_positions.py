"""Weights of positions and of skips: Bahri and Hanin, Les Houches lectures, eqs. (18)-(26)."""

import math

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 2))
FACTORS = np.array([0.5, -0.3, 1.0, 0.2, 0.7])
VARIANCES = (0.2, 0.5, 0.3)
RELU, LAST = lg.Activation("relu"), lg.Dense(weight_std=1.1, bias_std=0.3)
CONV = lg.Conv((3,), weight_std=1.3, bias_std=0.2, tap_variances=VARIANCES)


def arc_cosine(K, one, two):
    """E[φ(u)φ(v)] of relu, with the variances of u and v."""
    size = np.sqrt(one * two)
    angle = np.arccos(np.clip(K / size, -1, 1))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)


def behind_convolutions():
    """The kernel behind two convolutions and activations, (n, m, p, q), position by position."""
    K = np.einsum("npc,mqc->nmpq", X, X) / 2
    for _ in range(2):
        summed = np.full_like(K, 0.2**2)
        for p, q, k in np.ndindex(5, 5, 3):
            a, b = p + k - 1, q + k - 1
            if 0 <= a < 5 and 0 <= b < 5:
                summed[:, :, p, q] += 1.3**2 * VARIANCES[k] * K[:, :, a, b]
        own = np.einsum("nnpp->np", summed)
        K = arc_cosine(summed, own[:, None, :, None], own[None, :, None, :])
    return K


@pytest.mark.parametrize(
    ("layers", "weights"),
    [
        ((lg.layers.ScalePositions(FACTORS), lg.layers.GlobalSumPool()), FACTORS),
        ((lg.GlobalAvgPool(),), np.full(5, 0.2)),
    ],
)
def test_sums_with_weights(layers, weights):
    # The second case is computed in planes of displacement.
    net = lg.serial(CONV, RELU, CONV, RELU, *layers, LAST)
    want = 0.3**2 + 1.1**2 * np.einsum("nmpq,p,q->nm", behind_convolutions(), weights, weights)
    np.testing.assert_allclose(lg.nngp_kernel(net, X), want, rtol=1e-12)


def test_networks_have_the_factors():
    net = lg.serial(CONV, RELU, lg.layers.ScalePositions(FACTORS), lg.Flatten(), LAST)
    network = lg.networks.finite_network(net, lg.ntk(), width=8, inputs=(5, 2))
    params = jax.tree.map(lambda w: w.astype(float), network.init(0))
    first, *_, last = params
    y = np.zeros((3, 5, 8))
    padded = np.pad(X, [(0, 0), (1, 1), (0, 0)])
    for k in range(3):
        root = 1.3 * np.sqrt(VARIANCES[k] / 2)
        y += root * padded[:, k : k + 5] @ np.asarray(first["weight"][k])
    y = np.maximum(y + 0.2 * np.asarray(first["bias"]), 0) * FACTORS[:, None]
    f = 1.1 * y.reshape(3, -1) @ np.asarray(last["weight"]) / np.sqrt(40)
    np.testing.assert_allclose(network.apply(params, X), f[:, 0] + 0.3 * last["bias"], rtol=1e-12)
    by_layers = lg.networks.empirical_ntk(net, params, X)
    of_function = lg.networks.ntk_of_function(network.apply, params, X)
    np.testing.assert_allclose(by_layers, of_function, rtol=1e-10)


@pytest.mark.slow
def test_variances_of_taps_are_those_of_inputs():
    # A window that sees each position once: √(ν_k K) can be put into the data. In two axes the
    # variances are products.
    x = RNG.standard_normal((4, 2, 2, 3))
    rows, columns = np.array([0.3, 0.7]), np.array([0.9, 0.1])
    moved = x * np.sqrt(4 * np.multiply.outer(rows, columns))[..., None]
    y = np.array([1.0, -1.0, 0.5, 0.0])
    for ask in (
        lambda net, x: lg.kernel(net, x).ntk,
        lambda net, x: lg.solve(lg.Run(
            net, lg.mean_field(), lg.Dataset(x, y), optimizer=lg.gd(lr=0.1), steps=2),
            theory=lg.theories.DeepMeanField(particles=256, replicates=2)).f_train,
    ):  # fmt: skip
        found = [
            ask(
                lg.serial(lg.Conv((2, 2), padding="VALID", **options), RELU, lg.Flatten(), LAST), at
            )
            for options, at in (({"tap_variances": (rows, columns)}, x), ({}, moved))
        ]
        np.testing.assert_allclose(*found, rtol=1e-4)


def test_a_mean_is_a_sum_with_equal_factors():
    data = lg.Dataset(X, np.array([1.0, -1.0, 0.5]))
    cheap = lg.theories.DeepMeanField(particles=256, replicates=2)
    mean = (lg.GlobalAvgPool(),)
    weighted = (lg.layers.ScalePositions(np.full(5, 0.2)), lg.layers.GlobalSumPool())
    found = []
    for pool in (mean, weighted):
        net = lg.serial(lg.Conv((3,)), RELU, *pool, lg.Dense())
        run = lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(lr=0.1), steps=2)
        found.append(lg.solve(run, theory=cheap).f_train)
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-9)


def test_a_sum_of_values_with_one_weight():
    # Wx + diag(h) Wx = diag(1 + h) Wx, from the covariance of both terms.
    factors = lg.layers.ScalePositions(FACTORS)
    twice = lg.layers.Graph({
        "u": (CONV, "x"), "v": (factors, "u"), "s": ("sum", "u", "v"),
        "f": (lg.serial(RELU, lg.GlobalAvgPool(), LAST), "s"),
    })  # fmt: skip
    once = lg.serial(CONV, lg.layers.ScalePositions(1 + FACTORS), RELU, lg.GlobalAvgPool(), LAST)
    for one, two in zip(lg.kernel(twice, X), lg.kernel(once, X), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10)


@pytest.mark.parametrize("gamma", [0.7, -0.4, 0.0])
def test_factors_of_skips(gamma):
    x = X[:, 0]
    branch = lg.serial(RELU, lg.Dense(weight_std=1.3, bias_std=0.2))
    K = x @ x.T / 2
    for _ in range(3):
        own = np.diag(K)
        K = 0.2**2 + 1.3**2 * arc_cosine(K, own[:, None], own) + gamma**2 * K
    block = lg.Residual(branch, skip_factor=gamma)
    as_layer = lg.Residual(branch, lg.Activation(lambda u: gamma * u))
    nets = [lg.serial(lg.Dense(), lg.repeat(b, 3), lg.Dense()) for b in (block, as_layer)]
    for net in nets if gamma else nets[:1]:
        np.testing.assert_allclose(lg.nngp_kernel(net, x), K, rtol=1e-12)
    assert block.with_parts(block.parts) == block


def test_multiples_of_gaussian_values_are_gaussian():
    twice = lg.serial(lg.Dense(), lg.Activation(lambda u: 2 * u), RELU, lg.Dense())
    found, once = lg.kernel(twice, X[:, 0]), lg.kernel(lg.mlp(1, "relu"), X[:, 0])
    np.testing.assert_allclose(found.nngp, 4 * once.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, 4 * once.ntk, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lg.Conv((3,), tap_variances=(0.5, 0.5)), "of the lengths \\(3,\\)"),
        (lambda: lg.Conv((3,), tap_variances=(0.5, 0.5, 0)), "positive numbers"),
        (lambda: lg.Conv((2, 2), tap_variances=(0.5, 0.5)), "of the lengths \\(2, 2\\)"),
        (lambda: lg.Conv((2,), tap_variances="ab"), "tap_variances: wanted"),
        (lambda: lg.layers.ScalePositions(2.0), "one number for each position"),
        (lambda: lg.layers.ScalePositions([1.0, np.nan]), "factors: 1 of 2 numbers"),
        (lambda: lg.Residual(LAST, skip_factor=math.nan), "skip_factor: wanted"),
        (lambda: lg.repeat(lg.Residual(LAST, skip_factor=0.5), math.inf), "powers have no limit"),
        (
            lambda: lg.nngp_kernel(lg.serial(lg.layers.ScalePositions([1.0, 2.0]), CONV), X),
            "for the spatial axes \\(2,\\), and its input has \\(5,\\)",
        ),
    ],
)  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()
