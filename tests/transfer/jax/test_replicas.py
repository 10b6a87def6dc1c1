"""Replicas trained together against the same networks trained one by one by optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largen.errors import InvalidInput
from largen.transfer import Hints
from largen.transfer.jax import scale
from largen.transfer.jax.replicas import cross_entropy, train_replicas
from largen.transfer.replicas import Replica

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(40, 6)).astype("float32")
Y = DRAW.integers(0, 3, 40)


def init(key, width, depth):
    keys = jax.random.split(key, depth + 2)
    return {
        "read_in": jax.random.normal(keys[0], (6, width)) / 6**0.5,
        "blocks": [{"w": jax.random.normal(k, (width, width)) / width**0.5} for k in keys[2:]],
        "read_out": jax.random.normal(keys[1], (width, 3)) / width**0.5,
    }


def apply(p, x):
    h = x @ p["read_in"]
    for block in p["blocks"]:
        h = h + jnp.tanh(h) @ block["w"]
    return jnp.tanh(h) @ p["read_out"]


def batch(t):
    at = np.arange(10) + 10 * (t % 4)
    return X[at], Y[at]


def plan(optimizer, **options):
    return scale(
        init, {"width": 4, "depth": 2}, {"width": 8, "depth": 4}, optimizer=optimizer,
        layout="in_out", hints=Hints(branches=["blocks.*"]), **options,
    )  # fmt: skip


def alone(plan, replica, steps):
    parameters = plan.init(replica.seed)
    options = {"momentum": replica.momentum} if plan.optimizer == "momentum" else {}
    move = plan.optax(lr=replica.lr, weight_decay=replica.weight_decay, **options)
    state, losses = move.init(parameters), []
    step = jax.jit(jax.value_and_grad(lambda p, x, y: cross_entropy(apply(p, x), y)))
    for t in range(steps):
        value, gradient = step(parameters, *batch(t))
        updates, state = move.update(gradient, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        losses.append(float(value))
    return losses, float(cross_entropy(apply(parameters, X), Y))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_each_replica_is_trained_as_it_is_alone(optimizer):
    own = plan(optimizer)
    replicas = [Replica(0.02, 0, 0.1, 0.8), Replica(0.01, 1, 0.1, 0.8)]
    found = train_replicas(
        own, apply, replicas, batch, "cross_entropy", steps=6, evaluation=[(X, Y)]
    )
    for i, replica in enumerate(replicas):
        losses, final = alone(own, replica, 6)
        np.testing.assert_allclose(found.losses[i], losses, rtol=2e-5)
        np.testing.assert_allclose(found.final[i], final, rtol=2e-5)


@pytest.mark.slow
def test_diverged_replicas_are_dropped():
    own = plan("sgd")
    # Mean squared errors of a linear read-out grow without bound.
    batches = lambda t: (batch(t)[0], np.eye(3, dtype="float32")[batch(t)[1]])  # noqa: E731
    rates = [Replica(0.01), Replica(1e5), Replica(1e6)]
    end = (X, np.eye(3, dtype="float32")[Y])
    found = train_replicas(own, apply, rates, batches, "mse", steps=25, evaluation=[end])
    assert found.diverged.tolist() == [False, True, True]
    apart = train_replicas(own, apply, rates[:1], batches, "mse", steps=25, evaluation=[end])
    np.testing.assert_allclose(found.losses[0], apart.losses[0], rtol=1e-4)


@pytest.mark.slow
def test_doors():
    with pytest.raises(InvalidInput, match="replicas"):
        train_replicas(plan("sgd"), apply, [], batch, "mse", steps=1, evaluation=[(X, Y)])
    mixed = [Replica(0.1, weight_decay=0.0), Replica(0.1, weight_decay=0.1)]
    with pytest.raises(InvalidInput, match="one weight decay"):
        train_replicas(plan("sgd"), apply, mixed, batch, "mse", steps=1, evaluation=[(X, Y)])
    free = plan("adamw", decay="independent")
    with pytest.raises(InvalidInput, match="independent"):
        train_replicas(free, apply, mixed[1:], batch, "mse", steps=1, evaluation=[(X, Y)])
