"""Training against plain NumPy, written out for a network with one hidden layer."""

import numpy as np
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
    network = finite_network(run.net, run.param, width=N, inputs=run.data.inputs, outputs=outputs)
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


NET = lg.serial(lg.Dense(weight_std=1.0, bias_std=0.5), lg.Activation("tanh"), lg.Dense())


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


def test_adam_is_that_of_its_equations(data):
    """θ ← θ − η(m̂/(√v̂ + ε) + λθ), with η, ε and λ scaled for every weight."""
    optimizer = lg.adam(0.02, beta1=0.8, beta2=0.95, eps=1e-2, weight_decay=0.1)
    run = lg.Run(NET, lg.mean_field(1.5), data, optimizer=optimizer, steps=20)
    nets = lg.train(run, N, 1, 3)
    _, params = start(run)
    rules = run.param.table(NET, optimizer, width=N, inputs=D)
    rules = {"W": rules["0.weight"], "b": rules["0.bias"], "w": rules["2.weight"]}
    theta = {"W": params[0]["weight"], "b": params[0]["bias"], "w": params[2]["weight"][:, 0]}
    m, v = ({n: np.zeros_like(t) for n, t in theta.items()} for _ in range(2))
    for step in range(21):
        f = forward(theta, data.x, 1.5)[1]
        np.testing.assert_allclose(nets.f_train[0, step], f[:P], rtol=0, atol=1e-10)
        np.testing.assert_allclose(nets.f_test[0, step], f[P:], rtol=0, atol=1e-10)
        slope = gradient(theta, data.x_train, data.y_train, 1.5)
        for n, rule in rules.items():
            m[n] = 0.8 * m[n] + 0.2 * slope[n]
            v[n] = 0.95 * v[n] + 0.05 * slope[n] ** 2
            mean, size = m[n] / (1 - 0.8 ** (step + 1)), v[n] / (1 - 0.95 ** (step + 1))
            update = mean / (np.sqrt(size) + 1e-2 * rule.eps) + 0.1 * rule.weight_decay * theta[n]
            theta[n] = theta[n] - 0.02 * rule.lr * update
    assert abs(nets.f_train[0, -1] - nets.f_train[0, 0]).max() > 0.1


@pytest.mark.parametrize("loss", ["logistic", "cross_entropy", "mse"])
def test_losses_and_several_outputs(loss):
    """One step is −η₀/P times the kernel on the residual, up to the square of a small rate."""
    draw = np.random.default_rng(2)
    x = draw.normal(size=(P, D))
    if loss == "logistic":
        y = np.sign(draw.normal(size=P))
    elif loss == "mse":
        y = draw.normal(size=(P, 3))
    else:
        y = np.arange(P) % 3
    data = lg.Dataset(x, y, x[:Q] + 0.1, y[:Q])
    run = lg.Run(NET, lg.mean_field(), data, loss=loss, optimizer=lg.gd(1e-5), steps=1)
    nets = lg.train(run, N, 1, 3)
    network, params = start(run)
    f = network.apply(params, x)
    np.testing.assert_allclose(nets.f_train[0, 0], f, atol=1e-14)
    if loss == "logistic":
        delta = y / (1 + np.exp(y * f))
    elif loss == "mse":
        delta = y - f
    else:
        softmax = np.exp(f) / np.exp(f).sum(1, keepdims=True)
        delta = np.eye(3)[y] - softmax
    for inputs, outputs in ((x, nets.f_train), (data.x_test, nets.f_test)):
        kernel = lg.networks.empirical_ntk(NET, params, inputs, x, param=run.param)
        axes = ([1], [0]) if kernel.ndim == 2 else ([1, 3], [0, 1])
        step = 1e-5 / P * np.tensordot(kernel, delta, axes)
        np.testing.assert_allclose(outputs[0, 1] - outputs[0, 0], step, rtol=0, atol=1e-8)
        assert abs(step).max() > 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_flow_is_the_limit_of_small_steps(data, decay):
    """GD at rates η and η/2 extrapolates to the flow with an error of order η²."""
    param = lg.mean_field(2.0)
    flow = lg.Run(
        NET, param, data, optimizer=lg.gradient_flow(2.0, weight_decay=decay), times=[0.5, 1, 2]
    )
    nets = lg.train(flow, N, 2, 3, record=["feature_kernel"], record_at=[0, 2])
    ends = []
    for count in (200, 400):
        optimizer = lg.gd(4.0 / count, weight_decay=decay)
        run = lg.Run(NET, param, data, optimizer=optimizer, steps=count)
        small = lg.train(run, N, 2, 3, record=["feature_kernel"], record_at=[0, count // 2])
        assert small.time[-1] == 4.0
        ends.append((small.f_test[:, count // 4 :: count // 4][:, [0, 1, 3]], small.feature_kernel))
    for got, one, two in zip((nets.f_test[:, 1:], nets.feature_kernel), *ends, strict=True):
        assert abs(two - one).max() > 1e-4
        np.testing.assert_allclose(got, 2 * two - one, rtol=0, atol=3e-5)


@pytest.mark.slow
def test_flow_of_relu_reaches_its_end():
    """Neurons that are held at the kink do not stop the solver."""
    draw = np.random.default_rng(0)
    data = lg.Dataset(draw.normal(size=(20, 5)), np.sign(draw.normal(size=20)))
    run = lg.Run(
        lg.mlp(1, "relu"), lg.mean_field(), data, optimizer=lg.gradient_flow(), times=[1, 2.5]
    )
    nets = lg.train(run, N, 3, 0)
    gd = lg.Run(run.net, run.param, data, optimizer=lg.gd(0.0025), steps=1000)
    want = lg.train(gd, N, 3, 0).f_train[:, [400, 1000]]
    np.testing.assert_allclose(nets.f_train[:, 1:], want, rtol=0, atol=5e-3)
