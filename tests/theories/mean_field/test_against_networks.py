"""The mean-field limit against finite networks trained in NumPy, which share no code with it."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.theories.mean_field.two_layer_oracle import train

import largen as lg

RNG = np.random.default_rng(0)
X, X_TEST = RNG.normal(size=(8, 5)), RNG.normal(size=(6, 5))
Y, Y_TEST = np.sin(2 * X[:, 0]), np.sin(2 * X_TEST[:, 0])
SCALAR = lg.Dataset(X, Y, X_TEST, Y_TEST)
SIGNS = lg.Dataset(X, np.sign(Y), X_TEST, np.sign(Y_TEST))
CLASSES = lg.Dataset(X, RNG.integers(0, 3, 8), X_TEST, RNG.integers(0, 3, 6))
PAIRS = lg.Dataset(X, np.stack([Y, Y**2], 1), X_TEST, np.stack([Y_TEST, Y_TEST**2], 1))

CASES = {
    "tanh": ("tanh", SCALAR, {"optimizer": lg.gd(0.5)}, {}, 1.0),
    "biases": ("tanh", SCALAR, {"optimizer": lg.gd(0.5)}, {"weight_std": 1.3, "bias_std": 0.7}, 1),
    "momentum, weight decay and a schedule": (
        "tanh",
        SCALAR,
        {"optimizer": lg.gd(0.2, momentum=0.8, weight_decay=0.05, schedule=lambda t: 5 / (5 + t))},
        {"bias_std": 0.7},
        1.0,
    ),
    "minibatches": ("relu", SCALAR, {"optimizer": lg.sgd(0.3, 3)}, {}, 1.0),
    "rich": ("relu", SCALAR, {"optimizer": lg.gd(0.3)}, {}, 2.0),
    "two outputs": ("gelu", PAIRS, {"optimizer": lg.gd(0.5)}, {}, 1.0),
    "logistic": ("tanh", SIGNS, {"optimizer": lg.gd(1.0), "loss": "logistic"}, {}, 1.0),
    "softmax": ("tanh", CLASSES, {"optimizer": lg.gd(1.0), "loss": "cross_entropy"}, {}, 1.0),
}


def outputs(limit, name="f"):
    parts = getattr(limit, f"f_train{name[1:]}"), getattr(limit, f"f_test{name[1:]}")
    f = np.concatenate(parts, axis=1)
    return f.reshape(*f.shape[:2], -1)


def scores(limit, networks):
    """Return z-scores of the limit against the mean of networks, at all steps but the first."""
    mean, count = networks.mean(0), len(networks)
    variance = networks.var(0, ddof=1).mean(axis=(1, 2), keepdims=True) / count
    error = np.sqrt(variance + outputs(limit, "f_error") ** 2)
    return ((outputs(limit) - mean) / np.maximum(error, 1e-300))[1:]


def rms(values):
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_limit_lies_within_its_error_of_wide_networks(case):
    activation, data, how, net, gamma = CASES[case]
    run = lg.Run(lg.mlp(1, activation, **net), lg.mean_field(gamma), data, steps=30, **how)
    limit = lg.solve(run, rtol=3e-3)
    networks = np.array(
        [
            train(run, 8000, np.random.default_rng(s), activation, symmetric=True, **net)
            for s in range(6)
        ]
    )
    # Steps and samples move together, so that the mean square has few degrees of freedom.
    assert 0.3 < rms(scores(limit, networks)) < 1.8
    np.testing.assert_allclose(limit.f_train[0], 0, atol=1e-7)  # rounding of single precision


@pytest.mark.slow
def test_a_wrong_power_of_gamma_is_seen():
    activation, data, how, _, gamma = CASES["rich"]
    run = lg.Run(lg.mlp(1, activation), lg.mean_field(gamma), data, steps=30, **how)
    limit = lg.solve(run)
    wrong = np.array(
        [
            train(run, 4000, np.random.default_rng(s), activation, symmetric=True, g_power=-1)
            for s in range(4)
        ]
    )
    assert rms(scores(limit, wrong)) > 5


def test_equivalent_parameterizations_have_one_limit():
    net = lg.mlp(1, "tanh", weight_std=1.5)
    shifted = lg.mean_field(2.0).shift({"input": "1/2", "output": "-1/2"})
    first, second = (
        lg.solve(lg.Run(net, param, SCALAR, optimizer=lg.gd(0.2), steps=10))
        for param in (lg.mean_field(2.0), shifted)
    )
    np.testing.assert_allclose(first.f_train, second.f_train, atol=1e-6)


@pytest.mark.slow
def test_rates_of_weights_and_biases_may_differ():
    """μP trains the read-in D times faster than mean field, and biases at 1/σ_b² of it."""
    run = lg.Run(lg.mlp(1, "tanh", bias_std=0.5), lg.mup(), SCALAR, optimizer=lg.gd(0.1), steps=30)
    limit = lg.solve(run, rtol=3e-3)
    ensemble = lg.train(run, width=2048, seeds=16, key=1)
    networks = np.concatenate([ensemble.f_train, ensemble.f_test], axis=2)[..., None]
    difference = outputs(limit) - networks.mean(0)
    assert rms(difference) < 4 * rms(networks.std(0)) / np.sqrt(16) + 2 / 2048
    assert rms(scores(limit, networks)) < 2.5


def test_a_loss_and_an_activation_of_the_users_own():
    def huber(f, y):
        return jnp.sqrt(1 + (f - y) ** 2)

    def bump(x):
        return jnp.exp(-(x**2))

    run = lg.Run(
        lg.mlp(1, bump, bias_std=1.0),
        lg.mean_field(),
        SCALAR,
        loss=huber,
        optimizer=lg.gd(1.0),
        steps=40,
    )
    limit = lg.solve(run, rtol=1e-2)
    assert limit.loss_train[-1] < limit.loss_train[0] - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [False, True])
def test_limit_against_a_network_of_width_200000(symmetric):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(10, 12)), np.sign(rng.normal(size=10))
    data = lg.Dataset(x, y, rng.normal(size=(4, 12)), np.ones(4))
    run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=60)
    limit = lg.solve(run, rtol=5e-4)
    network = train(run, 200_000, np.random.default_rng(1), "tanh", symmetric=symmetric)
    # The network's own fluctuation is measured at a tenth of the width: variances go as 1/N.
    small = np.array(
        [
            train(run, 20_000, np.random.default_rng(10 + s), "tanh", symmetric=symmetric)
            for s in range(8)
        ]
    )
    error = np.sqrt(small.var(0, ddof=1) / 10 + outputs(limit, "f_error") ** 2)
    assert 0.2 < rms(((outputs(limit) - network) / np.maximum(error, 1e-300))[1:]) < 2.0
    assert rms(outputs(limit) - network) < 5e-3 * rms(network)
