"""Papers of which one figure each is computed: verdicts at reduced settings."""

import numpy as np
import pytest
from tests.papers.test_initialisation import verdicts

import largen as lg
from papers.further.linear_models import DATA, STEPS, linear_model, training
from papers.further.preactivations import preactivations

# Those that take a few seconds at reduced settings.
NAMES = (
    "1606.05340-chaos",
    "1812.05994-log",
    "1812.07956-lazy",
    "1902.06720-linear",
    "2003.02218-catapult",
    "2305.07810-depth",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_refuted(name, tmp_path):
    """Few small networks leave most claims open, but contradict none."""
    found = verdicts(name, tmp_path)
    assert False not in found


def test_preactivations_lead_to_the_output():
    net = lg.mlp(2, "tanh", weight_std=1.7, bias_std=0.3)
    network, x = lg.networks.finite_network(net, lg.ntk(), width=20, inputs=3), np.eye(3)
    params = network.init(0, np.float64)
    first, last = preactivations(network, params, x, np.tanh)
    readout = params[-1]
    by_hand = 1.7 / 20**0.5 * np.tanh(last) @ readout["weight"][:, 0] + 0.3 * readout["bias"][0]
    assert first.shape == (3, 20)
    np.testing.assert_allclose(network.apply(params, x), by_hand)


@pytest.mark.slow
def test_linear_models_of_the_limit():
    """With the limit's kernel and no initial output they are its mean."""
    net = lg.mlp(1, "tanh")
    limit = lg.solve(training(net))
    x = np.concatenate([DATA.x_train, DATA.x_test])
    kernel = np.asarray(lg.kernel(net, x, DATA.x_train).ntk)
    found = linear_model(np.zeros((1, len(x))), kernel[None], DATA.y_train)[0]
    assert found.shape == (STEPS + 1, len(x))
    wanted = np.concatenate([limit.f_train, limit.f_test], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
