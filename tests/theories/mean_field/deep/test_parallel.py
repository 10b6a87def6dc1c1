"""Replicates that are computed at the same time: the same ones, sooner."""

import os
import subprocess
import sys
from threading import Barrier, Event, get_ident

import jax
import numpy as np
import pytest

import largen as lg
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.estimation import memory, replicates
from largen.theories.mean_field.engine.parallel import Dismissed, Team


def run_of(**kwargs):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((5, 4)), rng.standard_normal(5)
    data = lg.Dataset(x[:3], y[:3], x[3:], y[3:])
    options = {"optimizer": lg.gd(0.5), "steps": 5} | kwargs
    return lg.Run(lg.mlp(3, "tanh"), lg.mean_field(), data, **options)


def test_tasks_are_done_at_the_same_time():
    both = Barrier(2, timeout=60)
    with Team(2, lambda done: None) as team:
        waiting = [team.start(i, lambda tell, i=i: (both.wait(), i)[1]) for i in range(4)]
        assert [ended() for ended in waiting] == [0, 1, 2, 3]


def test_one_thread_is_the_one_that_asks():
    done = []
    with Team(1, lambda done: None) as team:
        waiting = [team.start(i, lambda tell, i=i: done.append((i, get_ident()))) for i in (0, 1)]
        assert not done
        for ended in reversed(waiting):
            ended()
    assert done == [(1, get_ident()), (0, get_ident())]


def test_progress_is_the_sum():
    told = []
    with Team(2, told.append) as team:
        for ended in [team.start(i, lambda tell: tell(0.5)) for i in range(3)]:
            ended()
    assert told[-1] == 3.0
    assert told == sorted(told)


def test_what_nobody_wants_ends():
    begun, ended = Event(), Event()

    def endless(tell):
        begun.set()
        try:
            while True:
                tell(0.0)
        except Dismissed:
            ended.set()
            raise

    with Team(2, lambda done: None) as team:
        first = team.start(0, endless)
        assert begun.wait(60)
        team.dismiss()
        with pytest.raises(Dismissed):
            first()
        assert team.start(1, lambda tell: "wanted")() == "wanted"
        begun.clear()
        ended.clear()
        team.start(2, endless)
        assert begun.wait(60)
    assert ended.is_set()


def test_errors_come_from_the_task():
    def fails(tell):
        raise ValueError("of the task")

    with Team(2, lambda done: None) as team, pytest.raises(ValueError, match="of the task"):
        team.start(0, fails)()


def test_device_is_that_of_the_caller():
    device = jax.devices()[0]
    with jax.default_device(device), Team(2, lambda done: None) as team:
        task = team.start(0, lambda tell: jax.config.values["jax_default_device"])
        assert task() == device


PROGRAM = """
import jax.numpy as jnp, threadpoolctl
from largen.theories.mean_field.engine.parallel import one_thread_of_blas

with one_thread_of_blas():
    jnp.linalg.eigh(jnp.eye(3))
    found = threadpoolctl.threadpool_info()
print(*[each["num_threads"] for each in found if each["user_api"] == "blas"])
"""


def test_blas_has_one_thread_within():
    """Also that of JAX's decompositions, which is loaded by the first of them."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"method": "dense", "replicates": 3}], ids=["sweep", "dense"]
)
def test_numbers_do_not_depend_on_how_many_at_once(monkeypatch, options):
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(memory, "cores", lambda cores=cores: cores)
        found.append(lg.solve(run_of(), particles=256, rtol=0.05, progress=False, **options))
    np.testing.assert_array_equal(found[0].f_train, found[1].f_train)
    np.testing.assert_array_equal(found[0].f_train_error, found[1].f_train_error)
    np.testing.assert_array_equal(found[0].ntk, found[1].ntk)


@pytest.mark.slow
def test_flow_does_not_depend_on_how_many_at_once(monkeypatch):
    run = run_of(optimizer=lg.gradient_flow(), steps=None, times=[0.0, 0.5, 1.0])
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(memory, "cores", lambda cores=cores: cores)
        found.append(lg.solve(run, particles=256, rtol=0.05, progress=False))
    np.testing.assert_array_equal(found[0].f_train, found[1].f_train)


@pytest.mark.slow
def test_finer_tolerance_begins_anew(monkeypatch):
    """Replicates that began with a tolerance that did not do are not among the results."""
    found, used = [], []
    random = replicates._random

    def told(problem, run, recorded, settings, *args, **kwargs):
        swept = random(problem, run, recorded, settings, *args, **kwargs)
        used.append(settings.tolerance)
        return swept

    monkeypatch.setattr(replicates, "_random", told)
    for cores in (1, 2):
        too_rough = iter([1.0, 1.0, 0.0])
        monkeypatch.setattr(replicates, "ratio", lambda *_, it=too_rough: next(it))
        monkeypatch.setattr(memory, "cores", lambda cores=cores: cores)
        used.clear()
        found.append(lg.solve(run_of(), particles=256, rtol=0.05, replicates=3, progress=False))
        if cores == 1:
            rough = max(used)
            thirds = [rough / 3**k for k in (0, 1, 2, 3, 2, 2)]  # four of the trial, two beside
            np.testing.assert_allclose(used, thirds)
    np.testing.assert_array_equal(found[0].f_train, found[1].f_train)


def test_little_memory_means_one_after_the_other():
    settings = replicates.NumericalSettings(
        0.01, 256, None, 10**6, "variance_reduced", 0.03, np.float32
    )
    posed = posed_by(run_of()).problem
    assert memory.replicates_at_once(posed, settings._replace(budget=1.0)) == 1
    assert memory.replicates_at_once(posed, settings) == memory.cores()


@pytest.mark.slow
def test_progress_counts_what_was_loaded(tmp_path):
    options = {"particles": 256, "rtol": 0.05, "checkpoint": tmp_path / "limit.npz"}
    lg.solve(run_of(), replicates=2, progress=False, **options)
    told = []
    lg.solve(run_of(), replicates=4, progress=lambda *now: told.append(now), **options)
    (first, total), last = told[0], told[-1]
    assert 200 < first <= 400  # a report before the first step of the third replicate
    assert total == 400
    assert last == (400, 400)
