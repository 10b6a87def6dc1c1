"""Norms of outputs' Hessians and of input Jacobians, recorded in training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(4)
X = RNG.standard_normal((4, 3))
Y = np.sin(X[:, 0])
RECORDS = ("output_hessian", "input_jacobian")


def trained(net, param=None, y=Y, width=6, **options):
    data = lg.Dataset(X, y, X[:2] + 0.1, y[:2])
    run = lg.Run(net, param or lg.ntk(), data, optimizer=lg.gd(0.5), steps=3)
    nets = lg.train(run, width, record=RECORDS, **options)
    ends = lg.networks.train_and_measure(run, width, lambda network, start, end, x: (start, end))
    return run, nets, [jax.tree.map(lambda leaf: leaf[0], params) for params in ends]


@pytest.mark.parametrize("outputs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_both_are_those_of_stored_derivatives(outputs):
    y = Y if outputs is None else np.stack([Y, Y**2], 1)
    net, param = lg.mlp(1, "tanh", bias_std=0.4), lg.mean_field(2.0)
    run, nets, both = trained(net, param, y)
    network = lg.networks.finite_network(net, param, width=6, inputs=3, outputs=outputs)
    out = () if outputs is None else (2,)
    assert nets.output_hessian.shape == (1, 2, 4, *out)
    assert nets.input_jacobian.shape == (1, 2, 4, *out)
    assert nets.input_jacobian_test.shape == (1, 2, 2, *out)
    with jax.enable_x64(True):
        for index, params in enumerate(both):
            flat, back = ravel_pytree(params)
            rates = network.per_leaf(network.table, "lr")
            rates = jax.tree.map(lambda p, r: np.full(p.shape, r), params, rates)
            root = np.sqrt(np.asarray(ravel_pytree(rates)[0]))

            def f(flat, x, back=back):
                return network.outputs_of(back(flat), x[None]).reshape(-1)

            hessian = jax.jit(jax.vmap(jax.hessian(f), (None, 0)))(flat, jnp.asarray(X))
            norm = np.abs(np.linalg.eigvalsh(root[:, None] * hessian * root)).max(-1)
            slopes = jax.vmap(jax.jacobian(f, 1), (None, 0))(flat, jnp.asarray(run.data.x))
            values = np.linalg.svd(slopes, compute_uv=False)
            if outputs is None:
                norm, values = norm[:, 0], values[:, 0]
            np.testing.assert_allclose(nets.output_hessian[0, index], norm, rtol=1e-9)
            np.testing.assert_allclose(nets.input_jacobian[0, index], values[:4], rtol=1e-9)
            np.testing.assert_allclose(nets.input_jacobian_test[0, index], values[4:], rtol=1e-9)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_hessians_of_one_hidden_layer_in_closed_form(name):
    """Blocks of single neurons: of relu |x|/√(Dn) where a neuron is active, whatever n."""
    for width in (16, 256):
        _, nets, (start, _) = trained(lg.mlp(1, name), width=width, record_at=[0])
        h = X @ start[0]["weight"] / 3**0.5
        slope, bend = (h > 0, 0 * h) if name == "relu" else (
            1 / np.cosh(h) ** 2, -2 * np.tanh(h) / np.cosh(h) ** 2
        )  # fmt: skip
        size = np.linalg.norm(X, axis=1)[:, None] / 3**0.5
        middle = np.abs(start[2]["weight"][:, 0] * bend) * size**2 / 2
        norm = (middle + np.sqrt(middle**2 + (slope * size) ** 2)).max(1) / width**0.5
        np.testing.assert_allclose(nets.output_hessian[0, 0], norm, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("param", "power"), [(lg.ntk(), -0.5), (lg.mean_field(1.0), 0.0)], ids=["ntk", "mean field"]
)
def test_hessians_in_the_kernel_limit_and_where_features_learn(param, power):
    run = lg.Run(lg.mlp(2, "tanh"), param, lg.Dataset(X, Y), optimizer=lg.gd(1.0), steps=10)
    norms = [
        lg.train(run, n, seeds=4, record="output_hessian").output_hessian.mean((0, 2))
        for n in (32, 256)
    ]
    measured = np.log(norms[1] / norms[0]) / np.log(8)
    np.testing.assert_allclose(measured, power, atol=0.12)


def test_jacobians_at_initialisation_are_those_of_the_limit():
    run = lg.Run(lg.mlp(2, "relu"), lg.ntk(), lg.Dataset(X, Y), optimizer=lg.gd(1.0), steps=1)
    nets = lg.train(run, 16, seeds=1000, record="input_jacobian", record_at=[0])
    squares = nets.input_jacobian[:, 0] ** 2
    error = squares.std(0) / 1000**0.5
    limit = lg.criticality.input_gradients(run.net, X).norm ** 2
    assert np.abs((squares.mean(0) - limit) / error).max() < 4


@pytest.mark.slow
@pytest.mark.long_loops
def test_jacobians_of_trained_networks_are_those_of_the_kernel_limit():
    """E|∂f/∂x|² at infinite width, from means and covariances of outputs on pairs of inputs."""
    at, step, flow = X[:2], 1e-3, {"optimizer": lg.gradient_flow(), "times": [4.0]}
    shifts = step * np.concatenate([np.eye(3), -np.eye(3)])
    pairs = (at[:, None] + shifts).reshape(-1, 3)
    run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), lg.Dataset(X, Y, pairs, np.zeros(12)), **flow)
    limit = lg.solve(run, covariance=True)
    take = np.kron(np.eye(2), np.hstack([np.eye(3), -np.eye(3)])) / (2 * step)
    mean = take @ limit.f_test[-1]
    covariance = take @ limit.f_test_covariance[-1] @ take.T
    known = (mean**2 + np.diagonal(covariance)).reshape(2, 3).sum(1)
    own = lg.Run(run.net, run.param, lg.Dataset(X, Y, at, np.zeros(2)), **flow)
    nets = lg.train(own, 512, seeds=1000, record="input_jacobian", record_at=[0, 1])
    squares = nets.input_jacobian_test[:, 1] ** 2
    error = squares.std(0) / 1000**0.5
    assert np.abs((squares.mean(0) - known) / error).max() < 4
    before = (nets.input_jacobian_test[:, 0] ** 2).mean(0)
    assert np.abs(before / known - 1).max() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
def test_jacobians_of_trained_networks_are_those_of_the_mean_field(depth):
    """Slopes of a limit's outputs on test samples, where features have learned."""
    step = 1e-3
    shifts = step * np.concatenate([np.eye(3), -np.eye(3)])
    pairs = (X[:1, None] + shifts).reshape(-1, 3)

    def run(x_test):
        data = lg.Dataset(X, Y, x_test, np.zeros(len(x_test)))
        net = lg.mlp(depth, "tanh")
        return lg.Run(net, lg.mean_field(1.5), data, optimizer=lg.gd(0.5), steps=15)

    up, down = lg.solve(run(pairs)).f_test[-1].reshape(2, 3)
    known = np.linalg.norm(up - down) / (2 * step)
    nets = lg.train(run(X[:1]), 512, seeds=32, record="input_jacobian")
    before, after = nets.input_jacobian_test[:, :, 0].T
    assert abs(after.mean() - known) < 4 * after.std() / 32**0.5
    assert after.mean() > 5 * before.mean()


def test_refusals():
    net = lg.serial(lg.Dense(), lg.layers.BatchNorm(), lg.layers.Activation("tanh"), lg.Dense())
    run = lg.Run(net, lg.ntk(), lg.Dataset(X, Y), optimizer=lg.gd(0.1), steps=1)
    for name in RECORDS:
        with pytest.raises(NoTheory, match="couples the samples"):
            lg.train(run, 4, record=name)
    smooth = lg.Run(lg.mlp(1), lg.mean_field(), lg.Dataset(X, Y), optimizer=lg.gd(0.1), steps=1)
    with pytest.raises(InvalidInput, match="slope of its outputs on test samples"):
        lg.solve(smooth, record="input_jacobian")
    with pytest.raises(InvalidInput, match="is 0 in the kernel limit"):
        lg.solve(smooth, record="output_hessian")
