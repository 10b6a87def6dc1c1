"""Arrays that a user's own program has captured in single precision keep their precision here.

JAX 0.10 remembers the single-precision copy of a captured NumPy array, and takes it wherever the
same object is given to a program in double precision: results lose half of their digits, or the
program fails.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg

NET = lg.mlp(1, "tanh")


@pytest.fixture
def captured():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 3)), rng.standard_normal(6)
    return x, y, jax.jit(lambda p: jnp.mean((p * x).sum(1) - y))


def test_jax_still_does_so(captured):
    """If this fails, JAX is mended, and views need not be made any more."""
    x, _, loss = captured
    loss(1.0)
    with jax.enable_x64(True):
        assert jnp.asarray(x).dtype == np.float32


def test_kernels_and_predictions(captured):
    x, y, loss = captured

    def answers(x, y):
        return lg.ntk_kernel(NET, x), lg.posterior(NET, x, y, noise=0.1).predict(x[:2]).mean

    for p in range(3):
        loss(p)
    same(answers(x, y), answers(x.copy(), y.copy()))


def test_tangent_kernels(captured):
    x, _, loss = captured
    for p in range(3):
        loss(p)

    def answers(x):
        return lg.networks.ntk_of_function(
            lambda params, x: jnp.tanh(x @ params), np.arange(3.0), x
        )

    same(answers(x), answers(x.copy()))


@pytest.mark.parametrize("param", [lg.ntk(), lg.mean_field()])
def test_runs(captured, param):
    x, y, _ = captured

    def answers(data):
        run = lg.Run(NET, param, data, optimizer=lg.gd(0.1), steps=3)
        return lg.train(run, width=8, seeds=2, key=0).f_train, lg.solve(run).f_train

    data = lg.Dataset(x, y)
    loss = jax.jit(lambda p: jnp.mean((data.x_train @ p - data.y_train) ** 2))
    for seed in range(3):
        loss(jnp.full(3, seed))
    same(answers(data), answers(lg.Dataset(x, y)))


def same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, two)
