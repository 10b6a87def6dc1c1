"""The measure of weights: particle systems, non-Gaussian weights, adaptive optimizers."""

from functools import cache, partial

import numpy as np
import pytest

import largen as lg

RNG = np.random.default_rng(2)
X = RNG.normal(size=(6, 2))
DATA = lg.Dataset(X, np.sin(2 * X[:, 0]), X[:3] + 0.3, np.sin(2 * X[:3, 0]))
solve = partial(lg.solve, theory="mean field, one hidden layer")


def run_of(param=None, optimizer=None, *, net=None, times=None, data=DATA):
    steps = None if times is not None else 6
    optimizer = optimizer or lg.gd(0.5)
    net = net or lg.mlp(1, "tanh")
    return lg.Run(
        net, param or lg.mean_field(2.0), data, optimizer=optimizer, steps=steps, times=times
    )


def z_scores(limit, nets):
    """Ensemble means against a limit, in standard errors of both."""
    seeds = nets.seeds
    score = []
    for side in ("train", "test"):
        f, g = getattr(nets, f"f_{side}"), getattr(limit, f"f_{side}")
        error = np.hypot(f.std(0, ddof=1) / np.sqrt(seeds), getattr(limit, f"f_{side}_error"))
        score.append(((f.mean(0) - g) / error)[1:].ravel())
    return np.concatenate(score)


@cache
def exact(optimizer, times=None):
    """The limit by many neurons, of other keys than those that are held against it."""
    run = run_of(optimizer=optimizer, times=times)
    return solve(run, method="particles", particles=2**14, key=7, record_at=[])


def errors_of(count, sampling, optimizer, times=None):
    """The error of test outputs that the replicates show, and the true one."""
    limit = solve(
        run_of(optimizer=optimizer, times=times),
        method="particles",
        particles=count,
        sampling=sampling,
        record_at=[],
    )
    gaps = limit.f_test_error, limit.f_test - exact(optimizer, times).f_test
    return [np.sqrt(np.mean(gap[1:] ** 2)) for gap in gaps]


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [lg.gd(0.5), pytest.param(lg.gradient_flow(), marks=pytest.mark.slow)],
    ids=["gd", "flow"],
)
def test_particle_systems_converge(optimizer):
    """004, Theorem 1, and 002, §4.1: S^(−1/2) for independent particles, faster for quasi-random.

    The limit itself is one of 16384 quasi-random neurons, of other draws, with errors below 1e-4.
    """
    times = None if isinstance(optimizer, type(lg.gd(1.0))) else (0.5, 1.5, 3.0)
    counts = np.array([32, 128, 512])
    for sampling, low, high in (("finite_width", -0.68, -0.36), ("variance_reduced", -1.4, -0.7)):
        errors = np.array([errors_of(int(n), sampling, optimizer, times) for n in counts])
        slope = np.polyfit(np.log(counts), np.log(errors[:, 0]), 1)[0]
        assert low < slope < high, (sampling, errors)
        assert (errors[:, 1] < 3 * errors[:, 0]).all(), (sampling, errors)


def test_independent_particles_are_a_network():
    """S independent particles are distributed as a network of width S, with the same variance."""
    run = run_of()
    one = solve(run, method="particles", particles=64, sampling="finite_width", record_at=[])
    nets = lg.train(run, width=64, seeds=256, key=0)
    ratio = one.f_test_error**2 * 8 / nets.f_test.var(0, ddof=1)
    assert 0.5 < np.mean(ratio) < 1.7  # 8 replicates, correlated entries


@pytest.mark.slow
@pytest.mark.parametrize(
    "distribution",
    ["sign", pytest.param({"input": "truncated", "output": "uniform"}, marks=pytest.mark.slow)],
)
def test_distributions_of_single_weights(distribution):
    """Two inputs: the distribution matters, and networks go where its own limit is."""
    param = lg.mean_field(2.0).with_distribution(distribution)
    limit = lg.solve(run_of(param), rtol=1e-3)
    assert "particles" in limit.notes[0] or "neurons" in limit.notes[0]
    nets = lg.train(run_of(param), width=1024, seeds=64, key=1)
    assert np.mean(z_scores(limit, nets) ** 2) < 2.5
    gaussian = exact(lg.gd(0.5))
    assert np.mean(z_scores(gaussian, nets) ** 2) > 5


ADAPTIVE = {
    "rmsprop": (
        lg.optimizers.rmsprop(0.03, beta=0.9, eps=0.05),
        lg.mean_field(2.0),
        lg.mlp(1, "tanh"),
    ),
    "rmsprop, μP, uniform, biases, decay": (
        lg.optimizers.rmsprop(0.03, beta=0.8, eps=0.05, weight_decay=0.5, batch_size=3),
        lg.mup(1.5).with_distribution("uniform"),
        lg.mlp(1, "relu", bias_std=0.4),
    ),
    "adam": (lg.adam(0.05, beta1=0.7, beta2=0.9), lg.mean_field(), lg.mlp(1, "tanh")),
    "rmsprop from a reference": (
        lg.optimizers.rmsprop(
            0.001
        ),  # much more, and networks diverge from each other step by step
        lg.scaling.from_reference(
            width=64,
            scaling="mean field",
            distribution="uniform",
            lr={"input": 1.0, "output": 0.3},
        ),
        lg.mlp(1, "gelu", weight_std=3**-0.5),
    ),
}


QUICK = "rmsprop, μP, uniform, biases, decay"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c == QUICK else pytest.mark.slow) for c in ADAPTIVE]
)
def test_adaptive_optimizers(case):
    optimizer, param, net = ADAPTIVE[case]
    run = run_of(param, optimizer, net=net)
    limit = lg.solve(run, rtol=2e-3)
    assert limit.theory == "mean field, one hidden layer"
    assert "ntk" not in limit
    assert np.abs(limit.f_train[-1]).max() > 0.1
    nets = lg.train(run, width=2048, seeds=32, key=2)
    scores = z_scores(limit, nets)
    assert np.mean(scores**2) < 2.5, scores
    apart = np.abs(nets.f_train.mean(0) - limit.f_train).max()
    assert apart < 0.1 * np.abs(limit.f_train).max()


@pytest.mark.slow
def test_first_step_of_rmsprop_is_a_sign():
    """θ̂ moves by η₀/√(1 − β) against the sign of its gradient; with f = 0 by hand, on a grid."""
    run = run_of(
        lg.mean_field(1.0), lg.optimizers.rmsprop(0.1, beta=0.75, eps=0.0), net=lg.mlp(1, "linear")
    )
    z = (np.arange(400) + 0.5) / 400
    from scipy.special import ndtri

    w1, w2, a = np.meshgrid(*[ndtri(z[::4])] * 3, indexing="ij")
    x, y = X / np.sqrt(2), DATA.y_train
    pull = x.T @ y  # both gradients are sums over samples of the residual y
    step = 0.1 / np.sqrt(0.25)
    moved = [w + step * np.sign(a * p) for w, p in zip((w1, w2), pull, strict=True)]
    out = a + step * np.sign(w1 * pull[0] + w2 * pull[1])
    by_hand = x @ np.array([(w * out).mean() for w in moved])
    limit = solve(run, rtol=5e-4)
    # The grid's own error: its Gaussian has a variance 0.7 % too small.
    np.testing.assert_allclose(limit.f_train[1], by_hand, rtol=0.01, atol=1e-3)
