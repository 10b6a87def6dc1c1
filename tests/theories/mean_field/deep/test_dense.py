"""Networks whose directions do not compress: the choice, two widths, what memory allows."""

from functools import partial

import numpy as np
import pytest
from tests.theories.mean_field.deep.test_against_networks import CASES, KERNELS, assert_chance

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.estimation import replicates
from largen.theories.mean_field.deep.estimation.width_extrapolation import CURVED, at_infinite_width
from largen.theories.mean_field.deep.method import choose_method, estimated_ranks

solve = partial(lg.solve, theory="mean field, deep")


def run_of(activation, samples=40, steps=60, layers=2):
    rng = np.random.default_rng(2)
    data = lg.Dataset(rng.standard_normal((samples, 8)), rng.standard_normal(samples))
    net = lg.mlp(layers, activation)
    return lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(0.1), steps=steps)


@pytest.mark.parametrize(
    ("activation", "samples", "method"),
    [("relu", 40, "dense"), ("relu", 4, "sweep"), ("tanh", 40, "sweep"), ("linear", 40, "closed")],
)
def test_the_method_follows_from_the_ranks(activation, samples, method):
    run = run_of(activation, samples)
    assert choose_method("auto", posed_by(run).problem, 60, None, False) == method


def test_where_the_slope_jumps_every_step_asks_in_new_directions():
    run = run_of("relu", samples=6, steps=12)
    found = solve(run, method="sweep", replicates=1, particles=512, record_at=[])
    largest = int(found.notes[0].split("ranks up to ")[1].split(")")[0])
    assert 0.9 < largest / max(estimated_ranks(posed_by(run).problem, 12, 512)) < 1.1


def test_what_is_extrapolated_is_what_pays():
    rng, count = np.random.default_rng(0), 4000
    shift = 0.1 * rng.standard_normal(count)
    nothing = np.zeros(count)
    f, error, weight = at_infinite_width((shift, nothing), (2 * shift, nothing))
    # The next order in 1/N is guessed to be a quarter of the first.
    assert weight == pytest.approx(1 / (1 + CURVED**2))
    np.testing.assert_allclose(f, (1 - weight) * shift, atol=1e-12)
    assert np.linalg.norm(f) < np.linalg.norm(error)
    for size in (0.02, 0.1, 0.5):
        noise, rougher = size * rng.standard_normal((2, count))
        constant = np.full(count, size)
        fine, rough = (shift + noise, constant), (2 * shift + rougher, constant)
        f, error, weight = at_infinite_width(fine, rough)
        assert 0.6 < np.linalg.norm(f) / np.linalg.norm(error) < 1.1
        assert np.linalg.norm(f) < 1.02 * np.hypot(np.linalg.norm(shift), np.linalg.norm(noise))
    assert weight < 0.05


@pytest.mark.slow
def test_dense_networks_against_wide_ones():
    run = CASES["relu, minibatch"]
    limit = solve(run, method="dense", particles=512, rtol=8e-3, key=1)
    assert "extrapolated" in limit.notes[0]
    nets = lg.train(
        run, width=1024, seeds=24, key=3, record=("feature_kernel", "gradient_kernel", "ntk")
    )
    for what in ("f_train", "f_test", *KERNELS):
        ours, error = getattr(limit, what), getattr(limit, f"{what}_error")
        assert_chance(ours, error, getattr(nets, what))


@pytest.mark.slow
def test_small_gamma_is_the_kernel_limit():
    run = run_of("tanh", samples=5)
    lazy = lg.Run(run.net, lg.ntk(), run.data, optimizer=run.optimizer, steps=60)
    run = lg.Run(run.net, lg.mean_field(0.01), run.data, optimizer=run.optimizer, steps=60)
    limit, kernel = solve(run, method="dense", particles=512, replicates=2), lg.solve(lazy)
    np.testing.assert_allclose(limit.f_train, kernel.f_train, atol=3e-3)
    np.testing.assert_allclose(limit.ntk[0], kernel.ntk, atol=1e-5)


@pytest.mark.slow
def test_a_memory_budget_that_is_too_small(monkeypatch):
    run = run_of("tanh", samples=5)
    with pytest.raises(InvalidInput, match=r"memory_budget: 2048 neurons .* particles=\d+ would"):
        solve(run, memory_budget=8e6)
    with pytest.raises(InvalidInput, match=r"memory_budget: .* fewest neurons"):
        solve(run, memory_budget=1e5)
    monkeypatch.setattr(replicates, "first_capacities", lambda *_: (128, 128))
    with pytest.raises(NumericalFailure, match=r"directions of features .* method='dense'"):
        solve(run_of("relu", samples=6, steps=30), particles=512, memory_budget=4e6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "closed"}, "closed equations exist for linear"),
        ({"method": "dense", "sampling": "finite_width"}, "sampling"),
        ({"memory_budget": 0.0}, "memory_budget"),
    ],
)
def test_wrong_input(options, words):
    with pytest.raises(InvalidInput, match=words):
        solve(run_of("tanh", samples=5), **options)
