"""Learning-rate schedules: networks and the kernel limit step by step, and all theories alike.

The mean-field limits are set against networks in NumPy with schedules among their own tests.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((5, 4)), np.array([1.0, -1.0, 0.5, 1.0, -0.5])
DATA = lg.Dataset(X, Y, X[:2] + 0.1, Y[:2])
FACTORS = (0.2, 0.6, 1.0, 1.0, 0.5, 0.0)


def run_of(optimizer, param=None, steps=6, layers=1):
    return lg.Run(lg.mlp(layers, "tanh"), param or lg.ntk(), DATA, optimizer=optimizer, steps=steps)


def test_networks():
    """Velocities keep the rates with which they were gained: v ← βv − η∇, θ ← θ + v."""
    optimizer = lg.gd(0.8, momentum=0.6, schedule=FACTORS)
    nets = lg.train(run_of(optimizer), width=16, seeds=1, key=3)
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.key(3), 0)
        net = lg.mlp(1, "tanh")
        theta = lg.networks.init(net, lg.ntk(), width=16, inputs=4, key=key, dtype=np.float64)
        gradient = jax.grad(
            lambda p: jnp.mean((lg.networks.apply(net, p, X, param=lg.ntk()) - Y) ** 2) / 2
        )
        velocity = jax.tree.map(jnp.zeros_like, theta)
        for step, factor in enumerate(FACTORS):
            velocity = jax.tree.map(
                lambda v, g, rate=0.8 * factor: 0.6 * v - rate * g, velocity, gradient(theta)
            )
            theta = jax.tree.map(jnp.add, theta, velocity)
            f = lg.networks.apply(net, theta, X, param=lg.ntk())
            np.testing.assert_allclose(nets.f_train[0, step + 1], f, atol=1e-10)


@pytest.mark.parametrize("batch", [None, 2], ids=["modes", "steps"])
def test_kernel_limit(batch):
    settings = {"momentum": 0.6, "schedule": FACTORS}
    optimizer = lg.sgd(0.8, batch, **settings) if batch else lg.gd(0.8, **settings)
    run = run_of(optimizer, layers=2)
    limit, kernel = lg.solve(run), lg.ntk_kernel(run.net, X, X)
    f, velocity = np.zeros(5), np.zeros(5)
    for step, factor in enumerate(FACTORS):
        rows = np.arange(5) if run.batches is None else run.batches[step]
        push = 0.8 * factor * kernel[:, rows] @ (Y - f)[rows] / len(rows)
        velocity = 0.6 * velocity + push
        f = f + velocity
        np.testing.assert_allclose(limit.f_train[step + 1], f, atol=1e-10)
    np.testing.assert_allclose(limit.time, np.cumsum([0, *FACTORS]) * 0.8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "solver"),
    [
        (lg.adam, lambda run: lg.train(run, width=8, seeds=1, key=0).f_train),
        (
            lg.optimizers.rmsprop,
            lambda run: lg.solve(run, method="particles", particles=256).f_train,
        ),
    ],
    ids=["networks", "mean field"],
)
def test_adaptive_optimizers(optimizer, solver):
    """Half the rate by a schedule is half the rate; where it ends, nothing moves any more."""
    until = [0.5, 0.5, 0.5, 0.0]
    steady = solver(run_of(optimizer(0.02), lg.mean_field(), 3))
    scheduled = solver(run_of(optimizer(0.04, schedule=until), lg.mean_field(), 4))
    assert np.abs(steady[..., -1, :] - steady[..., -2, :]).max() > 1e-4
    np.testing.assert_allclose(scheduled[..., :4, :], steady, atol=1e-6)
    np.testing.assert_allclose(scheduled[..., 4, :], scheduled[..., 3, :], atol=1e-6)


def test_functions_and_their_names():
    optimizer = lg.gd(0.5, schedule=optax.cosine_decay_schedule(1.0, 4))
    run = run_of(optimizer, steps=4)
    np.testing.assert_allclose(run.rates, 0.25 * (1 + np.cos(np.pi * np.arange(4) / 4)), rtol=1e-6)
    assert "schedule=cosine_decay_schedule" in str(optimizer)
    assert "schedule=6 factors" in str(lg.gd(0.5, schedule=FACTORS))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ([1.0, 0.5], "a factor for each of 6 steps, got 2"),
        (lambda step: 1.0 - step, "schedule, step 2: wanted a finite number ≥ 0, got -1.0"),
        ([1.0, np.nan], "schedule, step 1: .*got nan"),
        (0.5, "a function of the step or a sequence"),
    ],
)
def test_wrong_input(schedule, words):
    with pytest.raises(InvalidInput, match=words):
        run_of(lg.gd(0.5, schedule=schedule))
