"""Branches that read the normalised stream: against sums over time."""

import math

import jax
import numpy as np
import pytest

import largen as lg
from largen.expectations import as_activation
from largen.theories.chains.constants import MapConstants
from largen.theories.chains.normalized import NormalizedActivation
from largen.theories.mean_field.infinite_depth.blocks import begin, solve
from largen.theories.mean_field.infinite_depth.neuron_network import (
    NeuronNetwork,
    Training,
)

RNG = np.random.default_rng(7)
INPUTS, TARGETS = RNG.standard_normal((6, 5)), np.array([1.0, -1.0, 1.0, -1.0])
DATA = lg.Dataset(INPUTS[:4], TARGETS, INPUTS[4:], np.ones(2))
FIELDS = INPUTS[1:5, :3] / 3**0.5
RATES = np.array([0.9, 0.6, 0.8, 0.7])


def run_of(norm, phi, param, *, layers=1):
    """A network whose branches and read-out read the normalised stream."""
    parts = [lg.Activation(phi), lg.Dense(bias_std=0.3)] * layers
    block = lg.Residual(lg.serial(norm, *parts))
    net = lg.serial(lg.Dense(), lg.repeat(block, math.inf), norm, lg.Dense())
    return lg.Run(net, param, DATA, optimizer=lg.gd(0.4), steps=6)


def finite_depth(norm, start, blocks, *, along=1.0):
    """Return f of a network of some blocks without noise, whose sums over time are as written.

    Without ``along`` the gradient is not projected off the normalised stream.
    """
    a, w = start
    count, centred = a.shape[1], isinstance(norm, lg.LayerNorm)
    past, outputs = [], []

    def normalised(h):
        h = h - centred * h.mean(1, keepdims=True)
        scale = np.sqrt(np.mean(h**2, 1, keepdims=True) + norm.eps)
        return h / scale, scale

    def through(h, z, slope):
        x, scale = normalised(h)
        v = slope(x) * z
        v = v - centred * v.mean(1, keepdims=True)
        return (v - along * x * np.mean(x * v, 1, keepdims=True)) / scale

    for lr in (*RATES, 0.0):
        h = [FIELDS @ a]
        for l in range(blocks):
            x = np.tanh(normalised(h[l])[0])
            drift = sum(
                kappa * (x @ np.tanh(normalised(hs[l][:3])[0]).T / count * delta) @ g[l + 1]
                for kappa, delta, hs, g in past
            )
            h.append(h[l] + drift / blocks)
        last = normalised(h[-1])[0]
        f = last @ w[0] / count
        delta, kappa = TARGETS[:3] - f[:3], lr / 3
        g = [through(h[-1][:3], w, np.ones_like)]
        for l in reversed(range(blocks)):
            z = sum(
                k * (g[0] @ gs[l + 1].T / count * old) @ np.tanh(normalised(hs[l][:3])[0])
                for k, old, hs, gs in past
            )
            slope = lambda x: 1 - np.tanh(x) ** 2  # noqa: E731
            g.insert(0, g[0] + through(h[l][:3], z + np.zeros_like(g[0]), slope) / blocks)
        past.append((kappa, delta, h, g))
        outputs.append(f)
        a = a + kappa * FIELDS[:3].T @ (delta[:, None] * g[0])
        w = w + kappa * delta @ last[:3]
    return np.array(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [lg.LayerNorm(eps=0.05), lg.RMSNorm(eps=0.3)])
def test_neurons_solve_sums_over_time(norm):
    phi, out = (
        NormalizedActivation(as_activation(name), isinstance(norm, lg.LayerNorm), norm.eps)
        for name in ("tanh", "linear")
    )
    network = NeuronNetwork((phi,), out, FIELDS, np.ones(3), (MapConstants(),), MapConstants(), 1.0)
    training = Training(lg.losses.as_loss("mse"), TARGETS[:3, None], RATES)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        neurons = begin(network, training, 64, (4, 4), 1e-5, rng, np.float64)
    # An average that is not zero at initialisation, as it is not later.
    neurons = neurons._replace(fields=neurons.fields + 0.3 * RNG.standard_normal((3, 1)))
    start = neurons.fields, neurons.readout
    coarse, fine = (finite_depth(norm, start, blocks) for blocks in (12, 24))
    wanted = 2 * fine - coarse
    found = solve(network, training, (), neurons, 4, 1e-5, jax.random.key(0)).outputs[..., 0]
    np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())
    assert np.abs(fine - wanted).max() > 2e-4  # so that the limit is seen
    assert np.abs(finite_depth(norm, start, 24, along=0.0) - fine).max() > 0.02


@pytest.mark.slow
def test_trained_networks_approach_the_extrapolated_limit():
    """Without the projection off h̃ in the gradient, the limit is off by several per cent."""
    data = lg.Dataset(INPUTS[:3], np.array([1.0, -1.0, 0.5]))

    def network(blocks):
        branch = lg.serial(lg.LayerNorm(), lg.Activation("tanh"), lg.Dense())
        stack = lg.repeat(lg.Residual(branch), blocks)
        net = lg.serial(lg.Dense(), stack, lg.LayerNorm(), lg.Dense())
        return lg.Run(net, lg.depth_mup(), data, optimizer=lg.gd(0.6), steps=4)

    limit = lg.solve(network(math.inf), depths=(2, 4), particles=512, replicates=4)
    f = lg.train(network(16), width=192, seeds=128, key=1).f_train[:, 1:]
    off, noise = f.mean(0) - limit.f_train[1:], f.std(0, ddof=1) / len(f) ** 0.5
    error = np.hypot(noise, limit.f_train_error[1:])
    assert np.sqrt(np.mean(off**2)) < 2.5 * np.sqrt(np.mean(error**2))
    assert np.sqrt(np.mean(error**2)) < 2e-2 * np.sqrt(np.mean(f.mean(0) ** 2))


@pytest.mark.slow
def test_blocks_of_several_matrices_by_neurons_and_by_extrapolation():
    run = run_of(lg.LayerNorm(), "tanh", lg.complete_p(), layers=2)
    options = {"particles": 512, "replicates": 4, "rtol": 2e-2}
    neurons_of_blocks = lg.solve(run, **options)
    extrapolated = lg.solve(run, method="sweep", depths=(4, 8), **options)
    off = neurons_of_blocks.f_train - extrapolated.f_train
    error = np.hypot(neurons_of_blocks.f_train_error, extrapolated.f_train_error)
    assert np.sqrt(np.mean(off**2)) < 2.5 * np.sqrt(np.mean(error**2))
    assert np.sqrt(np.mean(error**2)) < 2e-2 * np.sqrt(np.mean(extrapolated.f_train**2))
    # The inner layers learn: with one matrix a block the outputs are others.
    one = lg.solve(run_of(lg.LayerNorm(), "tanh", lg.complete_p()), rtol=1e-2)
    assert np.abs(one.f_train - neurons_of_blocks.f_train).max() > 8 * np.sqrt(np.mean(off**2))
