"""Multilayer perceptrons beside attention: populations of neurons that are sampled."""

import time
from itertools import pairwise

import numpy as np
import pytest
from tests.theories.mean_field.transformer.rebuilt import solution_and_network
from tests.theories.mean_field.transformer.test_attention import (
    CAUSAL,
    DENSE,
    DRAW,
    EVERYWHERE,
    NORMALIZED,
    UNEQUAL,
    X,
    Y,
    distances,
    each_position,
    run_of,
    transformer,
)

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.theories import AttentionMeanField
from largen.theories.mean_field.engine.statistics import ratio
from largen.theories.mean_field.options import NO_KERNELS
from largen.theories.mean_field.transformer import random_matrix, replicates, solution
from largen.theories.mean_field.transformer.dynamics import Drawn, InfiniteNetwork, train
from largen.theories.select import choose


def perceptron(phi, *before, wide=DENSE, behind=(), out=DENSE):
    return lg.Residual(lg.serial(*before, wide, lg.Activation(phi), *behind, out))


PLAIN = perceptron("tanh", lg.RMSNorm())
EVERYTHING = perceptron(
    "gelu",
    lg.LayerNorm(eps=0.1),
    wide=lg.Dense(width_ratio=2, weight_std=1.3, bias_std=0.4),
    behind=(lg.LayerNorm(over_space=True),),
    out=lg.Dense(bias_std=0.3),
)
# An activation of the stream itself, whose neurons are sampled then.
STREAM = lg.Residual(lg.serial(lg.LayerNorm(), lg.Activation("relu"), DENSE))
REBUILT = {
    "pooled": (run_of(transformer(CAUSAL, PLAIN), steps=3), 1),
    "stream": (run_of(transformer(STREAM, CAUSAL), steps=3), 1),
    "everything": (
        run_of(
            each_position(EVERYTHING, UNEQUAL, lg.RMSNorm(), readout=lg.Dense(bias_std=0.5)),
            lg.mup(2.0),
            optimizer=lg.sgd(0.05, 2, momentum=0.6, weight_decay=0.3, schedule=[1.0, 0.5, 2.0]),
            steps=3,
            **EVERYWHERE,
        ),
        2,
    ),
}


@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_of_its_neurons_repeats_the_solution(which):
    solution, network = solution_and_network(*REBUILT[which])
    assert np.abs(solution[-1] - solution[0]).max() > 0.03
    np.testing.assert_allclose(solution, network, rtol=0, atol=1e-12 * np.abs(network).max())


def solved(run, neurons, seed, dtype=np.float64, tolerance=random_matrix.TOLERANCE):
    """Return f (step, sample, position, output) with some number of neurons."""
    problem = lg.theories.AttentionMeanField.pose(run).problem
    network = InfiniteNetwork(problem, Drawn(neurons, 24, seed, dtype))
    network.restart(tolerance)
    return train(network, problem, run).f


def identity(x):
    return x


@pytest.mark.parametrize(
    ("dtype", "tolerance", "off"), [(np.float64, 1e-12, 1e-12), (np.float32, 1e-5, 2e-5)]
)
def test_sampled_neurons_are_exact_without_a_nonlinearity(dtype, tolerance, off):
    # Sampled vectors are as orthonormal as those of the limit: averages of linear fields are exact.
    linear = lg.solve(run_of(transformer(CAUSAL, perceptron("linear", lg.LayerNorm()))))
    sampled = run_of(transformer(CAUSAL, perceptron(identity, lg.LayerNorm())))
    f = solved(sampled, 512, 0, dtype, tolerance)[:, :, 0, 0]
    np.testing.assert_allclose(f[:, :3], linear.f_train, rtol=0, atol=off)
    np.testing.assert_allclose(f[:, 3:], linear.f_test, rtol=0, atol=off)


def test_small_directions_are_taken_to_double_precision(monkeypatch):
    run = run_of(transformer(CAUSAL, PLAIN), steps=2)
    options = {"particles": 256, "replicates": 2, "rtol": 0.05}
    single = lg.solve(run, **options)
    with monkeypatch.context() as patch:
        patch.setattr(solution, "SINGLE", np.inf)
        double = lg.solve(run, **options)
    assert (single.f_train[1:] != double.f_train[1:]).all()
    wanted = iter([1.0])  # the first change by smaller directions
    patched = lambda *given: next(wanted, None) or ratio(*given)  # noqa: E731
    monkeypatch.setattr(replicates, "ratio", patched)
    monkeypatch.setattr(replicates, "SINGLE_TOLERANCE", 1.0)
    np.testing.assert_array_equal(lg.solve(run, **options).f_train, double.f_train)


