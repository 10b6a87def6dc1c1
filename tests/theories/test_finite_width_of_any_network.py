"""The mean at finite width of deep networks, kinks and steps, beside independent routes."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.theories.kernel_limit.fluctuating_kernel import by_orders
from largen.theories.kernel_limit.trained_shift import Shift, shift_of

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 4)), RNG.standard_normal(6)
P = 4
DATA = lg.Dataset(X[:P], Y[:P], X[P:], Y[P:])
Theory = lg.theories.FiniteWidth


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def run_of(net, lr=1.0, data=DATA, **changed):
    return lg.Run(net, lg.ntk(), data, **{"optimizer": lg.gd(lr), "steps": 20, **changed})


def kernel_of(run):
    limit = lg.solve(run)
    return limit, np.concatenate([limit.ntk, limit.ntk_test])


def descended(run, kernel, f0):
    """Return training at constant kernel step by step, (time, row)."""
    f, v, out = f0.copy(), np.zeros(P), [f0]
    for step, rate in enumerate(run.rates):
        batch = np.arange(P) if run.batches is None else run.batches[step]
        push = np.zeros(P)
        push[batch] = (Y[:P] - f[:P])[batch] / len(batch)
        v = getattr(run.optimizer, "momentum", 0.0) * v + rate * push
        f = f + kernel @ v
        out.append(f)
    return np.array(out)


@pytest.mark.parametrize(
    "optimizer", [lg.gd(0.7, momentum=0.5), lg.optimizers.sgd(0.7, batch_size=2, momentum=0.3)]
)
def test_orders_are_derivatives_of_training_at_a_constant_kernel(optimizer):
    run = run_of(lg.mlp(1, "tanh"), optimizer=optimizer)
    kernel = kernel_of(run)[1]
    deviation, f0, e = 0.2 * RNG.standard_normal((6, P)), RNG.standard_normal(6), 1e-4
    found = by_orders(run, kernel, deviation[None], f0[None], Y[:P])[:, :, 0]
    low, middle, high = (descended(run, kernel + s * e * deviation, f0) for s in (-1, 0, 1))
    np.testing.assert_allclose(found[0], middle, atol=1e-13)
    np.testing.assert_allclose(found[1], (high - low) / (2 * e), atol=1e-6)
    np.testing.assert_allclose(found[2], (high + low - 2 * middle) / (2 * e**2), atol=1e-6)


@pytest.mark.slow
def test_training_samples_alone_have_the_same_mean():
    theory = Theory(width=64, network_width=16, networks=64)
    net = lg.serial(lg.Dense(), lg.Residual(lg.Activation("tanh"), lg.Dense()), lg.Dense())
    both, alone = (
        lg.solve(run_of(net, 0.3, data=data, steps=2), theory=theory)
        for data in (DATA, lg.Dataset(X[:P], Y[:P]))
    )
    assert alone.f_test.shape[1] == 0
    np.testing.assert_allclose(alone.f_train_shift, both.f_train_shift, atol=1e-10)


def test_gradient_flow_is_descent_of_small_steps():
    times, steps = [0.5, 2.0], 4000
    run = run_of(lg.mlp(1, "tanh"), optimizer=lg.gradient_flow(1.0), steps=None, times=times)
    kernel = kernel_of(run)[1]
    deviation, f0 = 0.2 * RNG.standard_normal((3, 6, P)), RNG.standard_normal((3, 6))
    found = by_orders(run, kernel, deviation, f0, Y[:P])
    # Descent of steps h and h/2, extrapolated.
    fine, finer = (
        by_orders(run_of(run.net, 2.0 / n, steps=n), kernel, deviation, f0, Y[:P])[:, [n // 4, n]]
        for n in (steps, 2 * steps)
    )
    np.testing.assert_allclose(found[:, 1:], 2 * finer - fine, atol=2e-6)


@pytest.mark.parametrize("kinked", [False, True])
def test_powers_of_the_width(kinked):
    a, b, kernels = RNG.standard_normal((3, 2, 5))
    widths = (64, 16)
    moved = np.stack([kinked * a * m**-0.5 + b / m for m in widths])
    still = np.zeros_like(moved)
    shift = Shift(kinked, widths, kernels, np.zeros_like(a), moved, still)
    for n in (30.0, 1000.0):
        total, error, of_kernels = shift.at(n)
        np.testing.assert_allclose(of_kernels, kernels / n)
        np.testing.assert_allclose(total, kinked * a * n**-0.5 + (b + kernels) / n)
        assert not error.any()
    if not kinked:
        assert shift.next_order < 1e-12
        next_order = moved + np.array([1 / 64**2, 1 / 16**2])[:, None, None] * a
        whole = np.linalg.norm(a) / 64 / np.linalg.norm(kernels + 64 * next_order[0])
        assert shift._replace(of_features=next_order).next_order == pytest.approx(whole)


def scores(run, width, count, found, key=9):
    """Return z-scores of the mean over networks, less what their initial outputs explain."""
    limit, kernel = kernel_of(run)
    nets = lg.train(run, width, count, key)
    f = np.concatenate([nets.f_train, nets.f_test], 2)
    still = np.zeros((count, 6, P))
    lazy = by_orders(run, kernel, still, f[:, 0], Y[:P])[0].swapaxes(0, 1)
    odd = by_orders(run, kernel, still[:1], 0 * f[:1, 0], Y[:P])[0].swapaxes(0, 1)
    samples = (f - lazy + odd)[:, 1:]
    mean = np.concatenate([found.f_train, found.f_test], 1)[1:]
    error = np.concatenate([found.f_train_error, found.f_test_error], 1)[1:]
    start = np.concatenate([limit.f_train, limit.f_test], 1)[1:]
    spread = np.hypot(samples.std(0, ddof=1) / count**0.5, error)
    return (samples.mean(0) - mean) / spread, (samples.mean(0) - start) / spread


IMAGE = RNG.standard_normal((6, 5, 2))
CONVOLUTION = lg.serial(
    lg.Conv((3,), padding="SAME"), lg.Activation("tanh"), lg.GlobalAvgPool(), lg.Dense()
)
CASES = {
    "deep": (run_of(lg.mlp(2, "tanh", weight_std=1.2)), 128),
    "kinked": (run_of(lg.mlp(2, "relu", weight_std=2**0.5), 0.25), 128),
    "kinked, one hidden layer": (run_of(lg.mlp(1, "relu", weight_std=2**0.5), 0.4), 1024),
    "residual": (run_of(lg.residual_mlp(2, "tanh"), 0.6), 128),
    "momentum": (run_of(lg.mlp(2, "tanh"), optimizer=lg.gd(0.8, momentum=0.5)), 128),
    "convolution": (
        run_of(CONVOLUTION, 2.0, lg.Dataset(IMAGE[:P], Y[:P], IMAGE[P:], Y[P:])), 128
    ),
    "flow": (
        run_of(lg.mlp(2, "erf"), optimizer=lg.gradient_flow(4.0), steps=None, times=[1.0, 4.0]),
        128,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_means_of_networks(case):
    run, width = CASES[case]
    # Of kinks the two widths are fitted, and what is left is of order m^(-3/2).
    widths = {"networks": 800, "network_width": 256} if "kinked" in case else {"networks": 1000}
    found = lg.solve(run, theory=Theory(width=width, **widths))
    z, without = scores(run, width, 2000, found)
    assert np.abs(z).max() < 4
    assert np.sqrt((z**2).mean()) < 1.6
    assert np.abs(without).max() > 4  # the limit alone is far off


@pytest.mark.slow
def test_networks_agree_with_averages_over_neurons():
    # One smooth hidden layer has both routes.
    run = run_of(
        lg.mlp(1, "erf", weight_std=1.2),
        optimizer=lg.gradient_flow(4.0), steps=None, times=[0.5, 2.0, 8.0],
    )  # fmt: skip
    exact = lg.solve(run, theory=Theory(width=100))
    key, limit = jax.random.key(0), lg.solve(run)
    shift = shift_of(run, limit, 64, 2000, 2**13, key, lambda done, total: None)
    total, error, of_kernels = shift.at(100.0)
    wanted = np.concatenate([exact.f_train_shift, exact.f_test_shift], 1)
    theirs = np.concatenate([exact.f_train_error, exact.f_test_error], 1)
    z = ((total - wanted) / np.maximum(np.hypot(error, theirs), 1e-12))[1:]
    assert np.abs(z).max() < 4
    kernels = np.concatenate([exact.f_train_of_kernels, exact.f_test_of_kernels], 1)
    # 8192 sampled fluctuations have errors of 2 to 4 % of the largest entry.
    np.testing.assert_allclose(of_kernels, kernels, atol=0.12 * np.abs(kernels).max())


def switching(run, kernel, prior, draws, patterns=64):
    """Return the n^{−1/2} coefficient of the mean of one hidden relu layer, (time, row), by draws.

    Neurons whose preactivation h_ν is within n^{−1/2} of 0 have u = √n h_ν, moved in a step by
    w(A + B·[u > 0]), with A from the other samples on which they are active, and B = κΔ_νK_νν.
    Lengths of u are proportional to |w|, and E|w|³ = 2(2/π)^½. The outputs' excess over training
    with the initial φ' is summed over ν, at which h has the density p_ν(0), and drives f.
    """
    rng, std, kappa = np.random.default_rng(1), 2**0.5, run.optimizer.lr / P
    K0, rows = std**2 * X @ X.T / X.shape[1], len(X)
    f = (np.linalg.cholesky(prior[:P, :P]) @ rng.standard_normal((P, draws // 2))).T
    f, pushes = np.concatenate([f, -f]), []
    for _ in range(run.steps + 1):
        pushes.append(kappa * std * (Y[:P] - f))
        f = f + kappa * (Y[:P] - f) @ kernel[:P].T
    pushes = np.array(pushes)
    excess = np.zeros((run.steps + 1, draws, rows))
    for v in range(P):
        given = K0 - np.outer(K0[:, v], K0[v]) / K0[v, v]
        values, vectors = np.linalg.eigh(given)
        normal = rng.standard_normal((draws, patterns, rows))
        active = normal @ (vectors * np.sqrt(np.maximum(values, 0))).T > 0
        active[..., v] = False
        A = np.einsum("tdn,dpn,n->tdp", pushes, active[..., :P], K0[v, :P])
        B = pushes[:, :, v, None] * K0[v, v]
        reach = (np.abs(A) + np.abs(B)).sum(0)
        weight = 2 * reach / np.sqrt(2 * np.pi * K0[v, v]) * (2 / np.pi) ** 0.5
        for sign in (1, -1):
            start = reach * (2 * rng.random(reach.shape) - 1)
            on, u, linear, more = start > 0, start.copy(), 0 * start, 0 * start
            for t in range(run.steps + 1):
                own = np.maximum(u, 0) - np.maximum(start, 0) - on * linear
                others = (weight * more)[..., None] * active * K0[:, v]
                excess[t] += std * others.mean(1)
                excess[t, :, v] += std * sign * (weight * own).mean(1)
                switched = (u > 0) * 1.0 - on
                more = more + pushes[t, :, v, None] * switched
                linear = linear + sign * (A[t] + on * B[t])
                u = u + sign * (A[t] + (u > 0) * B[t])
    deviation, out = np.zeros((draws, rows)), []
    for more in np.diff(excess, axis=0):
        deviation = deviation - kappa * deviation[:, :P] @ kernel.T + more
        out.append(deviation)
    out = np.array(out)
    return out.mean(1), out.std(1) / draws**0.5


@pytest.mark.slow
def test_relu_leaves_the_limit_by_the_root_of_the_width():
    run = run_of(lg.mlp(1, "relu", weight_std=2**0.5), 0.3)
    limit, kernel = kernel_of(run)
    prior = np.asarray(lg.nngp_kernel(run.net, X))
    wanted, error = switching(run, kernel, prior, 2000)
    shift = shift_of(run, limit, 1024, 1500, 2, jax.random.key(3), lambda done, total: None)
    # The coefficient of n^{−1/2} from both widths.
    m = np.array(shift.widths, float)
    weights = np.linalg.inv(np.stack([m**-0.5, 1 / m], 1))[0]
    seen = np.tensordot(weights, shift.of_features, 1)[1:]
    noise = np.sqrt(np.tensordot(weights**2, shift.of_features_error**2, 1))[1:]
    z = (seen - wanted) / np.hypot(noise, error)
    assert np.abs(z).max() < 4.5
    assert np.sqrt((z**2).mean()) < 1.6
    assert np.abs(seen / np.hypot(noise, error)).max() > 6
