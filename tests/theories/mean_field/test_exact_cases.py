"""The mean-field limit where it is known to many digits, and its methods against one another."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import largen as lg
from largen.theories import whitened_linear_flow

RNG = np.random.default_rng(3)
solve = partial(lg.solve, theory="mean field, one hidden layer")


def curve(samples=5, inputs=1, tests=3):
    x = np.random.default_rng(inputs).normal(size=(samples + tests, inputs))
    y = np.sin(2 * x[:, 0])
    return lg.Dataset(x[:samples], y[:samples], x[samples:], y[samples:])


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def linear_moments(x, y, lr, steps, gamma, beta, decay, batches):
    """Evolve the second moments of (a, v_a, z, v_z) of a linear neuron: an affine map a step."""
    p, d = x.shape
    k = d + 1
    moments = np.zeros((2 * k, 2 * k))
    moments[:k, :k] = np.eye(k)
    fields, f = x / np.sqrt(d), []
    for step in range(steps + 1):
        f.append(fields @ moments[:d, d] / gamma)
        rows = np.arange(p) if batches is None or step == steps else batches[step]
        pull = np.zeros(p)
        pull[rows] = (y - f[-1])[rows] / len(rows)
        push = np.zeros((k, k))
        push[:d, d] = push[d, :d] = lr * gamma * fields.T @ pull
        push -= lr * decay * np.eye(k)
        move = np.block([[np.eye(k) + push, beta * np.eye(k)], [push, beta * np.eye(k)]])
        moments = move @ moments @ move.T
    return np.array(f)


@pytest.mark.parametrize(
    "optimizer",
    [lg.gd(0.3), lg.gd(0.1, momentum=0.7, weight_decay=0.1), lg.sgd(0.2, 2, momentum=0.5)],
    ids=str,
)
def test_closed_linear_equations_are_exact(optimizer):
    data = curve(inputs=4)
    run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(1.5), data, optimizer=optimizer, steps=50)
    expected = linear_moments(
        data.x_train,
        data.y_train,
        optimizer.lr,
        50,
        1.5,
        optimizer.momentum,
        optimizer.weight_decay,
        run.batches,
    )
    limit = solve(run)
    np.testing.assert_allclose(limit.f_train, expected, rtol=0, atol=1e-12)
    two_maps = lg.Run(
        lg.serial(lg.Dense(), lg.Dense()), run.param, data, optimizer=optimizer, steps=50
    )
    np.testing.assert_array_equal(solve(two_maps).f_train, limit.f_train)


@pytest.mark.slow
def test_three_methods_agree_on_a_linear_network():
    run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(), curve(), optimizer=lg.gd(0.5), steps=30)
    exact, grid = solve(run), solve(run, method="quadrature")
    cloud = solve(run, method="particles", rtol=1e-3)
    np.testing.assert_allclose(grid.f_test, exact.f_test, atol=1e-9)
    assert relative(cloud.f_test, exact.f_test) < 3e-3


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_whitened_linear_flow_has_its_closed_form(gamma):
    p, times = 4, np.linspace(0.5, 12, 8)
    rotation = np.linalg.qr(RNG.normal(size=(p, p)))[0]
    y = RNG.normal(size=p)
    data, length = lg.Dataset(np.sqrt(p) * rotation, y), np.linalg.norm(y)
    run = lg.Run(
        lg.mlp(1, "linear"),
        lg.mean_field(gamma),
        data,
        optimizer=lg.gradient_flow(1.5),
        times=times,
    )
    limit = solve(run, record_at=range(9))
    exact = whitened_linear_flow(run.times, length, gamma=gamma, lr=1.5, samples=p)
    np.testing.assert_allclose(limit.f_train @ y / length, exact.f, atol=1e-8)
    feature = np.einsum("m,tmn,n->t", y, limit.feature_kernel[:, 0], y) / length**2
    np.testing.assert_allclose(feature, exact.feature_kernel, atol=1e-8)
    np.testing.assert_allclose(exact.feature_kernel**2 - (gamma * exact.f) ** 2, 1, atol=1e-12)
    forever = whitened_linear_flow(np.array([1e4]), length, gamma=gamma)
    np.testing.assert_allclose(forever.feature_kernel, np.sqrt(1 + (gamma * length) ** 2))
    # The printed (78), √(1 + γ₀y) or without the square of γ₀, is far away.
    assert abs(forever.feature_kernel[0] - np.sqrt(1 + gamma * length)) > 0.05


def brute_force(data, lr, steps, gamma, nodes=160):
    """Gradient descent on a Gauss-Hermite grid of (u, z), for one input and tanh."""
    node, weight = np.polynomial.hermite_e.hermegauss(nodes)
    u, z = (grid.ravel() for grid in np.meshgrid(node, node))
    weight = np.outer(weight, weight).ravel() / weight.sum() ** 2
    x, p, f = data.x_train[:, 0], len(data.x_train), []
    for _ in range(steps + 1):
        h = np.outer(x, u)
        f.append(np.tanh(h) @ (weight * z) / gamma)
        delta = (data.y_train - f[-1]) * lr * gamma / p
        u, z = u + (delta * x) @ (1 - np.tanh(h) ** 2) * z, z + delta @ np.tanh(h)
    return np.array(f)


@pytest.mark.slow
def test_quadrature_has_the_digits_that_it_says():
    data = curve()
    run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(1.5), data, optimizer=lg.gd(0.1), steps=40)
    limit = solve(run)
    assert "trapezoidal" in limit.notes[0]
    assert relative(limit.f_train, brute_force(data, 0.1, 40, 1.5, nodes=240)) < 1e-9
    assert np.linalg.norm(limit.f_train_error) < 1e-9 * np.linalg.norm(limit.f_train)


def test_quadrature_is_honest_where_it_converges_slowly():
    """At a large step the neurons of large z move chaotically: no grid has many digits."""
    data = curve()
    run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(1.5), data, optimizer=lg.gd(0.5), steps=40)
    rough, fine = solve(run, max_particles=4000), solve(run)
    error = relative(rough.f_train, fine.f_train)
    assert 1e-7 < error < np.linalg.norm(rough.f_train_error) / np.linalg.norm(fine.f_train)


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "bias_std"), [("tanh", 0.5), ("relu", 0.0)])
def test_particles_lie_within_their_error_of_quadrature(activation, bias_std):
    net = lg.mlp(1, activation, bias_std=bias_std)
    run = lg.Run(net, lg.mean_field(), curve(), optimizer=lg.gd(0.1), steps=40)
    grid = solve(run, method="quadrature", rtol=2e-5)
    clouds = [solve(run, method="particles", rtol=5e-3, key=k) for k in range(6)]
    error = np.array([c.f_test_error[1:] for c in clouds])
    assert np.linalg.norm(grid.f_test_error) < 0.3 * np.linalg.norm(error[0])
    z = (np.array([c.f_test[1:] for c in clouds]) - grid.f_test[1:]) / error
    assert 0.3 < np.sqrt(np.mean(z**2)) < 2  # eight replicates: z is Student's, of 7


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "wanted"), [("tanh", 1e-6), ("relu", 2e-3)])
def test_flow_is_the_limit_of_descent(activation, wanted):
    data, net, param = curve(), lg.mlp(1, activation), lg.mean_field()
    times = np.array([1.0, 2.0, 4.0])
    flow = solve(
        lg.Run(net, param, data, optimizer=lg.gradient_flow(), times=times),
        method="quadrature",
        max_particles=4000,
    )
    descents = [
        solve(
            lg.Run(net, param, data, optimizer=lg.gd(lr), steps=round(4 / lr)),
            method="quadrature",
            max_particles=4000,
        ).f_test[np.round(run_times(times) / lr).astype(int)]
        for lr in (1 / 16, 1 / 32, 1 / 64)
    ]
    first, second = (2 * b - a for a, b in pairwise(descents))
    assert relative(descents[-1], flow.f_test) > 1e-4
    assert relative((4 * second - first) / 3, flow.f_test) < wanted * 10
    assert relative(second, flow.f_test) < 2e-3


def run_times(times):
    return np.concatenate([[0.0], times])


@pytest.mark.slow
def test_small_gamma_is_the_kernel_limit():
    data, net = curve(), lg.mlp(1, "tanh", bias_std=0.5)
    kernel = lg.solve(lg.Run(net, lg.ntk(), data, optimizer=lg.gd(0.4, momentum=0.3), steps=40))
    gaps = []
    for gamma in (0.04, 0.02, 0.01):
        run = lg.Run(net, lg.mean_field(gamma), data, optimizer=lg.gd(0.4, momentum=0.3), steps=40)
        limit = solve(run, method="quadrature", record_at=[0])
        gaps.append(relative(limit.f_test, kernel.f_test))
    np.testing.assert_allclose(np.array(gaps[:-1]) / gaps[1:], 4, rtol=0.1)
    expected = lg.kernel(net, data.x_train)
    np.testing.assert_allclose(limit.ntk[0], expected.ntk, atol=1e-8)


@pytest.mark.slow
def test_kernels_of_particles_lie_within_their_errors():
    run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), curve(), optimizer=lg.gd(0.3), steps=20)
    told = {"record_at": [20], "record_pairs": [(20, 5)]}
    grid = solve(run, method="quadrature", rtol=1e-6, **told).to_xarray()
    clouds = [
        solve(run, method="particles", rtol=5e-3, key=k, **told).to_xarray() for k in range(6)
    ]
    for name in ("feature_kernel", "gradient_kernel", "ntk", "feature_kernel_pair"):
        off = np.array([c[name] - grid[name] for c in clouds])
        error = np.array([c[f"{name}_error"] for c in clouds])
        assert 0.3 < np.sqrt(np.mean(off**2) / np.mean(error**2)) < 2.0
        assert float(grid[f"{name}_error"].max()) < 0.1 * error.mean()


def test_replicates_tell_how_far_they_are():
    run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), curve(), optimizer=lg.gd(0.3), steps=5)
    seen = []
    solve(run, method="particles", particles=256, progress=lambda *at: seen.append(at))
    assert seen == [(k, 8) for k in range(9)]


@pytest.mark.slow
def test_small_gamma_with_particles_keeps_its_digits():
    data = curve(inputs=6)
    run = lg.Run(lg.mlp(1, "relu"), lg.mean_field(1e-4), data, optimizer=lg.gd(0.4), steps=20)
    kernel = lg.solve(lg.Run(run.net, lg.ntk(), data, optimizer=lg.gd(0.4), steps=20))
    limit = solve(run, rtol=3e-3)
    assert relative(limit.f_test, kernel.f_test) < 2e-2


@pytest.mark.slow
def test_tangent_kernel_at_the_start_is_the_recursion_with_its_rates():
    net = lg.mlp(1, "tanh", bias_std=0.3)
    x = np.random.default_rng(7).normal(size=(4, 3))
    param = lg.mean_field().with_rates({"input": 0.25, "bias": 0.5, "output": 2.0})
    run = lg.Run(net, param, lg.Dataset(x, x[:, 0]), optimizer=lg.gd(0.3), steps=1)
    limit = lg.solve(run, record=["ntk"], rtol=1e-3)
    wanted = lg.ntk_kernel(net, x, param=param)
    np.testing.assert_allclose(limit.ntk[0], wanted, atol=1e-3 * wanted.max())
