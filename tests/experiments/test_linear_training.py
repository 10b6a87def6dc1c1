"""Linear networks on many samples: the closed equations are training, step by step."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(0)
NET = lg.mlp(1, "linear", weight_std=1.3)
UNEVEN = lg.serial(lg.Dense(weight_std=0.8, width_ratio=2), lg.Dense(weight_std=1.1))
X, XT = RNG.standard_normal((6, 4)), RNG.standard_normal((3, 4))
Y, YT = RNG.standard_normal((6, 3)), RNG.standard_normal((3, 3))
CLASSES = lg.Dataset(X, np.array([0, 1, 2, 1, 0, 2]), XT, np.array([1, 0, 2]))


def run_of(param, optimizer, outputs=None, net=NET, data=None, **options):
    chosen = slice(None) if outputs else 0
    data = data or lg.Dataset(X, Y[:, chosen], XT, YT[:, chosen])
    return lg.Run(net, param, data, optimizer=optimizer, steps=40, **options)


RUNS = {
    "catapult": run_of(lg.ntk(), lg.gd(1.8)),
    "minibatches": run_of(lg.ntk(), lg.sgd(0.3, batch_size=2), outputs=3),
    "mean field": run_of(lg.mean_field(0.5), lg.gd(0.5), outputs=3),
    "schedule": run_of(lg.mup(), lg.gd(0.2, schedule=np.linspace(1, 3, 40)), net=UNEVEN),
    "classes": run_of(lg.standard(), lg.gd(0.01), data=CLASSES, loss="cross_entropy"),
}


def start_of(run, width, seed=0):
    network = lg.networks.finite_network(
        run.net, run.param, width=width, inputs=4, outputs=run.outputs
    )
    return network.init(jax.random.fold_in(jax.random.key(0), seed), np.float64)


@pytest.mark.parametrize("name", RUNS)
def test_equations_are_the_training_of_the_same_network(name):
    run = RUNS[name]
    nets = lg.train(run, width=20, seeds=1, key=0, record=["ntk"], record_at=[0, 40])
    found = lg.training.linear_training(run, start_of(run, 20))
    assert found.diverged is None
    for mine in ("f_train", "f_test", "loss_train", "loss_test"):
        assert np.abs(getattr(found, mine) - getattr(nets, mine)[0]).max() < 1e-12
    assert np.abs(found.ntk - nets.ntk[0, -1]).max() < 1e-12 * np.abs(found.ntk).max()
    if name == "catapult":
        assert found.loss_train.max() > 1.5 * found.loss_train[0] > 2 * found.loss_train[-1]
        theirs = [np.linalg.eigvalsh(k)[-1] / 6 for k in nets.ntk[0]]
        np.testing.assert_allclose(found.curvatures[[0, -1]], theirs, rtol=1e-12)


def test_one_sample_is_the_catapult():
    run = run_of(lg.mean_field(0.4), lg.gd(1.1), data=lg.Dataset(X[:1], Y[:1, 0]))
    found, exact = lg.training.linear_training(run), lg.training.catapult(run)
    np.testing.assert_allclose(found.f_train[:, 0], exact.outputs, rtol=1e-12)
    np.testing.assert_allclose(found.curvatures, exact.kernels, rtol=1e-12)


def test_infinite_width_is_the_limit_of_the_theories():
    for param in (lg.ntk(), lg.mean_field(0.8)):
        run = run_of(param, lg.gd(0.3))
        limit = lg.solve(run)
        found = lg.training.linear_training(run)
        np.testing.assert_allclose(found.f_test, limit.f_test, atol=1e-6)
        wide = lg.training.linear_training(run, width=10**9, key=1)
        if param != lg.ntk():
            np.testing.assert_allclose(wide.f_test, found.f_test, atol=1e-3)


@pytest.mark.slow
def test_a_drawn_start_has_the_moments_of_networks():
    # n below and above the dimension of the Gram matrix.
    run = run_of(lg.ntk(), lg.gd(1e-13)).with_changes(steps=1)
    K = lg.nngp_kernel(run.net, X)
    for width in (2, 30):
        draws = [lg.training.linear_training(run, width=width, key=k) for k in range(400)]
        f0 = np.array([d.f_train[0] for d in draws])
        square = np.einsum("sa,sb->sab", f0, f0)
        z = (square.mean(0) - K) / (square.std(0) / 20)
        assert np.abs(z).max() < 4.5
        # A + KB of one network: mean 2K, variance of each entry by the two Wishart laws.
        theta = np.array([d.ntk for d in draws])
        z = (theta.mean(0) - 2 * K) / (theta.std(0) / 20)
        assert np.abs(z).max() < 4.5
        A = np.diagonal(theta, axis1=1, axis2=2)
        ratio = A.var(0, ddof=1) / (4 * np.diag(K) ** 2 / width)
        assert np.abs(ratio - 1).max() < 0.5


def test_divergence_ends_with_the_last_numbers():
    found = lg.training.linear_training(run_of(lg.ntk(), lg.gd(50.0)), width=10)
    assert found.diverged is not None
    assert np.isfinite(found.f_train).all()
    assert np.isfinite(found.loss_test).all()


@pytest.mark.slow
def test_networks_survive_where_the_equations_do():
    run = run_of(lg.ntk(), lg.gd(1.0)).with_changes(steps=200)
    rates = [2.5, 3.2, 3.6, 4.5]
    nets = lg.training.catapult_diagram(run, [24], rates, seeds=100, quadratic=False)
    mine = lg.training.linear_catapult_diagram(run, [24], rates, seeds=400)
    p, q = mine.survival.values[0, 0], nets.survival.values[0, 0]
    assert 0 < p.min() < p.max() <= 1
    error = np.sqrt(np.maximum(p * (1 - p), 0.01) * (1 / 100 + 1 / 400))
    assert np.abs((p - q) / error).max() < 3.5


def test_what_does_not_close_is_refused():
    with pytest.raises(NoTheory, match="one hidden layer"):
        lg.training.linear_training(run_of(lg.ntk(), lg.gd(0.1), net=lg.mlp(1, "relu")))
    with pytest.raises(NoTheory, match="without momentum"):
        lg.training.linear_training(run_of(lg.ntk(), lg.gd(0.1, momentum=0.5)))
    run = run_of(lg.ntk(), lg.gd(0.1))
    with pytest.raises(InvalidInput, match="params determine"):
        lg.training.linear_training(run, start_of(run, 5), width=5)
    with pytest.raises(NoTheory, match="sign distribution"):
        lg.training.linear_training(run_of(lg.ntk().with_distribution("sign"), lg.gd(0.1)), width=5)
    with pytest.raises(NoTheory, match='loss "mse"'):
        lg.training.linear_catapult_diagram(RUNS["classes"], [4], [1.0])
