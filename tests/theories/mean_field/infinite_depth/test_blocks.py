"""Blocks of several matrices at α = 1: against linear equations, and themselves."""

import numpy as np
import pytest

import largen as lg
from largen.expectations import as_activation
from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.infinite_depth.blocks import blocks_limit
from largen.theories.mean_field.infinite_depth.linear_network import LinearNetwork
from largen.theories.mean_field.infinite_depth.neuron_network import NeuronNetwork, Training
from largen.theories.mean_field.infinite_depth.riccati import linear_limit

RNG = np.random.default_rng(12)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))
FIELDS, FIELD_RATE = X / 3**0.5, np.array([1.0, 0.3, 0.0])
MAPS, READ_OUT = (
    (MapConstants(0.9, 1.3, 0.7, 0.8), MapConstants(1.2, 0.7, 0.3, 0.5)),
    MapConstants(1.1, 0.9, 0.4, 0.6),
)
RATES = 0.2 * (1 + 0.5 * np.sin(np.arange(5)))
BATCHES = np.stack([RNG.permutation(3)[:2] for _ in range(5)])


def network_of(phi, maps, *, outputs=1):
    phi = as_activation(phi)
    several, shape = (phi,) * len(maps), (outputs,)
    return NeuronNetwork(several, phi, FIELDS, FIELD_RATE, maps, READ_OUT, 1.4, shape)


@pytest.mark.slow
def test_linear_blocks_are_the_linear_equations():
    """Second moments are exact, so that there is little sampling error."""
    training = Training(lg.losses.as_loss("mse"), Y, RATES, 0.6, 0.3, BATCHES)
    network = network_of("linear", MAPS, outputs=2)
    found = blocks_limit(
        network, training, [0, 5], particles=2048, replicates=2, tolerance=1e-3, dtype=np.float64
    )

    def pull(t, f):
        batch = BATCHES[min(t, 4)]
        return np.stack([(Y[i] - f[i]) / 2 if i in batch else 0 * f[i] for i in range(len(f))])

    def linear(power):
        options = {"gamma": 1.4, "outputs": 2, "momentum": 0.6, "decay": 0.3}
        network = LinearNetwork.of(FIELDS, FIELD_RATE, MAPS, READ_OUT, power, RATES, **options)
        return linear_limit(network, pull, [0, 5])

    limit, lazy = linear(1.0), linear(0.75)
    np.testing.assert_allclose(found.outputs, limit.outputs, atol=1.5e-3)
    np.testing.assert_allclose(found.kernels.ntk, limit.ntk, atol=2e-3 * np.abs(limit.ntk).max())
    # Blocks that do not learn inside are another limit.
    assert np.abs(lazy.outputs - limit.outputs).max() > 2e-2


@pytest.mark.slow
def test_independent_sets_agree_within_their_errors():
    training = Training(lg.losses.as_loss("mse"), Y[:, :1], np.full(4, 0.4))
    network = network_of("tanh", MAPS)
    few, more = (
        blocks_limit(
            network, training, particles=1024, replicates=4, grids=(nodes, nodes - 1), key=nodes
        )
        for nodes in (2, 3)
    )
    z = (few.outputs - more.outputs)[1:] / np.hypot(few.error, more.error)[1:]
    assert 0.1 < np.sqrt(np.mean(z**2)) < 3
    assert few.error.max() < 0.01
