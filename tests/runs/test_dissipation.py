"""The rate at which the loss falls: by automatic differentiation, along flows, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 3))
Y = np.sin(2 * X[:, 0])
DATA = lg.Dataset(X, Y)


@pytest.mark.slow
def test_it_is_the_squared_gradient_in_the_metric_of_the_rates():
    """Of networks, over all weights by automatic differentiation."""
    data = lg.Dataset(X, np.array([0, 1, 2, 1, 0]))
    net, param = lg.mlp(1, "tanh", bias_std=0.3), lg.mean_field(2.0)
    run = lg.Run(net, param, data, "softmax", lg.gd(0.7), steps=2)
    nets = lg.train(run, 7, record="ntk")
    ends = lg.networks.train_and_measure(run, 7, lambda network, start, end, x: end)
    network = lg.networks.finite_network(run.net, run.param, width=7, inputs=3, outputs=3)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: leaf[0], ends)
        rates = network.per_leaf(network.table, "lr")
        slopes = jax.grad(
            lambda p: run.loss.mean(network.outputs_of(p, jnp.asarray(X)), data.y_train)
        )(params)
        squares = jax.tree.map(lambda g, rate: float(jnp.sum(g**2)) * rate, slopes, rates)
    known = sum(jax.tree.leaves(squares))
    np.testing.assert_allclose(nets.dissipation()[0, -1], known, rtol=1e-9)


@pytest.mark.parametrize(
    "net",
    [lg.mlp(1, "linear", bias_std=0.3), pytest.param(lg.mlp(2, "linear"), marks=pytest.mark.slow)],
)
def test_the_loss_of_a_mean_field_falls_at_this_rate(net):
    """Fourth-order differences of the losses along a flow whose features learn."""
    h, rate = 0.02, 0.7
    optimizer = lg.gradient_flow(rate)
    times = 0.5 + h * np.arange(-2, 3)
    run = lg.Run(net, lg.mean_field(2.0), DATA, optimizer=optimizer, times=times)
    limit = lg.solve(run, record=["ntk"], record_at=range(6))
    L = limit.loss_train
    slope = (L[1] - 8 * L[2] + 8 * L[4] - L[5]) / (12 * h)
    assert limit.dissipation()[3] == pytest.approx(-slope, rel=2e-5)
    grown = np.trace(limit.ntk[3]) / np.trace(limit.ntk[0])
    assert abs(grown - 1) > 0.02  # with the kernel of the start it would be another rate


def test_the_kernel_limit_has_it_at_all_times():
    """L = Σ_k c_k² exp(−2ηλ_k t/P)/2P in the modes of K."""
    times = np.array([0.5, 2.0, 4.0])
    run = lg.Run(lg.mlp(2, "relu"), lg.ntk(), DATA, optimizer=lg.gradient_flow(1.5), times=times)
    limit = lg.solve(run)
    values, modes = np.linalg.eigh(1.5 * limit.ntk / 5)
    each = (modes.T @ Y) ** 2 * np.exp(-2 * values * np.append(0.0, times)[:, None])
    np.testing.assert_allclose(limit.dissipation(), each @ values / 5, rtol=1e-9)
    np.testing.assert_allclose(limit.sharpness(), values[-1], rtol=1e-9)


def test_the_rate_along_the_residual_bounds_the_loss():
    """2η rᵀKr/(P rᵀr), far above that of the smallest eigenvalue."""
    times = np.linspace(0.25, 8, 32)
    run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), DATA, optimizer=lg.gradient_flow(1.5), times=times)
    limit = lg.solve(run)
    residual = limit.f_train - Y
    bent = np.einsum("sa,ab,sb->s", residual, limit.ntk, residual)
    rate = limit.dissipation(relative=True)
    np.testing.assert_allclose(rate, 2 * 1.5 * bent / np.sum(residual**2, 1) / 5, rtol=1e-9)
    L, weakest = limit.loss_train, 2 * 1.5 * np.linalg.eigvalsh(limit.ntk)[0] / 5
    assert rate.min() > 1.5 * weakest
    np.testing.assert_array_less(L, L[0] * np.exp(-rate.min() * limit.time) * (1 + 1e-9))


def test_the_rate_is_nothing_where_there_is_no_loss():
    run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), lg.Dataset(X, 0 * Y), optimizer=lg.gd(0.1), steps=1)
    assert np.isnan(lg.solve(run).dissipation(relative=True)).all()


def test_refusals():
    for optimizer in (lg.gd(0.1, momentum=0.5), lg.sgd(0.1, 2), lg.gd(0.1, weight_decay=0.1)):
        run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(), DATA, optimizer=optimizer, steps=2)
        with pytest.raises(InvalidInput, match="does not follow the gradient of the loss"):
            lg.solve(run).dissipation()
    labels = lg.Dataset(X, np.sign(Y))
    run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), labels, "logistic", lg.gd(0.1), 2)
    with pytest.raises(InvalidInput, match="wanted 'mse'"):
        lg.solve(run).dissipation()
