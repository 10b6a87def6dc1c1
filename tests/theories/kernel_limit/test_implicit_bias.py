"""Of all weights that fit the samples, gradient descent finds those nearest to its start."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg

RNG = np.random.default_rng(0)
X, XT = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3))
Y = RNG.standard_normal(5)
NET = lg.mlp(1, "tanh")


def steep(f, y):
    return (f - y) ** 2 / 2 + (f - y) ** 4 / 10


def test_the_nearest_solution_whatever_the_loss():
    """Hanin's primer, (1.3.6)-(1.3.8): the part of θ in the kernel of the features stays."""
    with jax.enable_x64(True):
        params = lg.networks.init(NET, lg.ntk(), width=20, inputs=3, key=0, dtype=np.float64)
        flat, back = jax.flatten_util.ravel_pytree(params)

        def f(theta, x):
            return lg.networks.apply(NET, back(theta), x, param=lg.ntk())

        J, start = jax.jacobian(f)(flat, X), np.asarray(f(flat, X))
        linear = lg.networks.linearize(f, flat)
        slope = jax.grad(lambda theta: steep(linear(theta, X), Y).mean())

        def step(_, moving):
            theta, velocity = moving
            velocity = 0.9 * velocity - 0.05 * slope(theta)
            return theta + velocity, velocity

        theta = jax.lax.fori_loop(0, 20_000, step, (flat, jnp.zeros_like(flat)))[0]
        end = np.asarray(linear(theta, XT))
        nearest = flat + np.linalg.pinv(J) @ (Y - start)
        np.testing.assert_allclose(theta, nearest, atol=1e-8)
        kernel = np.asarray(lg.networks.empirical_ntk(NET, params, X, param=lg.ntk()))
        across = np.asarray(lg.networks.empirical_ntk(NET, params, XT, X, param=lg.ntk()))
        known = np.asarray(f(flat, XT)) + across @ np.linalg.solve(kernel, Y - start)
    np.testing.assert_allclose(end, known, atol=1e-8)
    moved = np.asarray(theta - flat)
    # Its square is the squared norm of y − f₀ in the kernel's reproducing space.
    assert np.isclose(moved @ moved, (Y - start) @ np.linalg.solve(kernel, Y - start))


@pytest.mark.slow
def test_the_kernel_limit_forgets_the_loss():
    """Its mean is Θ(x, X)Θ⁻¹y for every loss that only an exact fit minimises."""
    x = 3**0.5 * np.eye(3)
    data = lg.Dataset(x, Y[:3], XT, np.zeros(4))
    run = lg.Run(NET, lg.ntk(), data, steep, lg.gd(0.3), steps=300)
    limit = lg.solve(run)
    known = lg.posterior(NET, x, Y[:3], kind="ntk").predict(XT).mean
    np.testing.assert_allclose(limit.f_train[-1], Y[:3], atol=1e-6)
    np.testing.assert_allclose(limit.f_test[-1], known, atol=1e-6)
    assert np.abs(limit.f_test[20] - known).max() > 1e-2
