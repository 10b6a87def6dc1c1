"""Regression at finite width against networks drawn from the exact distribution, and trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

RNG = np.random.default_rng(1)
X = RNG.normal(size=(5, 4))
Y = np.array([1.0, -0.5, 0.3])
NET = lg.mlp(2, "tanh", weight_std=1.5, bias_std=0.2)
NOISE = 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["readout", "bayesian", "linearized"])
def test_averages_over_drawn_networks(kind):
    n, draws = 60, 20_000
    found = lg.finite_width.corrected_posterior(
        NET, X[:3], Y, X[3:], width=n, kind=kind, noise=NOISE, draws=20_000, key=0
    )
    drawn = lg.finite_width.sample_tangent_kernels(NET, X, width=n, draws=draws, key=3)
    G = drawn.ntk if kind == "linearized" else drawn.kernel
    inner = G[:, :3, :3] + NOISE * np.eye(3)
    A = np.linalg.inv(inner)
    kappa = G[:, 3:, :3] @ A
    mean, covariance = kappa @ Y, G[:, 3:, 3:] - kappa @ G[:, :3, 3:]
    weight = np.ones(draws)
    if kind == "bayesian":
        fit = np.einsum("p,rpq,q->r", Y, A, Y) + np.linalg.slogdet(inner)[1]
        weight = np.exp(-fit / 2)
        weight = weight / weight.mean()

    def check(observed, wanted, left):
        average = np.tensordot(weight, observed, 1) / draws
        error = (weight.reshape(-1, *[1] * wanted.ndim) * (observed - average)).std(axis=0)
        assert np.all(np.abs(average - wanted) < 3.5 * error / np.sqrt(draws) + left)
        return average

    # What is left is of the relative size 1/n of the shifts, with a constant of about 5.
    left = 5 / n * np.abs(found.mean_shift).max() + 3.5 * found.mean_error
    average = check(mean, found.mean + found.mean_shift, left)
    apart = (mean - average)[:, :, None] * (mean - average)[:, None]
    check(apart, found.width_covariance, 5 / n * found.width_covariance.max())
    if kind != "linearized":
        total = covariance + (apart if kind == "bayesian" else 0)
        shift = np.abs(found.covariance_shift).max()
        check(total, found.covariance + found.covariance_shift, 5 / n * shift)


def test_limits_are_the_regression_with_kernels():
    for kind, kernel in (("readout", "nngp"), ("linearized", "ntk")):
        found = lg.finite_width.corrected_posterior(
            NET, X[:3], Y, X[3:], width=50, kind=kind, noise=NOISE, draws=10, key=0
        )
        G = getattr(lg.kernel(NET, X), kernel)
        kappa = G[3:, :3] @ np.linalg.inv(G[:3, :3] + NOISE * np.eye(3))
        assert np.allclose(found.mean, kappa @ Y)
        if kind == "readout":
            assert np.allclose(found.covariance, G[3:, 3:] - kappa @ G[:3, 3:])


@pytest.mark.slow
def test_trained_networks():
    # Gradient descent on all weights, with initial outputs subtracted and targets so small that
    # the network stays in its linearisation.
    n, seeds, small = 32, 1500, 1e-3
    net = lg.mlp(2, "tanh", weight_std=1.5)
    found = lg.finite_width.corrected_posterior(
        net, X[:2], Y[:2], X[3:], width=n, kind="linearized", draws=20_000, key=0
    )
    network = lg.networks.finite_network(net, lg.ntk(), width=n, inputs=4)

    def trained(key):
        start = network.draw(key, np.float64)
        at_start = network.outputs_of(start, X)

        def f(params):
            return (network.outputs_of(params, X) - at_start).reshape(-1)

        def loss(params):
            return jnp.sum((f(params)[:2] - small * Y[:2]) ** 2) / 2

        def step(_, params):
            return jax.tree.map(lambda p, g: p - 0.15 * g, params, jax.grad(loss)(params))

        params = jax.lax.fori_loop(0, 400, step, start)
        return f(params) / small

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(4), seeds)
        outputs = np.asarray(jax.lax.map(trained, keys, batch_size=100))
    assert np.abs(outputs[:, :2] - Y[:2]).max() < 0.02
    seen = outputs[:, 3:]
    error = seen.std(axis=0) / np.sqrt(seeds)
    left = 10 / n * np.abs(found.mean_shift) + 3.5 * found.mean_error
    assert np.all(np.abs(seen.mean(axis=0) - found.mean - found.mean_shift) < 3.5 * error + left)
    spread = np.var(seen, axis=0)
    error = np.std((seen - seen.mean(axis=0)) ** 2, axis=0) / np.sqrt(seeds)
    wanted = np.diagonal(found.width_covariance)
    assert np.all(np.abs(spread - wanted) < 3.5 * error + 5 / n * wanted)


def test_bad_inputs_are_named():
    with pytest.raises(InvalidInput, match="kind"):
        lg.finite_width.corrected_posterior(NET, X[:3], Y, X[3:], width=9, kind="all", key=0)
    with pytest.raises(InvalidInput, match="do not fit"):
        lg.finite_width.corrected_posterior(NET, X[:2], Y, X[3:], width=9, key=0)
    with pytest.raises(NumericalFailure, match="singular"):
        lg.finite_width.corrected_posterior(NET, X[[0, 0, 1]], Y, X[3:], width=9, draws=9, key=0)
