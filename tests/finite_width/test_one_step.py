"""Rates of layers against gradients of drawn networks."""

from itertools import pairwise

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import NoTheory

X = np.array([[0.9, -0.4, 1.3, 0.2]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "std", "widths"), [("relu", 2**0.5, (20, 30, 15)), ("tanh", 1.3, (150, 100, 200))]
)
def test_gradients_against_networks(name, std, widths):
    found = lg.finite_width.layer_learning_rates(lg.mlp(3, name, weight_std=std), X, width=widths)
    sizes = (4, *widths, 1)
    phi = jax.nn.relu if name == "relu" else jax.numpy.tanh

    def output(weights):
        z = X[0]
        for number, W in enumerate(weights):
            z = W @ (phi(z) if number else z)
        return z[0]

    def squares(key):
        keys = jax.random.split(key, 4)
        weights = [
            std / np.sqrt(a) * jax.random.normal(k, (b, a))
            for k, (a, b) in zip(keys, pairwise(sizes), strict=True)
        ]
        return jax.numpy.stack([(g**2).mean() for g in jax.grad(output)(weights)])

    draws = 2000
    keys = jax.random.split(jax.random.key(1), draws)
    seen = np.asarray(jax.lax.map(squares, keys, batch_size=250), np.float64)
    error = seen.std(axis=0) / np.sqrt(draws)
    slack = 0 if name == "relu" else 0.01 * found.gradients  # of order 1/n
    assert np.all(np.abs(seen.mean(axis=0) - found.gradients) < 3.5 * error + slack)
    # Each layer has the share 1/(L + 1) of the tangent kernel with these rates.
    parameters = np.array([a * b for a, b in pairwise(sizes)])
    assert np.allclose(found.rates * parameters * found.gradients, 0.25, rtol=1e-12)


def test_biases_are_refused():
    with pytest.raises(NoTheory, match="bias"):
        lg.finite_width.layer_learning_rates(lg.mlp(1, "tanh", bias_std=0.1), X, width=8)
