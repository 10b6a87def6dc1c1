"""The kernel limit, against explicit iterations in function space written here in NumPy."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.theories import KernelLimit

RNG = np.random.default_rng(5)
P, M = 6, 3
X, XT = RNG.standard_normal((P, 4)), RNG.standard_normal((M, 4))
Y, YT = RNG.standard_normal(P), RNG.standard_normal(M)
NET = lg.mlp(2, "erf", weight_std=1.5, bias_std=0.3)
SIGNS, CLASSES = np.sign(Y), np.array([0, 1, 2, 0, 1, 2])


def make(optimizer, y=Y, loss="mse", x=X, param=None, net=NET, **length):
    y_test = {"f": np.resize(YT if loss != "logistic" else np.sign(YT), (M, *y.shape[1:]))}.get(
        y.dtype.kind, np.array([0, 1, 2])
    )
    data = lg.Dataset(x, y, XT.astype(x.dtype), y_test)
    return lg.Run(net, param or lg.ntk(), data, loss, optimizer, **length)


def kernels(x=X, net=NET):
    nngp, ntk = lg.kernel(net, np.concatenate([x, XT]))
    return nngp, ntk[:, : len(x)]  # rows: training, then test samples


def iterate(run, ntk, f0, residual):
    """Heavy ball on f = f0 + Θα for one network, the slow way; (step, sample, …)."""
    f, velocity, out = f0.copy(), np.zeros_like(f0), [f0.copy()]
    beta, lr = getattr(run.optimizer, "momentum", 0.0), run.optimizer.lr
    for s in range(run.steps):
        batch = np.arange(P) if run.batches is None else run.batches[s]
        push = lr / len(batch) * ntk[:, batch] @ residual(f[:P], run)[batch]
        velocity = beta * velocity + push
        f = f + velocity
        out.append(f.copy())
    return np.array(out)


def squared(f, run):
    return run.data.y_train - f


def logistic(f, run):
    y = run.data.y_train
    return y / (1 + np.exp(y * f))


def cross_entropy(f, run):
    p = np.exp(f - f.max(-1, keepdims=True))
    return np.eye(3)[run.data.y_train] - p / p.sum(-1, keepdims=True)


DESCENTS = {
    "gd": lg.gd(0.3),
    "momentum": lg.gd(0.2, momentum=0.8),
    "sgd": lg.sgd(0.2, 2, momentum=0.5),
}


@pytest.mark.parametrize(
    ("name", "outputs"), [("gd", ()), ("momentum", (2,)), ("sgd", ()), ("sgd", (2,))]
)
def test_squared_error_against_iteration(name, outputs):
    y = RNG.standard_normal((P, *outputs))
    run = make(DESCENTS[name], y, steps=40)
    limit = lg.solve(run, covariance=True)
    nngp, ntk = kernels()
    want = iterate(run, ntk, np.zeros((P + M, *outputs)), squared)
    np.testing.assert_allclose(limit.f_train, want[:, :P], atol=1e-11)
    np.testing.assert_allclose(limit.f_test, want[:, P:], atol=1e-11)
    np.testing.assert_allclose(limit.ntk, ntk[:P], rtol=1e-14)
    np.testing.assert_allclose(limit.ntk_test, ntk[P:], rtol=1e-14)
    np.testing.assert_allclose(limit.nngp, nngp[:P, :P], rtol=1e-14)

    # f_t is affine in f_0: the linear part is the iteration with targets 0, applied to e_i.
    zero = make(DESCENTS[name], np.zeros(P), steps=40)
    A = np.stack([iterate(zero, ntk, e, squared) for e in np.eye(P + M)], axis=-1)
    covariance = A @ nngp @ A.transpose(0, 2, 1)
    np.testing.assert_allclose(limit.f_train_covariance, covariance[:, :P, :P], atol=1e-11)
    np.testing.assert_allclose(limit.f_test_covariance, covariance[:, P:, P:], atol=1e-11)
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    std = np.broadcast_to(std.reshape(*std.shape, *(1,) * len(outputs)), want.shape)
    np.testing.assert_allclose(limit.f_train_std, std[:, :P], atol=1e-7)
    np.testing.assert_allclose(limit.f_test_std, std[:, P:], atol=1e-7)
    plain = lg.solve(run)
    np.testing.assert_allclose(plain.f_test_std, limit.f_test_std, atol=1e-7)

    f0 = RNG.standard_normal((3, P + M, *outputs))
    train, test = KernelLimit().condition(limit, f0[:, :P], f0[:, P:])
    for seed in range(3):
        want = iterate(run, ntk, f0[seed], squared)
        np.testing.assert_allclose(train[seed], want[:, :P], atol=1e-11)
        np.testing.assert_allclose(test[seed], want[:, P:], atol=1e-11)


def test_flow_is_the_limit_of_small_steps():
    times = np.array([0.5, 2.0, 8.0])
    flow = lg.solve(make(lg.gradient_flow(), times=times))
    error = []
    for lr in (0.02, 0.01):
        steps = lg.solve(make(lg.gd(lr), steps=round(8 / lr)))
        at = np.round(times / lr).astype(int)
        np.testing.assert_allclose(steps.time[at], times)
        error.append(np.abs(steps.f_test[at] - flow.f_test[1:]).max())
    assert 1.8 < error[0] / error[1] < 2.2
    assert error[1] < 1e-2
    doubled = lg.solve(make(lg.gradient_flow(2.0), times=times / 2))
    np.testing.assert_allclose(doubled.f_train, flow.f_train, atol=1e-13)
    np.testing.assert_allclose(doubled.f_test_std, flow.f_test_std, atol=1e-13)


def test_flow_at_late_times_is_kernel_regression():
    limit = lg.solve(make(lg.gradient_flow(), times=[1e8]))
    nngp, ntk = kernels()
    np.testing.assert_allclose(limit.f_train[-1], Y, atol=1e-9)
    predictor = ntk[P:] @ np.linalg.inv(ntk[:P])
    np.testing.assert_allclose(limit.f_test[-1], predictor @ Y, atol=1e-9)
    rest = np.hstack([-predictor, np.eye(M)])
    std = np.sqrt(np.diag(rest @ nngp @ rest.T))
    np.testing.assert_allclose(limit.f_test_std[-1], std, rtol=1e-7)


@pytest.mark.parametrize("optimizer", [lg.gd(0.5), lg.gradient_flow()])
def test_equal_rows(optimizer):
    # Two equal rows with different labels: the mean label is learned, the difference never.
    x, y = np.concatenate([X, X[:1]]), np.append(Y, Y[0] + 2.0)
    length = {"steps": 400} if isinstance(optimizer, type(lg.gd(1))) else {"times": [1.0, 1e9]}
    limit = lg.solve(make(optimizer, y, x=x, **length))
    for name in ("f_train", "f_test", "f_train_std", "f_test_std"):
        assert np.isfinite(getattr(limit, name)).all()
    np.testing.assert_allclose(limit.f_train[:, 0], limit.f_train[:, -1], atol=1e-6)
    if "times" in length:
        np.testing.assert_allclose(limit.f_train[-1, 0], Y[0] + 1.0, atol=1e-6)
    assert "equal" in limit.notes[0]


def test_initial_outputs_are_the_gaussian_process():
    limit = lg.solve(make(lg.gd(0.1), steps=1))
    nngp, _ = kernels()
    std = np.sqrt(np.diag(nngp))
    np.testing.assert_allclose(limit.f_train_std[0], std[:P], rtol=1e-10)
    np.testing.assert_allclose(limit.f_test_std[0], std[P:], rtol=1e-10)
    assert not limit.f_train[0].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y", "residual", "name"),
    [
        ("logistic", SIGNS, logistic, "momentum"),
        ("cross_entropy", CLASSES, cross_entropy, "sgd"),
    ],
)
def test_other_losses_against_iteration(loss, y, residual, name):
    run = make(DESCENTS[name], y, loss, steps=25)
    limit = lg.solve(run, draws=16, key=1)
    out = run.output_shape
    nngp, ntk = kernels()
    f0 = RNG.standard_normal((2, P + M, *out))
    train, test = KernelLimit().condition(limit, f0[:, :P], f0[:, P:])
    for seed in range(2):
        want = iterate(run, ntk, f0[seed], residual)
        np.testing.assert_allclose(train[seed], want[:, :P], atol=1e-10)
        np.testing.assert_allclose(test[seed], want[:, P:], atol=1e-10)

    # The mean over draws against draws of our own: within the two standard errors.
    root = np.linalg.cholesky(nngp)
    draws = np.einsum("ij,sj...->si...", root, RNG.standard_normal((400, P + M, *out)))
    f = np.concatenate(KernelLimit().condition(limit, draws[:, :P], draws[:, P:]), axis=2)
    ours = np.concatenate([limit.f_train, limit.f_test], axis=1)
    error = np.concatenate([limit.f_train_error, limit.f_test_error], axis=1)
    z = (ours - f.mean(0)) / np.sqrt(error**2 + f.var(0) / 400)
    assert np.abs(z[[0, 5, 25]]).max() < 4.5
    assert 0.5 < (limit.f_train_std[25] / f.std(0)[25, :P]).mean() < 1.5


@pytest.mark.slow
def test_other_losses_flow_against_small_steps():
    flow = lg.solve(make(lg.gradient_flow(), SIGNS, "logistic", times=[1.0, 3.0]), draws=8)
    coarse, fine = (
        lg.solve(make(lg.gd(3 / n), SIGNS, "logistic", steps=n), draws=8) for n in (300, 600)
    )
    extrapolated = 2 * fine.f_test[-1] - coarse.f_test[-1]
    np.testing.assert_allclose(flow.f_test[-1], extrapolated, atol=2e-5)
    np.testing.assert_allclose(flow.f_test_std[-1], fine.f_test_std[-1], atol=2e-3)


def test_monte_carlo_error_is_honest():
    run = make(lg.gd(0.5), SIGNS, "logistic", steps=10)
    limits = [lg.solve(run, draws=32, key=k) for k in range(16)]
    means = np.array([limit.f_train[-1] for limit in limits])
    errors = np.array([limit.f_train_error[-1] for limit in limits])
    ratio = means.std(0, ddof=1).mean() / np.sqrt((errors**2).mean(0)).mean()
    assert 0.7 < ratio < 1.4
    again = lg.solve(run, draws=32, key=0)
    np.testing.assert_array_equal(again.f_train, limits[0].f_train)


def test_draws_are_made_until_the_wanted_error_is_reached():
    run = make(lg.gd(0.3), SIGNS, "logistic", steps=3)
    rough, fine = lg.solve(run, draws=16), lg.solve(run, draws=16, rtol=5e-3)

    def relative(limit):
        squares = [
            (np.sum(getattr(limit, f"f_{on}_error") ** 2), np.sum(getattr(limit, f"f_{on}") ** 2))
            for on in ("train", "test")
        ]
        above, below = np.sum(squares, 0)
        return np.sqrt(above / below)

    assert relative(fine) <= 5e-3 < relative(rough)
    error = np.hypot(rough.f_train_error, fine.f_train_error)
    assert (np.abs(rough.f_train - fine.f_train)[1:] < 5 * error[1:]).all()
    exact = make(lg.gd(0.3), steps=3)
    assert (lg.solve(exact, rtol=1e-3).f_train == lg.solve(exact).f_train).all()


@pytest.mark.parametrize(("beta", "optimizer"), [(0.0, lg.gd), (0.6, lg.gd)])
def test_critical_learning_rate(beta, optimizer):
    _, ntk = kernels()
    critical = 2 * (1 + beta) * P / np.linalg.eigvalsh(ntk[:P])[-1]
    below = lg.solve(make(optimizer(0.99 * critical, momentum=beta), steps=3000))
    assert below.status == "ok"
    assert below.loss_train[-1] < below.loss_train[0]
    run = make(optimizer(1.02 * critical, momentum=beta), steps=3000)
    with pytest.raises(NumericalFailure, match=f"{critical:.4g}") as caught:
        lg.solve(run)
    assert "critical learning rate" in str(caught.value)
    assert caught.value.result.status == "diverged"
    limit = lg.solve(run, throw=False)
    assert limit.status == "diverged"
    assert limit.loss_train[-1] > 1e3


@pytest.mark.parametrize("options", [{}, {"loss": "logistic"}])
@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [("relu", 1e160, float), ("erf", 1e160, float), ("relu", 1e25, np.float32)],
)
def test_kernels_that_overflow(name, size, dtype, options):
    x, y = (size * np.eye(3)).astype(dtype), np.array([1.0, -1.0, 1.0], dtype)
    data = lg.Dataset(x, y, x[:1], y[:1])
    run = lg.Run(lg.mlp(1, name), lg.ntk(), data, optimizer=lg.gd(0.1), steps=2, **options)
    with pytest.raises(NumericalFailure, match="Scale the inputs") as caught:
        lg.solve(run)
    assert caught.value.result.status == "overflow"
    assert lg.solve(run, throw=False).status == "overflow"


def test_minibatches_that_diverge():
    with pytest.raises(NumericalFailure, match="critical learning rate"):
        lg.solve(make(lg.sgd(50.0, 2), steps=200))


def test_between_the_kernel_and_the_mean_field_limit():
    # γ = N^(1/4): outputs start from 0 and follow the same kernel.
    half = "1/2"
    param = lg.abc(a=(0, half, half), b=0, c=0, d="1/4", gamma=0.7)
    run = make(lg.gd(0.3), steps=20, param=param)
    limit = lg.solve(run)
    np.testing.assert_allclose(
        limit.f_train, lg.solve(make(lg.gd(0.3), steps=20)).f_train, rtol=1e-12
    )
    assert not limit.f_test_std.any()
    assert "start from 0" in limit.reason
    logistic_limit = lg.solve(make(lg.gd(0.3), SIGNS, "logistic", steps=5, param=param))
    assert not logistic_limit.f_train_error.any()


def test_float32_runs():
    limit = lg.solve(make(lg.gd(0.3), Y.astype("f"), x=X.astype("f"), steps=30))
    double = lg.solve(make(lg.gd(0.3), steps=30))
    assert limit.f_train.dtype == limit.ntk.dtype == np.float32
    np.testing.assert_allclose(limit.f_test, double.f_test, atol=1e-5)


def test_without_test_samples():
    data = lg.Dataset(X, Y)
    for optimizer, length in ((lg.gd(0.3), {"steps": 5}), (lg.sgd(0.3, 2), {"steps": 5})):
        limit = lg.solve(lg.Run(NET, lg.ntk(), data, "mse", optimizer, **length))
        assert limit.f_test.shape == limit.f_test_std.shape == (6, 0)
    sign = lg.Run(NET, lg.ntk(), lg.Dataset(X, SIGNS), "logistic", lg.gd(0.3), steps=5)
    limit = lg.solve(sign, draws=4)
    train, test = KernelLimit().condition(limit, np.zeros((2, P)), np.zeros((2, 0)))
    assert train.shape == (2, 6, P)
    assert test.shape == (2, 6, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"param": lg.mean_field()}, "features move"),
        ({"optimizer": lg.gd(0.1, weight_decay=0.1)}, "weight decay shrinks the initial weights"),
        ({"optimizer": lg.adam(0.1)}, "Adam has no implemented"),
        ({"param": lg.standard()}, "grows as N"),
        ({"net": lg.serial(lg.Dense(), lg.Activation("erf"), lg.Dense(), lg.Activation("erf"))},
         "does not end in a Dense"),
    ],
)  # fmt: skip
def test_what_is_missing(change, words):
    run = make(**({"optimizer": lg.gd(0.1), "steps": 2} | change))
    with pytest.raises(NoTheory, match=words):
        KernelLimit.covers(run)


def test_bad_options(tmp_path):
    run = make(lg.gd(0.1), SIGNS, "logistic", steps=2)
    with pytest.raises(InvalidInput, match="draws: wanted an integer ≥ 4"):
        lg.solve(run, draws=1)
    with pytest.raises(InvalidInput, match="covariance: only for the mse"):
        lg.solve(run, covariance=True)
    with pytest.raises(InvalidInput, match="key: wanted"):
        lg.solve(run, key="0")
    limit = lg.solve(run, draws=4)
    with pytest.raises(InvalidInput, match=r"f0_test: wanted shape \(seed, 3\), got \(2, 4\)"):
        KernelLimit().condition(limit, np.zeros((2, P)), np.zeros((2, 4)))
    with pytest.raises(InvalidInput, match="f0_train: 1 of"):
        KernelLimit().condition(limit, np.where(np.eye(1, P), np.nan, 0.0), np.zeros((1, M)))
    loaded = lg.Trajectory.load(limit.save(tmp_path / "limit.nc"))
    with pytest.raises(InvalidInput, match="loaded from a file"):
        KernelLimit().condition(loaded, np.zeros((2, P)), np.zeros((2, M)))
