"""Neurons of infinite depth without noise: against linear equations, finite depths and growth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.expectations import as_activation
from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.infinite_depth import blocks
from largen.theories.mean_field.infinite_depth.blocks import begin, blocks_limit, solve
from largen.theories.mean_field.infinite_depth.linear_network import LinearNetwork
from largen.theories.mean_field.infinite_depth.neuron_network import NeuronNetwork, Training
from largen.theories.mean_field.infinite_depth.riccati import linear_limit
from largen.theories.mean_field.infinite_depth.time_filters import Filter

RNG = np.random.default_rng(11)
X, Y = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 2))
FIELDS = X / 3**0.5
BLOCK, READ_OUT = MapConstants(0.9, 1.3, 0.7, 0.8), MapConstants(1.1, 0.9, 0.4, 0.6)
RATES = 0.3 * (1 + 0.5 * np.sin(np.arange(6)))
BATCHES = np.stack([RNG.permutation(4)[:2] for _ in range(6)])


def network_of(phi, *, outputs=2, field_rate=(1.0, 0.3, 0.0)):
    phi, shape = as_activation(phi), (outputs,)
    return NeuronNetwork((phi,), phi, FIELDS, np.array(field_rate), (BLOCK,), READ_OUT, 1.4, shape)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [None, BATCHES])
def test_linear_neurons_are_the_linear_equations(batches):
    training = Training(lg.losses.as_loss("mse"), Y, RATES, 0.6, 0.3, batches)
    options = {"particles": 512, "replicates": 1, "grids": (5, 4), "tolerance": 1e-5}
    found = blocks_limit(network_of("linear"), training, [0, 6], dtype=np.float64, **options)

    def pull(t, f):
        batch = np.arange(4) if batches is None else batches[min(t, 5)]
        return np.stack(
            [(Y[i] - f[i]) / len(batch) if i in batch else 0 * f[i] for i in range(len(f))]
        )

    linear = LinearNetwork.of(
        FIELDS,
        np.array([1.0, 0.3, 0.0]),
        [BLOCK],
        READ_OUT,
        1.0,
        RATES,
        gamma=1.4,
        outputs=2,
        momentum=0.6,
        decay=0.3,
    )
    limit = linear_limit(linear, pull, [0, 6])
    np.testing.assert_allclose(found.outputs, limit.outputs, atol=1e-8)
    np.testing.assert_allclose(found.kernels.ntk, limit.ntk, atol=1e-7)
    assert found.depth_error.max() < 1e-5


def finite_depth(network, training, start, number):
    """Return f of a network of some blocks without noise, whose sums over time are as written."""
    fields, w = start.fields, start.readout
    steps, count, outputs = len(training.rates), fields.shape[1], len(w)
    trained = Filter.of(training.rates, network.gamma, training.momentum, training.decay)
    phi, slope = (
        lambda h, f=f: np.asarray(f(jnp.asarray(h)))
        for f in (network.phi[0], network.phi[0].derivative)
    )
    rate, bias_rate = BLOCK.rate * BLOCK.std**2, BLOCK.bias_rate * BLOCK.bias_std**2
    past, f = [], np.zeros((steps + 1, len(FIELDS), outputs))
    for t in range(steps + 1):
        k = trained.taken[t]

        def kept(rho, t=t):
            return trained.kept[t] if rho else 1.0

        a = np.stack([kept(rho) * row for rho, row in zip(network.field_rate, fields, strict=True)])
        v = kept(1) * w
        constant = np.zeros(outputs)
        for s, (delta, _, _, g0, last) in enumerate(past):
            a = a + k[s] * network.field_rate[:, None] * np.einsum(
                "mi,mcn,mc->in", FIELDS[:4], g0, delta
            )
            v = v + k[s] * READ_OUT.rate * READ_OUT.std * delta.T @ last[:4]
            constant = constant + k[s] / network.gamma * READ_OUT.bias_rate * (
                READ_OUT.bias_std**2 * delta.sum(0)
            )
        h = [FIELDS @ a]
        for l in range(number):
            x, drift = phi(h[l]), 0.0
            for s, (delta, hs, g, _, _) in enumerate(past):
                pushed = np.einsum("mc,mcn->mn", delta, g[l + 1])
                drift = drift + k[s] * (
                    rate * (x @ phi(hs[l][:4]).T / count) @ pushed + bias_rate * pushed.sum(0)
                )
            h.append(h[l] + drift / number)
        last = phi(h[-1])
        f[t] = READ_OUT.std * last @ v.T / count / network.gamma + constant
        shaped = jnp.asarray(f[t, :4])
        delta = np.asarray(training.loss.residual(shaped, training.targets)) / 4
        g = [READ_OUT.std * slope(h[-1])[:4, None] * v]
        for l in reversed(range(number)):
            drift = 0.0
            for s, (old, hs, gs, _, _) in enumerate(past):
                overlap = np.einsum("acn,bdn->acbd", g[0], gs[l + 1]) / count
                drift = drift + k[s] * rate * np.einsum(
                    "acbd,bd,bn->acn", overlap, old, phi(hs[l][:4])
                )
            g.insert(0, g[0] + slope(h[l])[:4, None] * drift / number)
        past.append((delta, h, g, g[0], last))
    return f


@pytest.mark.slow
def test_limit_of_blocks_with_sums_over_time():
    network = network_of("tanh")
    classes = np.array([0, 1, 1, 0])
    training = Training(lg.losses.as_loss("cross_entropy"), classes, RATES[:4], 0.5, 0.2)
    with jax.enable_x64(True):
        start = begin(network, training, 64, (4, 4), 1e-5, np.random.default_rng(1), np.float64)
        coarse, fine = (finite_depth(network, training, start, blocks) for blocks in (12, 24))
    found = solve(network, training, (), start, 4, 1e-5, jax.random.key(0))
    wanted, size = 2 * fine - coarse, np.abs(fine).max()
    np.testing.assert_allclose(found.outputs, wanted, atol=5e-5 * size)
    assert np.abs(fine - wanted).max() > 1e-3 * size


@pytest.mark.slow
def test_bases_grow(monkeypatch):
    network = network_of("tanh", outputs=1, field_rate=(1, 1, 1))
    training = Training(lg.losses.as_loss("mse"), Y[:, :1], np.full(12, 0.8))
    start = begin(network, training, 256, (2, 2), 1e-6, np.random.default_rng(1), np.float64)
    roomy = solve(network, training, [12, 0], start, 2, 1e-6, jax.random.key(0))
    monkeypatch.setattr(blocks, "USUAL", 1)
    found = solve(network, training, [12, 0], start, 2, 1e-6, jax.random.key(0))
    assert found.ranks.max() > 32
    np.testing.assert_allclose(found.outputs, roomy.outputs, atol=1e-9)
    np.testing.assert_allclose(found.kernels[0].ntk, roomy.kernels[0].ntk, atol=1e-8)


@pytest.mark.slow
def test_nan_after_it_has_escaped():
    network = network_of("linear", outputs=1, field_rate=(1, 1, 1))
    training = Training(lg.losses.as_loss("mse"), Y[:, :1], np.full(12, 50.0))
    found = blocks_limit(network, training, [0, 12], particles=64, replicates=2, grids=(2, 1))
    finite = np.isfinite(found.outputs).all((1, 2))
    assert finite[0]
    assert not finite[-1]
    assert np.isfinite(found.kernels.ntk[0]).all()
    assert np.isnan(found.kernels.ntk[1]).all()


@pytest.mark.slow
def test_error_estimate_and_one_program():
    """Independent sets agree within their errors; further rates compile nothing."""
    network = network_of("tanh", outputs=1, field_rate=(1, 1, 1))._replace(gamma=1.0)

    def limit(rate, particles, key, *, sets=4, known=None):
        training = Training(lg.losses.as_loss("mse"), Y[:, :1], np.full(6, rate))
        options = {"particles": particles, "replicates": sets, "grids": (2, 1), "key": key}
        return blocks_limit(network, training, **options, known=known)

    few, more = limit(0.3, 512, 0), limit(0.3, 2048, 1)
    z = (few.outputs - more.outputs)[1:] / np.hypot(few.error, more.error)[1:]
    assert 0.1 < np.sqrt(np.mean(z**2)) < 3
    assert few.error.max() < 0.02
    compiled = blocks._advance._compiled
    assert compiled is not None
    programs = compiled._cache_size()
    limit(0.1, 2048, 1)
    known = {}
    limit(0.3, 512, 0, sets=1, known=known)  # sets that are added to others are the same
    np.testing.assert_array_equal(limit(0.3, 512, 0, known=known).outputs, few.outputs)
    assert compiled._cache_size() == programs
