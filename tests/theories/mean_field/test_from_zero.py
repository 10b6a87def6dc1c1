"""Scalings in which the initial values of a weight vanish, and its updates do not."""

import numpy as np
import pytest

import largen as lg
from largen.errors import NoTheory

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((4, 3)), np.array([1.0, -1.0, 0.5, -0.3])
READOUT = lg.abc(a=(0, "1/2", 1), b=(0, 0, 1), c=-1)
READIN = lg.abc(a=(0, "1/2", 1), b=(1, 0, 0), c=-1)


def run_of(param, net, steps=8):
    data = lg.Dataset(X, Y, X[:1] + 1, Y[:1])
    return lg.Run(net, param, data, optimizer=lg.gd(0.5), steps=steps)


@pytest.mark.parametrize(("param", "name"), [(READOUT, "2.weight"), (READIN, "0.weight")])
def test_linear_networks_follow_the_moments_of_their_weights(param, name):
    limit = lg.solve(run_of(param, lg.mlp(1, "linear")))
    assert f"{name} starts from 0" in limit.reason
    fields, second = X / 3**0.5, np.diag([1.0] * 3 + [0.0])  # of (a, w)
    if param is READIN:
        second = np.eye(4) - second
    for f in limit.f_train:
        found = fields @ second[:3, 3]
        np.testing.assert_allclose(f, found, rtol=0, atol=1e-10)
        push, move = 0.5 / 4 * (Y - found) @ fields, np.eye(4)
        move[:3, 3] = move[3, :3] = push
        second = move @ second @ move.T
    assert np.abs(limit.f_train[-1]).max() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("param", [READOUT, READIN], ids=["read-out", "read-in"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_networks_approach_the_limit(param, activation):
    """With relu the signs of vanishing preactivations decide which neurons learn."""
    run = run_of(param, lg.mlp(1, activation))
    limit = lg.solve(run, rtol=0.01)
    assert limit.f_train_error.max() < 0.01
    one, two = (lg.train(run, n, seeds=s).f_train for n, s in ((64, 512), (128, 256)))
    mean = 2 * two.mean(0) - one.mean(0)  # without the order 1/width
    error = np.sqrt(4 * two.var(0) / len(two) + one.var(0) / len(one))
    z = (limit.f_train - mean) / np.hypot(error, limit.f_train_error)
    assert np.sqrt(np.mean(z**2)) < 2
    assert np.abs(z).max() < 4.5


def test_the_read_out_alone_learns_where_others_are_fixed():
    run = run_of(READOUT.with_rates({"input": 0.0}), lg.mlp(1, "relu"))
    limit = lg.solve(run, rtol=0.003)
    k, f = lg.nngp_kernel(lg.mlp(1, "relu"), X), np.zeros(4)
    for _ in range(8):
        f = f + 0.5 / 4 * k @ (Y - f)
    np.testing.assert_allclose(limit.f_train[-1], f, atol=0.01)


def test_what_has_no_such_limit_is_refused():
    both = lg.abc(a=(0, "1/2", 1), b=(1, 0, 1), c=-1)
    with pytest.raises(NoTheory, match="vanishes as"):
        lg.solve(run_of(both, lg.mlp(1, "tanh")))
    slow = lg.abc(a=(0, "1/2", 1), b=(0, 0, 1), c=(0, 0, -1))
    with pytest.raises(NoTheory, match="vanishes as"):
        lg.solve(run_of(slow, lg.mlp(1, "tanh")))
