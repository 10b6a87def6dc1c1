"""Parameters before and after training, against the outputs of the same networks."""

import numpy as np
import pytest

import largen as lg
from largen.errors import NumericalFailure

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3))
DATA = lg.Dataset(X[:5], np.sign(X[:5, 0]), X[5:], np.sign(X[5:, 0]))


def both(network, start, end, x):
    return start, end, x


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"optimizer": lg.adam(0.01, batch_size=2), "steps": 4},
        {"optimizer": lg.gradient_flow(), "times": [0.5, 1.0]},
    ],
    ids=["adam", "flow"],
)
def test_parameters_give_the_outputs_of_train(how):
    run = lg.Run(lg.mlp(2, "tanh", bias_std=0.5), lg.mean_field(), DATA, **how)
    nets = lg.train(run, 16, 3, key=5)
    start, end, x = lg.networks.train_and_measure(run, 16, both, seeds=3, key=5)
    np.testing.assert_array_equal(x[0], X)
    network = lg.networks.finite_network(run.net, run.param, width=16, inputs=3)
    for seed in range(3):
        for params, index in ((start, 0), (end, -1)):
            one = [
                {kind: leaf[seed] for kind, leaf in part.items()} if part else () for part in params
            ]
            f = network.apply(tuple(one), X)
            np.testing.assert_allclose(f[:5], nets.f_train[seed, index], rtol=0, atol=1e-12)
            np.testing.assert_allclose(f[5:], nets.f_test[seed, index], rtol=0, atol=1e-12)


def test_divergence_is_an_error():
    run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), DATA, optimizer=lg.gd(1e80), steps=9)
    with pytest.raises(NumericalFailure, match="not finite") as caught:
        lg.networks.train_and_measure(run, 8, both, seeds=2, key=0)
    found = lg.networks.train_and_measure(run, 8, both, seeds=2, key=0, throw=False)
    np.testing.assert_equal(caught.value.result, found)
