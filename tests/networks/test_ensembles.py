"""Ensembles: seeds, chunks, records, divergence and bad input."""

import inspect

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.networks import chunks
from largen.networks.chunks import at_once, even_chunk
from largen.networks.plan import plan_of


@pytest.fixture(scope="module")
def run():
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(12, 4)), draw.normal(size=12)
    data = lg.Dataset(x[:8], y[:8], x[8:], y[8:])
    return lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=6)


@pytest.mark.slow
def test_seeds_do_not_depend_on_chunks(run):
    """The same seed is the same network, bit for bit, however many there are at a time."""
    whole = lg.train(run, 16, 7, 0)
    seen = []
    small = lg.train(run, 16, 7, 0, memory_budget=1.0, progress=lambda *at: seen.append(at))
    few = lg.train(run, 16, 3, jax.random.key(0))
    np.testing.assert_array_equal(whole.f_train, small.f_train)
    np.testing.assert_array_equal(whole.f_test[:3], few.f_test)
    assert seen == [(i, 7) for i in range(1, 8)]
    assert len({row.tobytes() for row in whole.f_train}) == 7
    assert whole.to_xarray().f_train.dims == ("seed", "step", "sample")


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 3])
def test_a_chunk_may_have_several_groups(run, together, monkeypatch):
    """Groups of a chunk are trained in turn, and the last of them is padded."""
    monkeypatch.setattr(chunks, "_together", lambda *_: together)
    monkeypatch.setattr(chunks, "FEWEST_CHUNKS", 2)
    seen = []
    many = lg.train(run, 16, 33, 0, record=["ntk"], progress=lambda *at: seen.append(at))
    few = lg.train(run, 16, 3, 0, record=["ntk"])
    assert [done for done, _ in seen] == {1: [11, 22, 33], 3: [12, 24, 33]}[together]
    np.testing.assert_array_equal(many.f_train[:3], few.f_train)
    np.testing.assert_array_equal(many.ntk[:3], few.ntk)
    assert len({row.tobytes() for row in many.f_train}) == 33


def test_chunks_waste_little():
    assert [even_chunk(s, 8) for s in (1, 7, 8, 9, 64, 100)] == [1, 7, 8, 5, 8, 5]
    for seeds in range(1, 60):
        chunk = even_chunk(seeds, 8)
        assert 1 <= chunk <= 8
        assert -seeds % chunk <= 3


def test_batched_over_seeds_is_the_same(run):
    """What accelerators do, all seeds at a time, gives the same up to rounding."""
    with jax.enable_x64(True):
        plan, numbers = plan_of(run, 16, (), ())
        keys = jax.random.split(jax.random.key(0), 3)
        one, _ = at_once(plan, numbers, keys)
        many, _ = at_once(plan, numbers, keys[None])
    np.testing.assert_allclose(one, many[0], rtol=0, atol=1e-13)


@pytest.mark.slow
def test_records_at_chosen_steps(run):
    """Kernels at a step are those of the network that was trained until then."""
    nets = lg.train(run, 16, 2, 0, record=("ntk", "feature_kernel"), record_at=(6, 0, 3))
    data = nets.to_xarray()
    assert data.record_step.values.tolist() == [0, 3, 6]
    assert "record_step" in data.coords
    assert data.ntk.dims == ("seed", "record", "sample", "sample_2")
    assert data.ntk_test.dims == ("seed", "record", "test_sample", "sample")
    assert data.feature_kernel.dims == ("seed", "record", "layer", "sample", "sample_2")
    assert "gradient_kernel" not in nets
    np.testing.assert_allclose(nets.f_train, lg.train(run, 16, 2, 0).f_train, atol=1e-13)
    shorter = lg.Run(run.net, run.param, run.data, optimizer=run.optimizer, steps=3)
    until = lg.train(shorter, 16, 2, 0, record="ntk")
    np.testing.assert_allclose(until.ntk[:, -1], nets.ntk[:, 1], atol=1e-13)
    np.testing.assert_allclose(until.ntk_test[:, -1], nets.ntk_test[:, 1], atol=1e-13)


