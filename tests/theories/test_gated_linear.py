"""Gated linear networks: the closed form of their kernel, NumPy, and ensembles."""

import numpy as np
import pytest

import largen as lg
from largen.errors import NoTheory

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((4, 3)), np.array([1.0, -1.0, 0.5, -0.3])
FIXED = {"0": 0.0, "2": 0.0}
NET = lg.layers.gated_linear(2, weight_std=1.2)


def run_of(param, steps=8):
    data = lg.Dataset(X, Y, X[:1] + 1, Y[:1])
    return lg.Run(NET, param.with_rates(FIXED), data, optimizer=lg.gd(0.4), steps=steps)


def closed_form():
    """Return K; the mean product of steps of unit vectors at an angle θ is (π − θ)/(2π)."""
    gram = X @ X.T / 3
    size = np.sqrt(np.diag(gram))
    angle = np.arccos(np.clip(gram / np.outer(size, size) - np.eye(4), -1, 1))
    gates = (np.pi - angle * (1 - np.eye(4))) / (2 * np.pi)
    return 1.2**6 * gram * gates**2


@pytest.mark.slow
def test_kernels_are_products_of_those_of_gates():
    param = lg.ntk().with_rates(FIXED)
    nngp, ntk = lg.kernel(NET, X, param=param)
    np.testing.assert_allclose(nngp, closed_form(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ntk, 3 * closed_form(), rtol=1e-12, atol=1e-14)
    limit = lg.solve(run_of(lg.ntk()))
    np.testing.assert_allclose(limit.ntk, 3 * closed_form(), rtol=1e-9, atol=1e-12)
    with pytest.raises(NoTheory, match="step jumps"):
        lg.kernel(NET, X)
    of_smooth = lg.layers.gated_linear(1, "sigmoid")
    inner = lg.nngp_kernel(lg.mlp(1, "sigmoid"), X)
    nngp, ntk = lg.kernel(of_smooth, X, param=lg.ntk().with_rates({"0": 0.0}))
    np.testing.assert_allclose(ntk, 2 * inner * (X @ X.T / 3), rtol=1e-9)
    assert np.abs(lg.ntk_kernel(of_smooth, X) - ntk).max() > 0.01


def test_a_jump_behind_trained_weights_has_no_tangent_kernel():
    """Also in repeated blocks, and wherever the trained weights are."""
    net = lg.serial(lg.Dense(), lg.Activation("step"), lg.Dense(), lg.Activation("step"))
    net = lg.serial(net, lg.Dense(), lg.Activation("tanh"), lg.Dense())
    fixed = lg.ntk().with_rates({"0": 0.0, "2": 0.0})
    nngp, ntk = lg.kernel(net, X, param=fixed)
    alone = lg.ntk().with_rates({"input": 0.0, "hidden": 0.0})
    assert (np.diag(ntk) > np.diag(nngp)).all()
    assert np.allclose(lg.ntk_kernel(net, X, param=alone), nngp, rtol=1e-12)
    block = lg.serial(lg.Activation("step"), lg.Dense())
    blocks = lg.serial(lg.Dense(), lg.repeat(block, 3), lg.Activation("relu"), lg.Dense())
    lg.ntk_kernel(blocks, X, param=lg.ntk().with_rates({"0": 0.0, "1.0.1": 0.0}))
    for rates in ({"0": 0.0}, {"1.0.1": 0.0}):
        with pytest.raises(NoTheory, match="step jumps"):
            lg.ntk_kernel(blocks, X, param=lg.ntk().with_rates(rates))


def weights_at_start(network, start, end, x):
    return start


@pytest.mark.slow
def test_finite_networks_follow_the_gradients():
    width, steps, std = 16, 5, 1.2
    run = run_of(lg.mean_field(), steps)
    start = lg.networks.train_and_measure(run, width, weights_at_start, key=1)
    m1, m2, w0, w1, w2 = (layer["weight"][0] for layer in start if layer)
    one, two = (X @ m1 > 0), (X @ m2 > 0)
    found = []
    for _ in range(steps + 1):
        a = one * (std * X @ w0 / 3**0.5)
        b = two * (std * a @ w1 / width**0.5)
        f = std * b @ w2[:, 0] / width
        found.append(f)
        delta = (Y - f)[:, None] / 4
        g2 = std * delta * two * w2[:, 0]
        g1 = one * (std * g2 @ w1.T / width**0.5)
        w2 = w2 + 0.4 * std * b.T @ delta
        w1 = w1 + 0.4 * std * a.T @ g2 / width**0.5
        w0 = w0 + 0.4 * std * X.T @ g1 / 3**0.5
    nets = lg.train(run, width, key=1)
    np.testing.assert_allclose(nets.f_train[0], found, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_networks_approach_the_mean_field():
    names = ["feature_kernel", "gradient_kernel"]
    run = run_of(lg.mean_field())
    limit = lg.solve(run, rtol=0.01, record=names)
    narrow, wide = (lg.train(run, n, seeds=s, record=names) for n, s in ((64, 512), (128, 256)))
    for name in ("f_train", "f_test", *names):
        one, two = (getattr(nets, name) for nets in (narrow, wide))
        mean = 2 * two.mean(0) - one.mean(0)  # without the order 1/width
        variance = 4 * two.var(0) / len(two) + one.var(0) / len(one)
        error = np.sqrt(variance + getattr(limit, f"{name}_error") ** 2)
        drawn = error > 1e-6  # what gates read is fixed
        z = (getattr(limit, name) - mean)[drawn] / error[drawn]
        assert np.sqrt(np.mean(z**2)) < 2, name
        assert np.abs(z).max() < 4.5, name