@pytest.mark.slow
def test_the_first_step_is_that_of_the_tangent_kernel():
    # At small rates: the terms of second order in the rate are below 1e-4 here.
    run = run_of(transformer(CAUSAL, PLAIN), optimizer=lg.gd(0.02), steps=1)
    kernel = np.asarray(lg.ntk_kernel(run.net, X, param=run.param))
    expected = 0.02 / 3 * kernel[:, :3] @ Y[:3]
    each = np.stack([solved(run, 1024, seed)[1, :, 0, 0] for seed in range(6)])
    error = each.std(0, ddof=1) / 6**0.5
    assert (error < 4e-3 * np.abs(expected).max()).all()
    assert (np.abs(each.mean(0) - expected) < 4.5 * error).all()


WITHOUT_ATTENTION = lg.serial(
    DENSE,
    lg.Residual(lg.serial(lg.RMSNorm(), lg.Activation("tanh"), DENSE)),
    lg.Residual(lg.serial(DENSE, lg.Activation("tanh"), DENSE)),
    DENSE,
)


@pytest.mark.slow
def test_without_attention_it_is_the_limit_of_residual_networks():
    x = DRAW.standard_normal((4, 3))
    data = lg.Dataset(x[:3], Y[:3], x[3:], Y[3:])
    run = run_of(WITHOUT_ATTENTION, data=data, optimizer=lg.gd(0.2), steps=6)
    chain = lg.solve(run, theory="mean field, deep", replicates=6, key=1)
    found = lg.solve(run, theory="mean field, branches and attention", replicates=8, key=1)
    for name in ("f_train", "f_test"):
        ours, theirs = getattr(found, name)[1:], getattr(chain, name)[1:]
        error = np.hypot(getattr(found, f"{name}_error"), getattr(chain, f"{name}_error"))[1:]
        assert (np.abs(ours - theirs) < 4 * error).all()
        assert (error < 0.01 * np.abs(found.f_train).max()).all()


@pytest.mark.slow
def test_errors_and_what_was_sampled_are_told():
    run = run_of(transformer(CAUSAL, PLAIN), steps=2)
    options = {"particles": 512, "rtol": 2e-2, "record_at": [0, 2]}
    limit = lg.solve(run, **options)
    held = limit.to_xarray()
    kernels = ("feature_kernel_tokens", "gradient_kernel", "ntk")
    for name in ("f_train", "f_test", "attention", "attention_test", "feature_kernel", "ntk"):
        assert held[f"{name}_error"].dims == held[name].dims
        assert (held[f"{name}_error"] >= 0).all()
    (note,) = limit.notes
    assert "4 replicates of 512 neurons" in note
    assert "estimated error of the outputs" in note
    assert "sampled neurons" in limit.reason
    np.testing.assert_array_equal(lg.solve(run, **options).f_train, limit.f_train)
    other = lg.solve(run, key=1, replicates=5, **options)
    assert "5 replicates" in other.notes[0]
    distance = np.abs(other.f_train - limit.f_train)[1:]
    assert (distance > 0).all()
    assert (distance < 5 * np.hypot(limit.f_train_error, other.f_train_error)[1:]).all()
    for name in kernels:
        away, one, two = (
            np.nan_to_num(each)
            for each in (
                getattr(other, name) - getattr(limit, name),
                getattr(limit, f"{name}_error"),
                getattr(other, f"{name}_error"),
            )
        )
        assert np.linalg.norm(away) < 3 * np.linalg.norm(np.hypot(one, two)), name
        assert np.linalg.norm(away) > 1e-4, name
    (note,) = lg.solve(run, particles=256, rtol=1e-5, max_particles=256).notes
    assert "more than rtol=1e-05: raise max_particles" in note


def test_normalisations_behind_activations_are_left_to_this_theory():
    layers = (DENSE, lg.Activation("relu"), lg.LayerNorm(), DENSE, lg.Activation("tanh"), DENSE)
    data = lg.Dataset(X[:3, 0], Y[:3])
    theory, posed = choose(run_of(lg.serial(*layers), data=data))
    assert theory is lg.theories.AttentionMeanField
    assert "attention" not in posed.reason
    assert choose(run_of(lg.mlp(2, "relu"), data=data))[0] is lg.theories.DeepMeanField


def test_a_small_budget_and_progress_are_told():
    run, told = run_of(transformer(CAUSAL, PLAIN), steps=2), []
    options = {"particles": 512, "rtol": 0.05, "progress": lambda *now: told.append(now)}
    lg.solve(run, **options)
    assert all(before <= after for before, after in pairwise(done for done, _ in told))
    assert told[-1][0] == told[-1][1]
    with pytest.raises(NumericalFailure, match="memory_budget") as caught:
        lg.solve(run, **options, memory_budget=1e5)
    assert caught.value.result.status == "out of memory"


