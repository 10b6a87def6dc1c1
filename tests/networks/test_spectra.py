"""Singular values and sharpness of trained networks against decompositions of stored matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import largen as lg
from largen.errors import InvalidInput
from largen.networks import spectra

RNG = np.random.default_rng(2)
X = RNG.standard_normal((5, 3))
CLASSES = np.array([0, 1, 2, 1, 0])


def run_of(optimizer, steps=4):
    data = lg.Dataset(X, CLASSES)
    return lg.Run(lg.mlp(2, "tanh"), lg.mean_field(2.0), data, "softmax", optimizer, steps)


def trained(run, width):
    return lg.networks.train_and_measure(run, width, lambda network, start, end, x: end)


@pytest.mark.slow
def test_singular_values_of_wide_layers():
    run, width = run_of(lg.gd(0.5)), 150
    assert width > spectra.VECTORS
    nets = lg.train(run, width, record="singular_values", record_at=[4])
    weight = trained(run, width)[2]["weight"][0] / width**0.5
    known = np.linalg.svd(weight, compute_uv=False)[: spectra.VALUES]
    np.testing.assert_allclose(nets.singular_values[0, 0, 0], known, rtol=1e-9)


@pytest.mark.slow
def test_singular_values_of_windows_and_few_neurons():
    net = lg.serial(
        lg.Conv((3,)), lg.layers.Activation("tanh"), lg.Conv((3,)), lg.Flatten(), lg.Dense()
    )
    data = lg.Dataset(RNG.standard_normal((2, 4, 2)), np.ones(2))
    run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(0.1), steps=1)
    nets = lg.train(run, 5, record="singular_values", record_at=[0])
    assert nets.singular_values.shape == (1, 1, 1, 8)
    weight = lg.networks.train_and_measure(run, 5, lambda network, start, end, x: start)[2]
    weight = weight["weight"][0].reshape(15, 5) / 15**0.5
    known = np.linalg.svd(weight, compute_uv=False)
    np.testing.assert_allclose(nets.singular_values[0, 0, 0, :5], known, rtol=1e-9)
    assert not nets.singular_values[..., 5:].any()


def test_singular_values_of_one_hidden_layer_are_refused():
    run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), lg.Dataset(X, X[:, 0]), optimizer=lg.gd(0.5), steps=1)
    with pytest.raises(InvalidInput, match=r"between hidden layers, and .* has none"):
        lg.train(run, 4, record=["singular_values", "ntk"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", [lg.gd(0.5, schedule=lambda n: 1.0 / (1 + n)), lg.gradient_flow()]
)
def test_sharpness_is_that_of_the_stored_hessian(optimizer):
    """The whole Hessian in the metric of the rates, and its Gauss-Newton part from K."""
    steps, times = (4, None) if "Descent" in str(optimizer) else (None, [1.0])
    run = lg.Run(
        lg.mlp(2, "tanh"),
        lg.mean_field(2.0),
        lg.Dataset(X, CLASSES),
        "softmax",
        optimizer,
        steps,
        times=times,
    )
    nets = lg.train(run, 7, record=("ntk", "sharpness"))
    network = lg.networks.finite_network(run.net, run.param, width=7, inputs=3, outputs=3)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: leaf[0], trained(run, 7))
        flat, back = ravel_pytree(params)
        rates = network.per_leaf(network.table, "lr")
        rates = ravel_pytree(jax.tree.map(lambda p, r: np.full(p.shape, r), params, rates))[0]

        def loss(flat):
            f = network.outputs_of(back(flat), jnp.asarray(X))
            return run.loss.mean(f, CLASSES), f

        root = np.sqrt(rates) * run.rates_at([len(run.times) - 1]) ** 0.5
        whole = root[:, None] * jax.jit(jax.hessian(lambda p: loss(p)[0]))(flat) * root
        slopes = jax.jit(jax.jacobian(lambda p: loss(p)[1]))(flat) * root
        f = loss(flat)[1]
        second = jax.vmap(jax.hessian(run.loss.sample))(f, jnp.asarray(CLASSES))
        gauss = jnp.einsum("mai,mab,mbj->ij", slopes, second, slopes) / len(X)
        known = [float(np.linalg.eigvalsh(part)[-1]) for part in (whole, gauss)]
    np.testing.assert_allclose(nets.hessian_sharpness[0, -1], known[0], rtol=1e-9)
    np.testing.assert_allclose(nets.sharpness()[0, -1], known[1], rtol=1e-9)
    assert abs(known[0] / known[1] - 1) > 0.01


@pytest.mark.slow
def test_curvature_along_the_gradient_is_that_of_the_stored_hessian():
    """K̇ has an error of the order η₀²; without it the curvature is another."""
    rate = 0.002
    run = run_of(lg.gd(rate), 2)
    nets = lg.train(run, 7, record="ntk", record_at=[0, 1, 2])
    network = lg.networks.finite_network(run.net, run.param, width=7, inputs=3, outputs=3)
    with jax.enable_x64(True):
        rates = network.per_leaf(network.table, "lr")
        half = trained(run_of(lg.gd(rate), 1), 7)
        flat, back = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], half))
        rates = ravel_pytree(jax.tree.map(lambda p, r: np.full(p.shape, r), back(flat), rates))[0]

        def loss(flat):
            return run.loss.mean(network.outputs_of(back(flat), jnp.asarray(X)), CLASSES)

        g = jax.grad(loss)(flat)
        step = rate * rates * g
        bent = jax.jvp(jax.grad(loss), (flat,), (step,))[1]
        known = float(step @ bent / (step @ g))
    np.testing.assert_allclose(nets.sharpness("gradient")[0, 1], known, rtol=3e-3)
    exact = lg.train(run, 7, record="sharpness", record_at=[0, 1, 2])
    np.testing.assert_allclose(exact.sharpness("gradient")[0, 1], known, rtol=1e-6)
    assert nets.sharpness("gradient").shape == (1, 3)
    same = nets.to_xarray()["ntk"].values[0, 1]
    first = nets.f_train[0, 1]
    p = np.exp(first - first.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    slope = p - np.eye(3)[CLASSES]
    moved = np.einsum("mnab,nb->ma", same, slope)
    inner = np.sum(p * moved**2) - np.sum(np.sum(p * moved, 1) ** 2)
    assert abs(rate / 5 * inner / np.sum(slope * moved) / known - 1) > 0.01


@pytest.mark.slow
def test_refusals(tmp_path):
    for optimizer in (lg.gd(0.1, momentum=0.5), lg.sgd(0.1, batch_size=2)):
        with pytest.raises(InvalidInput, match="not along the gradient"):
            lg.train(run_of(optimizer), 4, record="ntk").sharpness("gradient")
    with pytest.raises(InvalidInput, match="two or more steps in a row"):
        lg.train(run_of(lg.gd(0.1)), 4, record="ntk", record_at=[0, 4]).sharpness("gradient")
    with pytest.raises(InvalidInput, match="rate of gradient descent"):
        lg.train(run_of(lg.adam(0.1)), 4, record="sharpness")
    adapted = lg.train(run_of(lg.adam(0.1)), 4, record="ntk")
    with pytest.raises(InvalidInput, match="rate of gradient descent"):
        adapted.sharpness()
    nets = lg.train(run_of(lg.gd(0.1)), 4)
    with pytest.raises(InvalidInput, match="no tangent kernels"):
        nets.sharpness()
    nets.save(tmp_path / "nets.nc")
    with pytest.raises(InvalidInput, match="loaded trajectory"):
        lg.load(tmp_path / "nets.nc").sharpness()
