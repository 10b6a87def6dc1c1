"""How networks of finite width vary around the mean-field limit."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput
from largen.theories.mean_field.engine.ensembles import measure_fluctuations

RNG = np.random.default_rng(0)
X, XT = RNG.normal(size=(6, 5)), RNG.normal(size=(3, 5))
Y, YT = np.sin(2 * X[:, 0]), np.sin(2 * XT[:, 0])
DATA = lg.Dataset(X, Y, XT, YT)
CLASSES = lg.Dataset(X, np.array([0, 1, 2, 0, 1, 2]), XT, np.arange(3))


def run_of(optimizer, *, layers=1, param=None, loss="mse", data=DATA, steps=20, **net):
    net = lg.mlp(layers, "tanh", **net)
    return lg.Run(net, param or lg.mean_field(1.5), data, loss, optimizer, steps)


def assert_variances_by_chance(run, limit, width, seeds):
    """The logarithm of a variance of Gaussian numbers has the variance 2/seeds."""
    nets = lg.train(run, width=width, seeds=seeds, key=0, progress=False)
    for what in ("f_train", "f_test"):
        found = width * getattr(nets, what).var(0, ddof=1)
        z = np.log(found / getattr(limit, f"{what}_fluctuation") ** 2) / np.sqrt(2 / seeds)
        assert np.abs(z).max() < 4
        assert np.sqrt(np.mean(z**2)) < 2
    return nets


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        run_of(lg.gd(0.2, momentum=0.5, weight_decay=0.1), bias_std=0.5),
        pytest.param(run_of(lg.sgd(0.5, 3)), marks=pytest.mark.slow),
        pytest.param(
            run_of(lg.gd(1.0), loss="softmax", data=CLASSES),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["momentum, decay and bias", "minibatches", "classes"],
)
def test_linear_response_is_what_networks_do(run):
    limit = lg.solve(run, fluctuations=True, rtol=5e-3)
    nets = assert_variances_by_chance(run, limit, 512, 300)
    report = lg.compare(limit, nets)
    table = report.to_xarray()
    z = (table["single"] - table["single_predicted"]) / table["single_error"]
    assert abs(float(z[0])) < 4
    assert "predicted" in str(report)


@pytest.mark.slow
def test_shift_of_the_mean():
    """Measured at one width, it predicts the mean of another one."""
    run = run_of(lg.gd(0.4), steps=10)
    limit = lg.solve(run, rtol=1e-3)
    nets = [lg.train(run, width=n, seeds=1500, key=n, progress=False) for n in (24, 48)]
    at = lg.compare(limit, nets).to_xarray()
    narrow = lg.compare(limit, nets[:1]).to_xarray()
    shift, error = narrow["mean_shift"], narrow["mean_shift_error"]
    seen = nets[1].f_test.mean(0) - limit.f_test
    noise = nets[1].f_test.std(0) / 1500**0.5
    z = ((seen - shift / 48) / np.hypot(noise, error / 48))[1:]
    assert np.sqrt(np.mean(z**2)) < 2.5
    assert np.abs(shift / error).max() > 4  # there is something to predict
    np.testing.assert_array_less(np.abs(at["mean_shift"] - shift)[1:], 4 * error[1:])


@pytest.mark.slow
def test_small_gamma_has_the_covariance_of_the_kernel_limit():
    """γ₀² N Cov(f) is that of networks in the NTK parameterization."""
    optimizer = lg.gd(0.4)
    lazy = lg.solve(run_of(optimizer, param=lg.ntk(), bias_std=0.5))
    run = run_of(optimizer, param=lg.mean_field(0.01), bias_std=0.5)
    limit = lg.solve(run, fluctuations=True, rtol=1e-2)
    for what in ("f_train", "f_test"):
        scaled = 0.01 * getattr(limit, f"{what}_fluctuation")
        np.testing.assert_allclose(scaled, getattr(lazy, f"{what}_std"), rtol=0.03)
    start = 1e-4 * limit.f_train_fluctuation_covariance[0]
    np.testing.assert_allclose(start, lazy.nngp, atol=0.03)


def test_independent_neurons_of_a_linear_layer_vary_by_gaussian_moments():
    """Var[zh] = ⟨z²⟩⟨h²⟩ + ⟨zh⟩² at every time, as z and h stay Gaussian."""
    run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(1.5), DATA, optimizer=lg.gd(0.4), steps=6)
    limit = lg.solve(run, record_at=range(7), fluctuations=True)
    squares = np.einsum("tlii->ti", limit.feature_kernel * limit.gradient_kernel) / 1.5**2
    known = np.sqrt(squares + limit.f_train**2)
    np.testing.assert_allclose(limit.f_train_drawn_fluctuation, known, rtol=0.03)
    start = limit.f_test_drawn_fluctuation[0]
    np.testing.assert_allclose(start, np.sqrt((XT**2).mean(1)) / 1.5, rtol=0.01)
    np.testing.assert_allclose(start, limit.f_test_fluctuation[0], rtol=1e-12)
    assert (known[-1] ** 2 - limit.f_train[-1] ** 2 < 0.98 * known[-1] ** 2).any()


@pytest.mark.slow
def test_propagation_of_chaos():
    """Two neurons of trained networks are correlated by the difference of both variances over N."""
    run, seeds = run_of(lg.gd(0.5)), 1000
    limit = lg.solve(run, fluctuations=True, rtol=5e-3)
    drawn = np.concatenate([limit.f_train_drawn_fluctuation, limit.f_test_drawn_fluctuation], 1)
    trained = np.concatenate([limit.f_train_fluctuation, limit.f_test_fluctuation], 1)
    for width in (32, 128):
        parts = lg.networks.train_and_measure(run, width, contributions, seeds=seeds)
        parts = parts - parts.mean(axis=(0, 2))[:, None]
        squares = np.sum(parts**2, axis=2)
        pairs = (np.sum(parts, axis=2) ** 2 - squares) / (width - 1)
        z = (pairs.mean(0) - (trained**2 - drawn**2)[-1]) / (pairs.std(0) / seeds**0.5 + 0.01)
        assert np.abs(z).max() < 4
        relative = squares.mean(0) / width / drawn[-1] ** 2 - 1
        assert np.abs(relative).max() < 2 / width + 0.02
    assert (trained[-1] < 0.7 * drawn[-1]).all()


def contributions(network, start, end, x):
    """Return zφ(h)/γ₀, (sample, neuron)."""
    h = x @ end[0]["weight"] / np.sqrt(x.shape[1])
    return jnp.tanh(h) * end[-1]["weight"][:, 0] / 1.5


DEEP = {
    "two layers, momentum": (lg.mlp(2, "tanh"), lg.mean_field(1.5), lg.gd(0.2, momentum=0.5)),
    "residual": (lg.residual_mlp(12, "tanh"), lg.depth_mup(), lg.gd(0.4)),
    "Langevin": (lg.mlp(2, "tanh"), lg.mup(), lg.optimizers.langevin(0.2, temperature=0.02)),
    "infinite depth": (lg.residual_mlp(math.inf, "tanh"), lg.depth_mup(), lg.gd(0.4)),
    "without noise": (lg.residual_mlp(math.inf, "tanh"), lg.complete_p(), lg.gd(0.4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", DEEP)
def test_deep_networks_vary_alike_at_all_widths_and_depths(case):
    net, param, optimizer = DEEP[case]
    run = lg.Run(net, param, DATA, optimizer=optimizer, steps=8)
    limit = lg.solve(run, fluctuations=True, rtol=3e-2)
    width = 256
    if "depth" in case or "noise" in case:
        run, width = run.with_changes(net=lg.residual_mlp(32, "tanh")), 128
    nets = lg.train(run, width, seeds=100, key=0, progress=False)
    for what in ("f_train", "f_test"):
        found = width * getattr(nets, what).var(0, ddof=1)
        std, error = (getattr(limit, f"{what}_fluctuation{name}") for name in ("", "_error"))
        z = np.log(found / std**2) / np.hypot(np.sqrt(2 / 99), 2 * error / std)
        assert np.abs(z).max() < 4
        assert np.sqrt(np.mean(z**2)) < 2


def test_outputs_at_initialisation_vary_by_the_kernel():
    """Of a linear hidden layer N Var f = x·x/(Dγ₀²)."""
    run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(1.5), DATA, optimizer=lg.gd(0.1), steps=1)
    found = measure_fluctuations(run, 128, 3, progress=False)
    expected = np.sqrt((np.concatenate([X, XT]) ** 2).mean(1) / 1.5**2)
    z = (found.std[0, :, 0] - expected) / found.error[0, :, 0]
    assert np.abs(z).max() < 4
    assert (found.error[0, :, 0] < 0.03 * expected).all()


def test_what_is_too_large_is_refused():
    with pytest.raises(InvalidInput, match="more than 6000"):
        lg.solve(run_of(lg.gd(0.1), steps=700), fluctuations=True)
    flow = lg.Run(lg.mlp(1), lg.mean_field(), DATA, optimizer=lg.gradient_flow(), times=[1.0])
    with pytest.raises(InvalidInput, match="gradient descent"):
        lg.solve(flow, fluctuations=True)