def test_neurons_for_the_weights_alone_are_wanted_at_the_door():
    run = run_of(transformer(CAUSAL, STREAM), steps=1)
    with pytest.raises(InvalidInput, match=r"particles: wanted more than twice .* got 8"):
        lg.solve(run, theory="mean field, branches and attention", particles=8)


def test_fields_that_span_the_neurons_are_told():
    run = run_of(transformer(CAUSAL, PLAIN), steps=6)
    with pytest.raises(
        NumericalFailure, match=r"particles: the fields of .* 128 neurons"
    ) as caught:
        lg.solve(run, particles=128, rtol=1e-4)
    told = lg.solve(run, particles=128, rtol=1e-4, throw=False)
    assert caught.value.result.status == told.status == "inaccurate"
    finite = np.isfinite(told.f_train).all(1)
    assert finite[0]
    assert not finite[-1]


def test_only_errors_of_whole_solutions_are_told(monkeypatch):
    """With too few neurons at first, twice as many are taken; what was stopped has no error."""
    monkeypatch.setattr(replicates, "FEWEST_PARTICLES", 128)
    monkeypatch.setattr(replicates, "PER_COLUMN", 1)
    run = run_of(transformer(CAUSAL, PLAIN), steps=6)
    problem, reached = AttentionMeanField.pose(run).problem, []
    settings = replicates.Settings(5e-2, None, None, 2**12, (), NO_KERNELS, 1e9)
    told = (lambda done, total: None), reached.append
    found = replicates.solve_by_replicates(problem, run, settings, np.zeros(2, int), *told)
    assert found.stopped is None
    assert "128 neurons" not in found.how
    assert reached
    assert np.isfinite(reached).all()


@pytest.mark.slow
def test_networks_converge_with_their_width():
    run = run_of(transformer(NORMALIZED, PLAIN), optimizer=lg.gd(0.15), steps=8)
    limit = lg.solve(run, key=2)
    narrow, wide = (distances(run, width, 400, limit) for width in (64, 128))
    slope = np.log2(np.mean(wide**2) / np.mean(narrow**2)) / 2
    assert abs(slope + 0.5) < 0.15, slope
    # The shift of the mean is of order 1/N, and cancels in 2 m(128) − m(64).
    means = [f[:, -1].mean(0) for f in (narrow, wide)]
    squares = [f[:, -1].var(0) / len(f) for f in (narrow, wide)]
    left = np.concatenate([limit.f_train_error, limit.f_test_error], 1)[-1]
    z = (2 * means[1] - means[0]) / np.sqrt(4 * squares[1] + squares[0] + left**2)
    assert np.abs(z).max() < 3.5, z
    assert np.abs(means[0] / np.sqrt(squares[0])).max() > 5  # it is seen at the smaller width


def test_an_interrupted_solution_resumes_from_its_replicates(tmp_path):
    run = run_of(transformer(CAUSAL, PLAIN), steps=2)
    options = {"particles": 256, "rtol": 0.05, "replicates": 4, "key": 3}
    whole = lg.solve(run, **options)
    told, place = [], tmp_path / "limit.npz"

    def stop(done, total):
        end = time.monotonic() + 60
        # On a busy machine all replicates may have ended before the first one is written.
        while done == total and not place.exists() and time.monotonic() < end:
            time.sleep(0.01)
        if place.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        lg.solve(run, checkpoint=place, progress=stop, **options)
    assert "the same call resumes from it" in caught.value.__notes__[0]
    again = lg.solve(run, checkpoint=place, progress=lambda *now: told.append(now), **options)
    np.testing.assert_array_equal(again.f_train, whole.f_train)
    np.testing.assert_array_equal(again.f_test_error, whole.f_test_error)
    np.testing.assert_array_equal(again.attention, whole.attention)
    np.testing.assert_array_equal(again.gradient_kernel, whole.gradient_kernel)
    np.testing.assert_array_equal(again.ntk_error, whole.ntk_error)
    assert told[0][0] >= 100
    assert told[-1] == (400, 400)
    # More replicates are added to those of the file; other runs are refused by name.
    more = lg.solve(run, checkpoint=place, **(options | {"replicates": 6}))
    assert "6 replicates" in more.notes[0]
    with pytest.raises(InvalidInput, match=r"another key, .* another number of steps"):
        lg.solve(run.with_changes(steps=3), checkpoint=place, **(options | {"key": 4}))
