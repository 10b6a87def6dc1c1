"""Kernels of finite networks against dense Jacobians, and against infinite width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import largen as lg

D, N = 5, 12
NETS = {
    "mlp": lg.mlp(3, "tanh"),
    "biases": lg.mlp(2, "erf", weight_std=1.3, bias_std=0.4),
    "residual": lg.residual_mlp(4, "tanh", bias_std=0.2),
    "two-layer branches": lg.residual_mlp(2, "relu", layers_per_block=2),
    "nested": lg.serial(
        lg.Dense(),
        lg.repeat(lg.repeat(lg.Residual(lg.Dense()), 2), 3),
        lg.Activation("erf"),
        lg.Dense(),
    ),
}


def inputs(rows, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, D))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outputs"),
    [("mlp", None), ("biases", 3), ("residual", 1), ("two-layer branches", None), ("nested", 2)],
)
def test_structured_is_dense(name, outputs):
    """Σ_θ ρ_θ ∂f_c(x)/∂θ ∂f_c'(x')/∂θ from the Jacobian of every parameter."""
    net, param, x1, x2 = NETS[name], lg.depth_mup(1.5), inputs(6), inputs(4, seed=1)
    network = lg.networks.finite_network(net, param, width=N, inputs=D, outputs=outputs)
    params, axes = network.init(0, np.float64), 1 if outputs is None else 2

    def contribution(name, one, two):
        rows = (leaf.reshape(*leaf.shape[:axes], -1) for leaf in (one, two))
        return network.table[name].lr * jnp.tensordot(*rows, (-1, -1))

    with jax.enable_x64(True):
        jacobian = jax.jit(jax.jacrev(network.outputs_of))
        both = jacobian(params, x1), jacobian(params, x2)
        parts = jax.tree.map(contribution, network.module.names, *both)
        want = np.asarray(sum(jax.tree.leaves(parts)))
    want = want if outputs is None else want.transpose(0, 2, 1, 3)
    got = lg.networks.empirical_ntk(net, params, x1, x2, param=param, outputs=outputs)
    assert got.shape == ((6, 4) if outputs is None else (6, 4, outputs, outputs))
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
    symmetric = lg.networks.empirical_ntk(net, params, x1, param=param, outputs=outputs)
    again = lg.networks.empirical_ntk(net, params, x1, x1.copy(), param=param, outputs=outputs)
    np.testing.assert_allclose(symmetric, again, rtol=1e-13)


def record_once(net, param, seeds=1, width=N, key=0, rows=6, data=None):
    """The records at initialisation of an ensemble."""
    data = lg.Dataset(inputs(rows), inputs(rows, 3)[:, 0]) if data is None else data
    run = lg.Run(net, param, data, optimizer=lg.gd(0.1), steps=1)
    return lg.train(
        run, width, seeds, key, record=["feature_kernel", "gradient_kernel", "ntk"], record_at=[0]
    )


def test_feature_and_gradient_kernels_by_hand():
    """Φˡ = φ(hˡ)·φ(hˡ)/N and Gˡ = gˡ·gˡ/N with gˡ = N γ₀ ∂f/∂hˡ, two hidden layers."""
    gamma, param = 1.5, lg.mean_field(1.5)
    nets = record_once(lg.mlp(2, "tanh"), param)
    key = jax.random.fold_in(jax.random.key(0), 0)
    params = lg.networks.finite_network(lg.mlp(2, "tanh"), param, width=N, inputs=D).init(
        key, np.float64
    )
    w0, w1, w2 = (params[i]["weight"] for i in (0, 2, 4))
    h1 = inputs(6) @ w0 / np.sqrt(D)
    h2 = np.tanh(h1) @ w1 / np.sqrt(N)
    g2 = (1 - np.tanh(h2) ** 2) * w2[:, 0]
    g1 = (1 - np.tanh(h1) ** 2) * (g2 @ w1.T) / np.sqrt(N)
    phi = [np.tanh(h) @ np.tanh(h).T / N for h in (h1, h2)]
    grad = [g @ g.T / N for g in (g1, g2)]
    np.testing.assert_allclose(nets.feature_kernel[0, 0], phi, atol=1e-13)
    np.testing.assert_allclose(nets.gradient_kernel[0, 0], grad, atol=1e-13)
    # K = Φᴸ + Σ_l Gˡ Φˡ⁻¹ (Pehlevan and Bordelon, eq. (26), with the first layer's term)
    ntk = phi[1] + grad[1] * phi[0] + grad[0] * (inputs(6) @ inputs(6).T / D)
    np.testing.assert_allclose(nets.ntk[0, 0], ntk, atol=1e-13)
    outputs = np.tanh(h2) @ w2[:, 0] / (gamma * N)
    np.testing.assert_allclose(nets.f_train[0, 0], outputs, atol=1e-13)


def test_kernels_of_residual_networks():
    """K = Φ_out + (1/L) Σ_l Gˡ⁺¹ Φˡ + G¹ Φ⁰ with stream gradients, depth-μP."""
    blocks = 4
    nets = record_once(lg.residual_mlp(blocks, "tanh"), lg.depth_mup())
    phi, grad = nets.feature_kernel[0, 0], nets.gradient_kernel[0, 0]
    assert phi.shape == grad.shape == (blocks + 1, 6, 6)
    assert nets.to_xarray().layer.values.tolist() == [1, 2, 3, 4, 5]
    first = inputs(6) @ inputs(6).T / D
    ntk = phi[-1] + (grad[1:] * phi[:-1]).sum(0) / blocks + grad[0] * first
    np.testing.assert_allclose(nets.ntk[0, 0], ntk, rtol=1e-12)


def arccosine(kernel):
    """E[relu(u)relu(v)] of Gaussians with this covariance (Cho and Saul 2009)."""
    size = np.sqrt(np.diag(kernel))
    cosine = np.clip(kernel / np.outer(size, size), -1, 1)
    angle = np.arccos(cosine)
    return np.outer(size, size) * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)


def arcsine(kernel):
    """E[erf(u)erf(v)] of Gaussians with this covariance (Williams 1997)."""
    size = np.sqrt(1 + 2 * np.diag(kernel))
    return 2 / np.pi * np.arcsin(2 * kernel / np.outer(size, size))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expectation"), [("relu", arccosine), ("erf", arcsine)])
def test_features_at_initialisation_are_those_of_infinite_width(name, expectation):
    """Φˡ is unbiased for l = 1, and off by order 1/N behind; its spread falls as 1/√N."""
    net, x = lg.mlp(2, name, weight_std=1.2), inputs(4)
    data = lg.Dataset(x, x[:, 0])
    first = expectation(1.44 * x @ x.T / D)
    second = expectation(1.44 * first)
    spread = []
    for width, seeds in ((32, 400), (128, 400)):
        phi = record_once(net, lg.ntk(), seeds, width, key=width, data=data).feature_kernel[:, 0]
        error = phi.std(0, ddof=1) / np.sqrt(seeds)
        z = (phi.mean(0) - np.stack([first, second])) / error
        assert abs(z[0]).max() < 4
        bias = phi.mean(0)[1] - second
        assert (abs(bias) < 4 * error[1] + 1.5 * abs(second).max() / width).all()
        spread.append(phi.std(0).mean((1, 2)))
    exponent = np.log(spread[1] / spread[0]) / np.log(4)
    np.testing.assert_allclose(exponent, -0.5, atol=0.06)


def test_erf_is_the_error_function():
    """The activation of the closed form above is the one that is meant."""
    values = np.linspace(-2, 2, 9)
    np.testing.assert_allclose(lg.expectations.as_activation("erf")(values), erf(values), atol=1e-6)


def features_at_start(net, data):
    """Φ¹ before training as recorded alone, and φ(h¹) of the same network by hand."""
    run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(0.1), steps=1)
    found = lg.train(run, N, key=3, record="feature_kernel").feature_kernel[0, 0, 0]
    key, inputs = jax.random.fold_in(jax.random.key(3), 0), data.x_train.shape[1:]
    params = lg.networks.init(net, lg.ntk(), width=N, inputs=inputs, key=key, dtype=np.float64)
    return found, data.x_train @ np.asarray(params[0]["weight"]) / D**0.5


def test_features_of_networks_that_normalise_over_the_batch_are_recorded():
    net = lg.serial(lg.Dense(), lg.layers.BatchNorm(), lg.Activation("tanh"), lg.Dense())
    data = lg.Dataset(inputs(6), inputs(6)[:, 0])
    found, h = features_at_start(net, data)
    x = np.tanh((h - h.mean(0)) / np.sqrt(h.var(0) + net.layers[1].eps))
    np.testing.assert_allclose(found, x @ x.T / N, rtol=1e-12)
    with pytest.raises(lg.errors.NoTheory, match="none has gradients of its own"):
        lg.train(lg.Run(net, lg.ntk(), data, optimizer=lg.gd(0.1), steps=1), N, record=["ntk"])


def test_features_of_networks_with_an_output_at_each_position_are_recorded():
    x = inputs(12).reshape(4, 3, D)
    found, h = features_at_start(NETS["mlp"], lg.Dataset(x, x[..., 0]))
    np.testing.assert_allclose(found, np.einsum("msi,nsi->mn", *[np.tanh(h)] * 2) / (3 * N))
