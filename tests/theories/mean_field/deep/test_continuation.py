"""Solutions that stop on the way, and go on: to the bit what they would have been."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import DamagedFile, InvalidInput, NumericalFailure
from largen.theories.mean_field.deep.restarts import sweep_state as place
from largen.theories.mean_field.deep.restarts.checkpoint import Common, Shown, SweepCheckpoint
from largen.theories.mean_field.deep.sweep import advance
from largen.theories.mean_field.engine.checkpoint import Found
from largen.theories.mean_field.record_times import NOTHING, Recorded

solve = partial(lg.solve, theory="mean field, deep")

DEEP = "largen.theories.mean_field.deep"

RNG = np.random.default_rng(4)
X, XT, Y = (RNG.standard_normal(shape) for shape in ((5, 6), (2, 6), 5))
DATA = lg.Dataset(X, np.sign(Y), XT, np.ones(2))


def run_of(steps=6, activation="tanh", *, optimizer=None, times=None, loss: Any = "mse"):
    optimizer = optimizer or lg.gd(0.5)
    steps = None if times else steps
    net, param = lg.mlp(2, activation), lg.mean_field()
    return lg.Run(net, param, DATA, loss, optimizer, steps=steps, times=times)


def assert_same(found, wanted):
    one, other = found.to_xarray(), wanted.to_xarray()
    assert one.attrs == other.attrs
    assert one.identical(other)


class Killed(Exception):
    pass


def killed_after(calls, monkeypatch):
    """Let a program die in one of the calls that sweep."""
    left, sweep = [calls], advance.sweep

    def now(*args):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return sweep(*args)

    monkeypatch.setattr(advance, "sweep", now)


CASES = {
    "momentum, minibatch, decay": (
        {"optimizer": lg.sgd(0.4, 3, momentum=0.5, weight_decay=0.1)},
        {
            "particles": 256,
            "record_at": [0, 2],
            "record_pairs": [(2, 0)],
            "record": ["feature_kernel", "gradient_kernel", "ntk"],
        },
    ),
    "dense": ({"activation": "relu"}, {"method": "dense", "particles": 64}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "options"), CASES.values(), ids=CASES)
def test_killed_at_any_time(problem, options, tmp_path, monkeypatch):
    run, options = run_of(**problem), {**options, "replicates": 2}
    whole, rng, deaths = solve(run, **options), np.random.default_rng(7), 0
    monkeypatch.setattr(place, "SECONDS", 0.0)
    monkeypatch.setattr("largen.interrupts.SEGMENT", 1e-9)  # a step each
    rest = None
    while rest is None:
        with monkeypatch.context() as patch:
            killed_after(int(rng.integers(2, 12)), patch)
            try:
                rest = solve(run, **options, checkpoint=tmp_path / "limit.npz")
            except Killed:
                deaths += 1
    assert deaths > 1  # more on two cores, whose replicates die together
    assert_same(rest, whole)


LONGER = {
    "schedule": (
        {"steps": 4, "optimizer": lg.gd(0.5, momentum=0.3, schedule=[1, 1, 2, 1])},
        {"steps": 7, "optimizer": lg.gd(0.5, momentum=0.3, schedule=[1, 1, 2, 1, 0.5, 2, 1])},
        {"particles": 256, "record_at": [], "record_pairs": [(1, 3)]},
    ),
    "flow": (
        {"optimizer": lg.gradient_flow(), "times": [0.5, 1.0]},
        {"optimizer": lg.gradient_flow(), "times": [0.5, 1.0, 2.0]},
        {"particles": 256, "rtol": 0.02},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("short", "long", "options"), LONGER.values(), ids=LONGER)
def test_a_longer_run_goes_on_from_a_shorter_one(short, long, options, tmp_path, monkeypatch):
    options = {**options, "replicates": 2}
    file = tmp_path / "limit.npz"
    whole = solve(run_of(**long), **options)
    solve(run_of(**short), **options, checkpoint=file)
    began, sweep = [], advance.sweep

    def told(model, state, constants, stop):
        began.append(int(state.step) == 0 < stop)
        return sweep(model, state, constants, stop)

    monkeypatch.setattr(advance, "sweep", told)
    assert_same(solve(run_of(**long), **options, checkpoint=file), whole)
    # Sweeps that start from the directions of an earlier one are repeated: that of a smaller
    # tolerance, and those of longer steps.
    assert sum(began) == (5 if "times" in long else 1)
    with pytest.raises(InvalidInput, match="time indices, and this run"):
        solve(run_of(**short), **options, checkpoint=file)


@pytest.mark.slow
def test_more_memory_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{DEEP}.matrices.row_buffers.BLOCK", 16)
    monkeypatch.setattr(
        f"{DEEP}.estimation.replicates.first_capacities",
        lambda *_: (48, 64),
    )
    monkeypatch.setattr(f"{DEEP}.sampled.check_memory", lambda *_: None)
    run = run_of(8, optimizer=lg.gd(1.0))
    options: Any = {"particles": 256, "replicates": 1, "rtol": 1e-3, "record_at": []}
    whole, small = solve(run, **options), {**options, "memory_budget": 6.5e5}
    with pytest.raises(NumericalFailure, match="larger budget resumes") as caught:
        solve(run, **small, checkpoint=tmp_path / "limit.npz")
    part: Any = caught.value.result
    assert part.status == "out of memory"
    there = np.isfinite(part.f_train).all(1)
    reached = int(np.argmin(there))
    assert 0 < reached < 8
    assert not there[reached:].any()
    with monkeypatch.context() as rough:  # what is left out is known of whole sweeps only
        rough.setattr(
            f"{DEEP}.estimation.averages.add_remainder",
            lambda problem, name, mean, error, change: (mean, error),
        )
        bare = solve(run, **options)
    np.testing.assert_array_equal(part.f_train[:reached], bare.f_train[:reached])
    shown = solve(run, **small, throw=False)
    np.testing.assert_array_equal(shown.f_train, part.f_train)
    assert_same(solve(run, **options, checkpoint=tmp_path / "limit.npz"), whole)


@pytest.mark.slow
def test_later_rates_may_be_others(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "SECONDS", 0.0)
    monkeypatch.setattr("largen.interrupts.SEGMENT", 1e-9)  # a step each
    options = {"particles": 256, "replicates": 1, "method": "sweep", "record_at": []}
    kept = options | {"checkpoint": tmp_path / "limit.npz"}
    first, early, late = (
        run_of(8, "relu", optimizer=lg.gd(0.5, schedule=[1, 1, *rates, 9, 9]))
        for rates in ([1, 1, 9, 9], [1, 2, 1, 1], [1, 1, 0.5, 0.5])
    )
    with monkeypatch.context() as patch:
        killed_after(4, patch)  # after the steps 1, 2, 3, 4
        with pytest.raises(Killed):
            solve(first, **kept)
    with pytest.raises(InvalidInput, match="rates differ from step 3"):
        solve(early, **kept)
    whole = solve(late, **options, throw=False)
    assert np.isfinite(whole.f_train[:7]).all()
    assert_same(solve(late, **kept, throw=False), whole)


def test_what_differs_is_named(tmp_path):
    def loss(scale):
        def mine(f, y):
            return scale * jnp.sum((f - y) ** 4)

        return mine

    def checkpoint(run, key=0, recorded=(0, 2)):
        of = Recorded(np.array(recorded), NOTHING.pairs)
        return SweepCheckpoint(tmp_path / "limit.npz", run, {"key": key}, of)

    mine = run_of(2, loss=loss(1.0))
    checkpoint(mine).save(Found(Common(0.01, 0.0), Shown({}, np.zeros(())), []))
    assert checkpoint(run_of(2, loss=loss(1.0))).load() is not None
    assert checkpoint(run_of(3, loss=loss(1.0)), recorded=(0, 3)).load() is None
    for other, words in (
        (checkpoint(run_of(2, loss=loss(1.01))), "another loss"),
        (checkpoint(run_of(2, "erf", loss=loss(1.0))), "another network"),
        (checkpoint(run_of(2, loss=loss(1.0), optimizer=lg.gd(0.5, momentum=0.1))), "optimizer"),
        (checkpoint(run_of(2, loss=loss(1.0), optimizer=lg.gd(0.6))), "differ from time index 0"),
        (checkpoint(run_of(1, loss=loss(1.0))), "2 time indices, and this run 1"),
        (checkpoint(mine, key=1), "another key"),
        (checkpoint(mine, recorded=(1,)), "recorded at other time"),
        (checkpoint(run_of(3, loss=loss(1.0)), recorded=(1, 3)), "recorded at other time"),
    ):
        with pytest.raises(InvalidInput, match=words):
            other.load()
    whole = (tmp_path / "limit.npz").read_bytes()
    for damaged in (b"no archive", whole[: len(whole) // 2]):
        (tmp_path / "limit.npz").write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"limit\.npz"):
            checkpoint(mine).load()
    (tmp_path / "other.npz.states").write_bytes(b"a file where the folder should be")
    with pytest.raises(InvalidInput, match="cannot make"):
        SweepCheckpoint(tmp_path / "other.npz", mine, {}, NOTHING)


@pytest.mark.parametrize(("wrong", "words"), [(".", "is a folder"), ("a\0b", "null character")])
def test_what_is_no_place_for_a_checkpoint_is_refused_at_once(wrong, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"{DEEP}.sampled.sample_replicates", lambda *_: pytest.fail("it computes"))
    with pytest.raises(InvalidInput, match=f"checkpoint: .*{words}"):
        solve(run_of(), particles=64, replicates=1, checkpoint=wrong)
