"""Training against plain NumPy, written out for a network with one hidden layer."""

import numpy as np
import optax
import pytest

import largen as lg
from largen.networks import finite_network

P, Q, D, N = 12, 5, 4, 16


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(1)
    return lg.Dataset(
        draw.normal(size=(P, D)), draw.normal(size=P), draw.normal(size=(Q, D)), draw.normal(size=Q)
    )


def start(run, key=3):
    """Parameters of seed 0 of an ensemble: key folded with the seed."""
    import jax

    outputs = run.output_shape[0] if run.output_shape else None
    network = finite_network(
        run.net, run.param, width=N, inputs=run.data.inputs, outputs=outputs
    )
    return network, network.init(jax.random.fold_in(jax.random.key(key), 0), np.float64)


def forward(theta, x, gamma):
    """f = w·tanh(W x/√D + b)/(γN)."""
    h = x @ theta["W"] / np.sqrt(D) + 0.5 * theta["b"]
    return h, np.tanh(h) @ theta["w"] / (gamma * N)


def gradient(theta, x, y, gamma):
    h, f = forward(theta, x, gamma)
    residual = (f - y) / len(y)
    back = residual[:, None] * theta["w"] * (1 - np.tanh(h) ** 2) / (gamma * N)
    return {
        "W": x.T @ back / np.sqrt(D),
        "b": 0.5 * back.sum(0),
        "w": np.tanh(h).T @ residual / (gamma * N),
    }


def reference(run, params, gamma):
    """Outputs of mean-field training at rate η₀γ²N (γ²·1 for the bias), step by step."""
    opt, data = run.optimizer, run.data
    theta = {
        "W": params[0]["weight"],
        "b": params[0]["bias"],
        "w": params[2]["weight"][:, 0],
    }
    rate = {"W": gamma**2 * N, "b": gamma**2, "w": gamma**2 * N}
    rate["b"] = run.param.table(run.net, opt, width=N, inputs=D)["0.bias"].lr
    velocity = {name: np.zeros_like(value) for name, value in theta.items()}
    outputs = []
    for step in range(run.steps + 1):
        outputs.append(forward(theta, data.x, gamma)[1])
        if step == run.steps:
            break
        rows = slice(None) if run.batches is None else run.batches[step]
        slope = gradient(theta, data.x_train[rows], data.y_train[rows], gamma)
        for name in theta:
            slope[name] = slope[name] + opt.weight_decay / rate[name] * theta[name]
            velocity[name] = opt.momentum * velocity[name] + slope[name]
        theta = {n: theta[n] - opt.lr * rate[n] * velocity[n] for n in theta}
    return np.array(outputs)


NET = lg.serial(lg.Dense(1.0, 0.5), lg.Activation("tanh"), lg.Dense())


@pytest.mark.parametrize(
    "optimizer",
    [
        lg.gd(0.7),
        lg.gd(0.3, momentum=0.9),
        lg.gd(0.5, weight_decay=0.1),
        lg.sgd(0.4, 5, momentum=0.5, weight_decay=0.02, seed=4),
    ],
    ids=str,
)
def test_steps_are_those_of_numpy(data, optimizer):
    gamma = 1.5
    run = lg.Run(NET, lg.mean_field(gamma), data, optimizer=optimizer, steps=30)
    nets = lg.train(run, N, 2, 3)
    _, params = start(run)
    want = reference(run, params, gamma)
    assert abs(want[-1] - want[0]).max() > 0.1
    np.testing.assert_allclose(nets.f_train[0], want[:, :P], rtol=0, atol=1e-10)
    np.testing.assert_allclose(nets.f_test[0], want[:, P:], rtol=0, atol=1e-10)
