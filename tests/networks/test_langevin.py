"""Langevin dynamics of finite networks: Gaussian weights of a linear model, exactly."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(11)
X, Y = RNG.standard_normal((5, 3)), RNG.standard_normal(5)
WIDTH, SEEDS, T = 4, 1500, 0.3


def run_of(optimizer, steps, param=None, data=None):
    # With the read-in frozen the network is a linear model of its random features.
    param = (param or lg.mean_field(1.5)).with_rates({"input": 0.0})
    data = data or lg.Dataset(X, Y)
    return lg.Run(lg.mlp(1, "tanh"), param, data, optimizer=optimizer, steps=steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("param", "steps"), [(lg.ntk(), 3), (lg.mean_field(1.5), 300)], ids=["on the way", "end"]
)
def test_weights_of_a_linear_model(param, steps):
    """θ(t) is Gaussian, with the covariance of steps of any size; in the end the posterior.

    With u = θ over its initial standard deviation and f = J u, every step is u ← (1 − ηH)u + … with
    H = γ²JᵀJ/P + λ₀, and noise 2ηT₀: Cov(∞) = T₀ H⁻¹ (1 − ηH/2)⁻¹. For small η that is the
    posterior of the prior N(0, T₀/λ₀) and of observations with noise P T₀/γ².
    """
    lr, decay = 0.4, T
    run = run_of(lg.optimizers.langevin(lr, T, weight_decay=decay), steps, param)
    start, end = lg.networks.train_and_measure(
        run, WIDTH, seeds=SEEDS, key=3, measure=lambda net, a, b, x: (a, b)
    )
    first, w0, w = start[0]["weight"], start[2]["weight"][..., 0], end[2]["weight"][..., 0]
    np.testing.assert_array_equal(first, end[0]["weight"])
    gamma = param.gamma * WIDTH ** float(param.d)
    features = np.tanh(X @ first / 3**0.5)
    jacobian = features / (gamma * WIDTH**0.5)
    h = gamma**2 * np.einsum("kpi,kpj->kij", jacobian, jacobian) / 5 + decay * np.eye(WIDTH)
    push = gamma**2 * np.einsum("kpi,p->ki", jacobian, Y) / 5
    values, vectors = np.linalg.eigh(h)
    rest = (1 - lr * values) ** steps
    fixed = np.einsum("kij,ki->kj", vectors, push) / values
    began = np.einsum("kij,ki->kj", vectors, w0)
    mean = rest * began + (1 - rest) * fixed
    variance = T / values / (1 - lr * values / 2) * (1 - rest**2)
    z = (np.einsum("kij,ki->kj", vectors, w) - mean) / variance**0.5
    assert abs(z.mean()) * z.size**0.5 < 4
    assert abs((z**2).mean() - 1) * (z.size / 2) ** 0.5 < 4
    across = z.T @ z / SEEDS - np.diag((z**2).mean(0))
    assert np.abs(across).max() * SEEDS**0.5 < 4.5
    if steps > 100:
        posterior = np.linalg.inv(
            decay / T * np.eye(WIDTH)
            + np.einsum("kpi,kpj->kij", jacobian, jacobian) / (5 * T / gamma**2)
        )
        np.testing.assert_allclose(T * np.linalg.inv(h), posterior, rtol=1e-10)


@pytest.mark.parametrize("param", [lg.ntk(), lg.mean_field(2.0), lg.mup()])
def test_noise_is_the_same_fraction_of_weights_at_every_width(param):
    rates = {}
    for width in (16, 256):
        table = param.table(lg.mlp(2), width=width, inputs=3)
        noise = [(r.lr**0.5 / table.gamma / r.init_std) for r in table.values()]
        rates[width] = np.array(noise)
    np.testing.assert_allclose(rates[16], rates[256])
    assert min(rates[16]) == pytest.approx(1)


@pytest.mark.slow
def test_zero_temperature_is_gradient_descent():
    options = {"batch_size": 2, "weight_decay": 0.1, "schedule": [1, 2, 0.5]}
    cold, plain = lg.optimizers.langevin(0.3, 0.0, **options), lg.sgd(0.3, **options)
    one, other = (lg.train(run_of(how, 3), 8, 4, key=0).f_train for how in (cold, plain))
    np.testing.assert_array_equal(one, other)
    one, other = (
        lg.solve(run_of(how, 3, lg.ntk())).f_train
        for how in (lg.optimizers.langevin(0.3, 0.0), lg.gd(0.3))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_noise_does_not_depend_on_chunks_and_differs_between_networks():
    run = run_of(lg.optimizers.langevin(0.3, 0.5), 4)
    whole = lg.train(run, 8, 6, key=0).f_train
    np.testing.assert_array_equal(lg.train(run, 8, 6, key=0, memory_budget=1).f_train, whole)
    np.testing.assert_array_equal(lg.train(run, 8, 3, key=0).f_train, whole[:3])
    assert np.ptp(whole[:, 1], axis=0).min() > 1e-3


def test_wrong_input():
    with pytest.raises(InvalidInput, match="temperature"):
        lg.optimizers.langevin(0.1, -1.0)
    with pytest.raises(NoTheory, match="noise moves every weight"):
        lg.solve(run_of(lg.optimizers.langevin(0.1, 0.1), 3, lg.ntk()))
