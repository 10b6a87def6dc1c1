"""Langevin noise in the mean-field limit: second moments of linear networks, and ensembles."""

from functools import partial

import numpy as np
import pytest
from tests.theories.mean_field.deep.test_against_networks import KERNELS, assert_chance

import largen as lg
from largen.errors import InvalidInput, NoTheory

deep = partial(lg.solve, theory="mean field, deep")

RNG = np.random.default_rng(13)
X, XT = RNG.standard_normal((5, 4)), RNG.standard_normal((2, 4))
Y = np.array([1.0, -1.0, 0.5, 1.0, -1.0])
T, DECAY, LR, GAMMA = 0.2, 0.3, 0.4, 1.5


def run_of(net, *, y=Y, steps=8, temperature=T, batch=None):
    data = lg.Dataset(X, y, XT, np.ones(2))
    how = lg.optimizers.langevin(LR, temperature, weight_decay=DECAY, batch_size=batch)
    return lg.Run(net, lg.mean_field(GAMMA), data, optimizer=how, steps=steps)


def moments(steps):
    """Return f(t) of one linear hidden layer from S = ⟨(a, z)(a, z)ᵀ⟩: S ← M S Mᵀ + 2ηT₀."""
    fields, second, found = X / 2.0, np.eye(5), []
    for _ in range(steps + 1):
        f = fields @ second[:4, 4] / GAMMA
        found.append(f)
        move = np.eye(5) * (1 - LR * DECAY)
        push = LR * GAMMA / 5 * (Y - f) @ fields
        move[:4, 4] += push
        move[4, :4] += push
        second = move @ second @ move.T + 2 * LR * T * np.eye(5)
    return np.array(found)


def assert_within(found, exact, least=0.2, most=2.0):
    """The error that is stated is that which there is."""
    off = np.linalg.norm(found.f_train - exact) / np.linalg.norm(found.f_train_error)
    assert least < off < most


@pytest.mark.slow
def test_one_hidden_layer():
    found, exact = lg.solve(run_of(lg.mlp(1, "linear")), rtol=5e-3), moments(8)
    assert found.theory == "mean field, one hidden layer"
    assert np.linalg.norm(found.f_train_error) < 0.02 * np.linalg.norm(exact)
    assert_within(found, exact)
    cold = lg.solve(run_of(lg.mlp(1, "linear"), temperature=0.0))
    assert np.linalg.norm(cold.f_train - exact) > 10 * np.linalg.norm(found.f_train_error)


@pytest.mark.slow
def test_dense_networks_of_one_hidden_layer():
    """The noise on the read-in and on the read-out, without that on a matrix."""
    found = deep(run_of(lg.mlp(1, "linear")), particles=2048, replicates=8)
    assert_within(found, moments(8))


@pytest.mark.slow
@pytest.mark.parametrize("ratios", [(1, 1), (2, 1)])
def test_weights_that_see_nothing_are_an_ornstein_uhlenbeck_process(ratios):
    """Targets 0 leave f at 0: a weight has variance v ← (1 − ηλ)²v + 2ηT₀, memory (1 − ηλ)ᵗ."""
    t, s = 6, 2
    run = run_of(lg.mlp(2, "linear", width_ratios=ratios), y=np.zeros(5), steps=t)
    found = deep(run, particles=256, replicates=24, record_at=[s, t], record_pairs=[(t, s)])
    left, variance, kernel = 1 - LR * DECAY, [1.0], X @ X.T / 4
    for _ in range(t):
        variance.append(left**2 * variance[-1] + 2 * LR * T)
    cases = [("kernel", 0, variance[s]), ("kernel", 1, variance[t])]
    for name, i, v in [*cases, ("kernel_pair", 0, left ** (t - s) * variance[s])]:
        exact = {
            "feature": np.stack([v * kernel, v**2 * kernel]),
            "gradient": np.stack([np.full((5, 5), v**2), np.full((5, 5), v)]),
        }
        for what, true in exact.items():
            ours, error = (getattr(found, f"{what}_{name}{e}")[i] for e in ("", "_error"))
            assert np.linalg.norm(error) < 0.06 * np.linalg.norm(true)
            assert np.abs((ours - true) / error).max() < 4


@pytest.mark.slow
def test_ensembles_of_networks():
    run = run_of(lg.mlp(2, "tanh", bias_std=0.4), batch=3)
    limit = lg.solve(run, particles=512, replicates=8, key=1)
    assert "dense networks" in limit.notes[0]
    nets = lg.train(
        run, width=512, seeds=48, key=2, record=("feature_kernel", "gradient_kernel", "ntk")
    )
    for what in ("f_train", "f_test", *KERNELS):
        assert_chance(getattr(limit, what), getattr(limit, f"{what}_error"), getattr(nets, what))


@pytest.mark.slow
def test_at_zero_temperature_nothing_is_new():
    run = run_of(lg.mlp(1, "tanh"), temperature=0.0, steps=3)
    how = lg.gd(LR, weight_decay=DECAY)
    plain = lg.Run(run.net, run.param, run.data, optimizer=how, steps=3)
    single = [lg.solve(each, rtol=0.1).f_train for each in (run, plain)]
    stored = [deep(each, method="dense", particles=128, replicates=2) for each in (run, plain)]
    np.testing.assert_array_equal(single[0], single[1])
    np.testing.assert_array_equal(stored[0].f_train, stored[1].f_train)


@pytest.mark.parametrize(
    ("layers", "options", "words"),
    [
        (1, {"method": "quadrature"}, "move at random"),
        (1, {"fluctuations": True}, "linear response"),
        (2, {"method": "sweep"}, "another random matrix at every step"),
        (2, {"sampling": "finite_width"}, "another random matrix at every step"),
    ],
)
def test_refusals(layers, options, words):
    with pytest.raises(InvalidInput, match=words):
        lg.solve(run_of(lg.mlp(layers, "tanh")), **options)


def test_responses_are_refused():
    with pytest.raises(NoTheory, match="gradient descent without noise"):
        lg.theories.response_functions(run_of(lg.mlp(2, "tanh")))
