"""The abc-symmetry: a joint shift of multiplier, initial size and rate leaves training as it is."""

import jax
import numpy as np
import pytest

import largen as lg

WIDTH = 24
THETA = {"input": "1/2", "hidden": "-1/2", "output": 1, "bias": "1/4"}


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(14, 6)), draw.normal(size=14)
    return lg.Dataset(x[:10], y[:10], x[10:], y[10:])


MLP = lg.mlp(2, "tanh", bias_std=0.3), lg.mean_field(1.5)
RESIDUAL = lg.residual_mlp(3, "erf", bias_std=0.3), lg.depth_mup()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "optimizer"),
    [
        (MLP, lg.gd(0.5)),
        (MLP, lg.gd(0.2, momentum=0.9)),
        (MLP, lg.sgd(0.3, 4, momentum=0.5, weight_decay=0.1)),
        (MLP, lg.adam(0.03)),
        (MLP, lg.gradient_flow(2.0, weight_decay=0.1)),
        (RESIDUAL, lg.gd(0.4, momentum=0.5, weight_decay=0.1)),
        (RESIDUAL, lg.adam(0.03, eps=0.1, weight_decay=0.1)),
    ],
    ids=lambda value: str(value) if not isinstance(value, tuple) else value[1].name,
)
def test_trajectories_are_equal(data, network, optimizer):
    net, param = network
    flows = isinstance(optimizer, type(lg.gradient_flow()))
    length = {"times": [1.0, 2.0]} if flows else {"steps": 30}
    nets = [
        lg.train(lg.Run(net, p, data, optimizer=optimizer, **length), WIDTH, 2, 11)
        for p in (param, param.shift(THETA))
    ]
    moved = abs(nets[0].f_train[:, -1] - nets[0].f_train[:, 0]).max()
    assert moved > 0.1
    np.testing.assert_allclose(nets[1].f_train, nets[0].f_train, rtol=0, atol=1e-9)
    np.testing.assert_allclose(nets[1].f_test, nets[0].f_test, rtol=0, atol=1e-9)


def test_parameters_are_scaled():
    """θ' = θ/λ with λ = N^(−θ), and the function and its tangent kernel are the same."""
    net, param = lg.mlp(2, "tanh", bias_std=0.3), lg.mean_field(1.5)
    shifted = param.shift(THETA)
    sizes = {"width": WIDTH, "inputs": 6, "key": 0, "dtype": np.float64}
    one, two = lg.networks.init(net, param, **sizes), lg.networks.init(net, shifted, **sizes)
    for layer, role in ((0, "input"), (2, "hidden"), (4, "output")):
        power = {"input": 0.5, "hidden": -0.5, "output": 1}[role]
        np.testing.assert_allclose(
            two[layer]["weight"], one[layer]["weight"] * WIDTH**power, rtol=1e-14
        )
    x = np.random.default_rng(0).normal(size=(5, 6))
    for reading in (lg.networks.apply, lg.networks.empirical_ntk):
        np.testing.assert_allclose(
            reading(net, one, x, param=param), reading(net, two, x, param=shifted), rtol=1e-12
        )


@pytest.mark.slow
def test_mean_field_and_mup_train_alike(data):
    """μP is mean field moved along the symmetry; the constant D of the read-in is 1 here."""
    net = lg.mlp(2, "tanh")
    unit = lg.Dataset(data.x_train[:, :1], data.y_train)
    nets = [
        lg.train(lg.Run(net, p, unit, optimizer=lg.gd(0.3), steps=20), WIDTH, 2, jax.random.key(1))
        for p in (lg.mean_field(), lg.mup())
    ]
    np.testing.assert_allclose(nets[0].f_train, nets[1].f_train, rtol=0, atol=1e-9)