@pytest.mark.slow
def test_no_test_samples(run):
    data = lg.Dataset(run.data.x_train, run.data.y_train)
    alone = lg.Run(run.net, run.param, data, optimizer=run.optimizer, steps=6)
    nets = lg.train(alone, 16, 2, 0, record="ntk")
    assert nets.f_test.shape == (2, 7, 0)
    assert "ntk_test" not in nets
    np.testing.assert_allclose(nets.f_train, lg.train(run, 16, 2, 0).f_train, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_that_of_the_data(run, dtype):
    full = run.data
    data = lg.Dataset(*(a.astype(dtype) for a in (full.x_train, full.y_train)))
    nets = lg.train(
        lg.Run(run.net, run.param, data, optimizer=lg.gd(0.5), steps=2),
        8,
        1,
        0,
        record="feature_kernel",
    )
    assert nets.f_train.shape == (1, 3, 8)
    assert nets.f_train.dtype == nets.loss_train.dtype == nets.feature_kernel.dtype == dtype


@pytest.mark.slow
def test_divergence_is_raised_and_kept_apart(run):
    """A rate above the stable one: exploding, then infinite, losses."""
    linear = lg.mlp(1, "linear")
    for steps in (30, 3000):
        wild = lg.Run(linear, lg.ntk(), run.data, optimizer=lg.gd(60.0), steps=steps)
        with pytest.raises(NumericalFailure, match="lower lr") as caught:
            lg.train(wild, 16, 2, 0)
        assert caught.value.result.status == "diverged"
        assert lg.train(wild, 16, 2, 0, throw=False).status == "diverged"
    mild = lg.Run(linear, lg.ntk(), run.data, optimizer=lg.gd(4.5), steps=200)
    nets = lg.train(mild, 4, 12, 0, throw=False)
    lost = ~(nets.loss_train[:, -1] < 1e3)
    assert nets.status == "diverged"
    assert 0 < lost.sum() < 12
    for seed in np.flatnonzero(~lost):
        assert np.isfinite(nets.f_train[seed]).all()


def test_bad_input_is_named(run):
    train = inspect.unwrap(lg.train)  # as users have it, without the types that tests check
    wrong = [
        ("run", lambda: train("run", 4, 1, 0)),
        ("width", lambda: train(run, -4, 1, 0)),
        ("width", lambda: train(run, 4.5, 1, 0)),
        ("seeds", lambda: train(run, 4, 0, 0)),
        ("key", lambda: train(run, 4, 1, None)),
        ("Did you mean 'feature_kernel'", lambda: train(run, 4, 1, 0, record=["feature"])),
        ("record_at", lambda: train(run, 4, 1, 0, record=["ntk"], record_at=[7])),
        ("record_at", lambda: train(run, 4, 1, 0, record=["ntk"], record_at=[-1])),
        ("record_at", lambda: train(run, 4, 1, 0, record=["ntk"], record_at=[])),
        ("record_at", lambda: train(run, 4, 1, 0, record=["ntk"], record_at=3)),
        ("record_at", lambda: train(run, 4, 1, 0, record_at=[3])),
        ("memory_budget", lambda: train(run, 4, 1, 0, memory_budget=0)),
        ("progress", lambda: train(run, 4, 1, 0, progress="yes")),
    ]
    for message, call in wrong:
        with pytest.raises(InvalidInput, match=message):
            call()


def test_all_segments_of_training_share_one_program(monkeypatch):
    """A program for the first segment and another for the rest would double the compilation."""
    monkeypatch.setattr(chunks, "_first_segment", lambda *_: 1)
    data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    run = lg.Run(lg.mlp(1, "linear"), lg.ntk(), data, optimizer=lg.gd(lr=0.1), steps=3)
    programs = chunks._advance._cache_size()
    lg.train(run, width=5, seeds=2)
    assert chunks._advance._cache_size() == programs + 1
