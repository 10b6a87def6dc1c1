"""What does not fit into memory is refused before anything is allocated."""

import resource
import time

import numpy as np
import pytest

import largen as lg
from largen import memory
from largen.errors import OutOfMemory

X = np.ones((3_000_000, 1), np.float32)
NET = lg.mlp(1, "relu")
FEW = lg.Dataset(X[:2], X[:2, 0])


def run(data, steps=2):
    return lg.Run(NET, lg.ntk(), data, optimizer=lg.gd(0.1), steps=steps)


CALLS = {
    "kernel": lambda: lg.kernel(NET, X),
    "kernel of two sets": lambda: lg.kernel(NET, X, X[1:]),
    "nngp": lambda: lg.nngp_kernel(NET, X),
    "ntk_kernel": lambda: lg.ntk_kernel(NET, X),
    "solve": lambda: lg.solve(run(lg.Dataset(X, X[:, 0]))),
    "train, seeds": lambda: lg.train(run(FEW, 10**6), width=4, seeds=10**6, key=0),
    "empirical_ntk": lambda: lg.networks.empirical_ntk(
        NET, lg.networks.init(NET, lg.ntk(), width=2, inputs=1, key=0), X
    ),
    "sample_kernels": lambda: lg.finite_width.sample_kernels(
        NET, X[:4], width=4, draws=2**31 - 1, key=0
    ),
    "sample_tangent_kernels": lambda: lg.finite_width.sample_tangent_kernels(
        NET, X[:4], width=4, draws=2**31 - 1, key=0
    ),
    "covariance_sde": lambda: lg.finite_width.covariance_sde(
        np.eye(4), slopes=(0, -1), time=1.0, draws=10**6, steps=10**6, key=0
    ),
    "monte_carlo_kernel": lambda: lg.networks.monte_carlo_kernel(NET, X, width=4, draws=2, key=0),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_of_terabytes(name):
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(OutOfMemory, match=r"take .* GB, and .* GB are available"):
        CALLS[name]()
    assert time.process_time() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes


Z, T = np.random.default_rng(0).normal(size=(300, 4)), np.ones(300)
SPATIAL = np.random.default_rng(1).normal(size=(20, 8, 4))
HEADS = lg.serial(lg.layers.MultiHeadAttention(draws=8), lg.GlobalAvgPool(), lg.Dense())
TANH = lg.mlp(2, "tanh", bias_std=0.1)


def deep(steps=5):
    data = lg.Dataset(Z[:8], T[:8])
    return lg.Run(TANH, lg.mean_field(), data, optimizer=lg.gd(0.1), steps=steps)


def flat(w, x):
    return x @ w


# In calls that are cheap where there is room, beyond 100 kB.
SMALL = {
    "posterior": lambda tmp: lg.posterior(NET, Z, T, noise=0.1),
    "posterior of trained networks": lambda tmp: lg.posterior(NET, Z, T, kind="ntk", noise=0.1),
    "flow_posterior": lambda tmp: lg.regression.flow_posterior(NET, Z, T, time=1.0),
    "log_likelihood": lambda tmp: lg.regression.log_likelihood(TANH, Z, T, noise=0.1),
    "fit_likelihood": lambda tmp: lg.regression.fit_likelihood(TANH, Z, T),
    "fit_cross_validation": lambda tmp: lg.regression.fit_cross_validation(TANH, Z, T, noise=0.1),
    "estimator": lambda tmp: lg.NNGPRegressor().fit(Z, T),
    "estimator, optimized": lambda tmp: lg.NTKRegressor(optimize=True, noise=0.1).fit(Z, T),
    "tangent_kernel": lambda tmp: lg.networks.ntk_of_function(flat, np.ones(4), Z),
    "nngp_of_function": lambda tmp: lg.networks.nngp_of_function(flat, np.ones(4), Z),
    "kernel_of_stds": lambda tmp: lg.kernels.kernel_of_stds(TANH, Z),
    "stored_kernel": lambda tmp: lg.regression.large.stored_kernel(tmp / "kernel", NET, Z),
    "low_rank_posterior": lambda tmp: lg.regression.large.low_rank_posterior(NET, Z, T, noise=0.1),
    "response_functions": lambda tmp: lg.theories.response_functions(deep(), particles=256),
    "solve_deep_linear": lambda tmp: lg.theories.solve_deep_linear(np.eye(300), T, hidden_layers=2),
    "attention": lambda tmp: lg.kernel(HEADS, SPATIAL),
    "solve, mean field": lambda tmp: lg.solve(deep()),
    "solve, outputs": lambda tmp: lg.solve(run(lg.Dataset(Z, T), 100)),
    "solve, covariances": lambda tmp: lg.solve(
        run(lg.Dataset(Z[:50], T[:50]), 10), covariance=True
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_call_looks_before_it_computes(name, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e5)

    def never(*args, **kwargs):
        pytest.fail("something was computed")

    for place in ("kernels.tiles._fill", "regression.conditioning.factorise"):
        monkeypatch.setattr(f"largen.{place}", never)
    with pytest.raises(OutOfMemory, match=r"take .* GB, and 0.0001 GB are available\. \w+"):
        SMALL[name](tmp_path)
    assert not list(tmp_path.iterdir())


def test_predictions_look_as_well(monkeypatch):
    given = lg.posterior(NET, Z[:5], T[:5], noise=0.1)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e5)
    with pytest.raises(OutOfMemory, match=r"x_test: .* 300 × 305 samples"):
        given.predict(Z, covariance=True)
    assert given.predict(Z[:5]).mean.shape == (5,)


def test_a_replicate_of_one_hidden_layer():
    data = lg.Dataset(Z[:8], T[:8])
    shallow = lg.Run(NET, lg.mean_field(), data, optimizer=lg.gd(0.1), steps=2)
    with pytest.raises(OutOfMemory, match=r"particles: \d+ neurons of a replicate"):
        lg.solve(shallow, method="particles", particles=2**30)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"memory.max": "max", "memory.current": "5"}, 7168),
        ({"memory.max": "1000", "memory.current": "400"}, 600),
        ({"memory/memory.limit_in_bytes": "90", "memory/memory.usage_in_bytes": "100"}, 0),
    ],
)
def test_the_least_of_what_the_system_and_the_group_leave(tmp_path, monkeypatch, files, wanted):
    (tmp_path / "memory").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 7 kB\n")
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available_bytes() == wanted
