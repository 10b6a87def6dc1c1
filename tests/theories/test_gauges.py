"""Scalings that are others in other words: the same networks, and so the same limits."""

from typing import Any

import numpy as np
import pytest

import largen as lg

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((5, 4)), np.array([1.0, -1.0, 0.5, 1.0, 0.2])
DATA = lg.Dataset(X[:3], Y[:3], X[3:], Y[3:])
# Each in its own words, with the factor N^(−1/2) of the outputs in the read-out's multiplier, and
# in those of the library.
MOVING = (lg.abc(a=(0, "1/2", 1), b=0, c=-1), lg.mean_field())
STILL = (lg.abc(a=(0, "1/2", "1/4"), b=0, c="1/2", d="1/4"), lg.ntk())


def same(call, params):
    mine, theirs = (call(param) for param in params)
    np.testing.assert_array_equal(mine, theirs)
    return mine


def run_of(layers, optimizer, param):
    return lg.Run(lg.mlp(layers, "tanh"), param, DATA, optimizer=optimizer, steps=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "layers", "optimizer", "theory"),
    [
        (STILL, 2, lg.gd(0.3), "kernel"),
        (MOVING, 1, lg.gd(0.3), "mean field, one hidden layer"),
        (MOVING, 1, lg.optimizers.rmsprop(0.05), "mean field, one hidden layer"),
        (MOVING, 2, lg.gd(0.3), "mean field, deep"),
        (MOVING, 2, lg.adam(0.05), "mean field, adaptive"),
    ],
)
def test_limits(params, layers, optimizer, theory):
    def solved(param):
        few: dict[str, Any] = {"particles": 64, "replicates": 2}
        options = few if layers == 2 and params is MOVING else {}
        limit = lg.solve(run_of(layers, optimizer, param), **options)
        assert limit.theory == theory
        return np.concatenate([limit.f_train, limit.f_test], 1)

    assert np.abs(same(solved, params)).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", [lg.gd(0.3), lg.adam(0.05), lg.optimizers.langevin(0.3, temperature=0.1)], ids=str
)
def test_networks_their_kernels_and_their_noise(optimizer):
    def trained(param, record):
        run = run_of(2, optimizer, param)
        found = lg.train(run, width=16, seeds=2, key=0, record=[record])
        return getattr(found, "f_train" if record == "ntk" else record)

    for record in ("ntk", "gradient_kernel"):
        assert np.abs(same(lambda param, record=record: trained(param, record), MOVING)).max() > 0.1


@pytest.mark.slow
def test_kernels_and_posteriors():
    x, y, net = DATA.x_train, DATA.y_train, lg.mlp(1, "tanh")
    same(lambda param: lg.kernel(net, x, param=param).ntk, MOVING)
    same(lambda param: lg.kernel(net, x, param=param).ntk, STILL)
    draws = {"width": 16, "draws": 4, "key": 0}
    same(lambda param: lg.networks.monte_carlo_kernel(net, x, param=param, **draws).nngp, MOVING)

    def predicted(param):
        return lg.posterior(lg.mlp(1, "linear"), x, y, noise=0.1, param=param).predict(x).mean

    same(predicted, MOVING)
