"""Interrupts: noted, raised between segments, and answered soon by every long computation."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.interrupting import WITHIN, interrupted, killed

import largen as lg
from largen.interrupts import GROWTH, SEGMENT, Pace, check, interruptible, resume_hint


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def stopped():
    with pytest.raises(KeyboardInterrupt), interruptible():
        yield


def test_an_interrupt_waits_for_the_next_look():
    reached = []
    with stopped():
        interrupt()
        reached.append("after the signal")
        check()
        reached.append("after the look")
    assert reached == ["after the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_at_the_end_it_is_raised_at_the_latest():
    with stopped():
        interrupt()


def test_the_second_one_is_raised_at_once():
    with stopped():
        interrupt()
        interrupt()
        pytest.fail("nobody waits any longer")


def _swallowed():
    try:
        interrupt()
    except KeyboardInterrupt:
        return "raised at once"
    return "not raised"


def test_at_once_and_once_more_if_it_was_swallowed():
    reached = []
    with pytest.raises(KeyboardInterrupt), interruptible(at_once=True):  # noqa: PT012
        reached.append(_swallowed())
        check()
        reached.append("behind the look")
    assert reached == ["raised at once"]
    with interruptible(at_once=True):
        check()  # nothing is left of it


def test_inner_contexts_leave_it_to_the_outer_one():
    reached = []
    with stopped():
        with interruptible():
            interrupt()
        reached.append("behind the inner one")
    assert reached


def test_a_handler_of_the_users_own_is_called_when_it_is_raised():
    called = []
    before = signal.signal(signal.SIGINT, lambda number, frame: called.append(number))
    try:
        with interruptible():
            interrupt()
            assert not called
            check()
            assert called == [signal.SIGINT]
            check()
        assert called == [signal.SIGINT]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interruptible():
            interrupt()
            check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_left_alone():
    found = []

    def work():
        with interruptible():
            found.append(signal.getsignal(signal.SIGINT))
            check()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
    with stopped():
        interrupt()
        thread = threading.Thread(target=check)  # which does not take it from the main thread
        thread.start()
        thread.join()
        check()


def test_it_is_raised_when_jax_has_compiled():
    @jax.jit
    def function(x):
        interrupt()  # while it is traced
        return x + 1

    reached = []
    with stopped():
        function(jnp.ones(3))
        reached.append("it ran")
    assert not reached


def test_words_on_how_to_go_on():
    with pytest.raises(KeyboardInterrupt) as caught, resume_hint("the same call"), interruptible():
        interrupt()
    assert caught.value.__notes__ == ["the same call"]


def test_segments_cover_all_steps_and_grow_to_half_a_second(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    speed, lengths, reached = 1e-3, [], 0
    for begin, end in Pace().segments(0, 5000):
        assert begin == reached
        reached = end
        lengths.append(end - begin)
        now[0] += speed * (end - begin)
        speed = 1e-3 if end < 2500 else 4e-3
    assert reached == 5000
    assert lengths[:4] == [1, GROWTH, GROWTH**2, round(SEGMENT / 1e-3)]
    assert round(SEGMENT / 4e-3) in lengths


X = np.random.default_rng(0).normal(size=(500, 8))


def test_kernel():
    interrupted(lambda: lg.kernel(lg.mlp(1, "relu"), X))


def run_of(optimizer, **course):
    data = lg.Dataset(X[:5], X[:5, 0], X[5:8], X[5:8, 0])
    return lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=optimizer, **course)


def of_any_length(monkeypatch, compute):
    """Return what is computed in segments that are as long, and as short, as they get."""
    found = []
    for seconds in (1e3, 1e-9):
        monkeypatch.setattr("largen.interrupts.SEGMENT", seconds)
        found.append(compute())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        run_of(lg.adam(0.1, batch_size=3), steps=7),
        run_of(lg.gradient_flow(1.0), times=np.linspace(0, 3, 4)),
    ],
    ids=["steps", "flow"],
)
def test_networks_are_the_same_wherever_segments_end(run, monkeypatch):
    def train():
        return lg.train(run, 8, 3, 0, record=["ntk"], memory_budget=1.0)

    long, short = of_any_length(monkeypatch, train)
    for name, values in long.to_xarray().items():
        np.testing.assert_array_equal(values, short.to_xarray()[name], err_msg=name)


def test_training():
    run = run_of(lg.adam(0.1, batch_size=3), steps=7)
    interrupted(lambda: lg.train(run, 8, 3, 0, record=["ntk"], memory_budget=1.0))


def limit(param, loss="mse", optimizer=None, **course):
    data = lg.Dataset(X[:4], np.sign(X[:4, 0]), X[4:6], np.sign(X[4:6, 0]))
    optimizer = lg.gd(0.2) if optimizer is None else optimizer
    run = lg.Run(lg.mlp(1, "tanh"), param, data, loss=loss, optimizer=optimizer, **course)
    return lambda **options: lg.solve(run, **options)


FLOWS = {"optimizer": lg.gradient_flow(1.0), "times": np.linspace(0, 1, 4)}
LIMITS = {
    "kernel limit": (limit(lg.ntk(), steps=6), {}),
    "kernel limit, covariances": (limit(lg.ntk(), steps=6), {"covariance": True}),
    "kernel limit, draws": (limit(lg.ntk(), "logistic", steps=6), {"draws": 8}),
    "kernel limit, flow of draws": (limit(lg.ntk(), "logistic", **FLOWS), {"draws": 8}),
    "one hidden layer": (limit(lg.mean_field(), steps=6), {"method": "particles", "particles": 64}),
    "one hidden layer, flow": (
        limit(lg.mean_field(), **FLOWS),
        {"method": "particles", "particles": 64},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_limits(name, monkeypatch):
    """They are the same wherever segments end, and an interrupt between two of them is answered."""
    solve, options = LIMITS[name]
    long, short = of_any_length(monkeypatch, lambda: solve(**options))
    for name, values in long.to_xarray().items():
        np.testing.assert_array_equal(values, short.to_xarray()[name], err_msg=name)
    interrupted(lambda: solve(**options))


def test_kernels_of_networks(monkeypatch):
    def estimate():
        return lg.networks.monte_carlo_kernel(lg.mlp(1, "relu"), X[:3], width=8, draws=5, key=0)

    long, short = of_any_length(monkeypatch, estimate)
    np.testing.assert_array_equal(long.ntk, short.ntk)
    np.testing.assert_array_equal(long.nngp_error, short.nngp_error)
    interrupted(estimate)


DRAWN = {
    "sample_kernels": lambda: lg.finite_width.sample_kernels(
        lg.mlp(1, "relu"), X[:2], width=2**15, draws=70, key=0
    ),
    "sample_tangent_kernels": lambda: (
        lg.finite_width.sample_tangent_kernels(
            lg.mlp(1, "relu"), X[:2], width=2**12, draws=150, key=0
        ).ntk
    ),
    "covariance_sde": lambda: (
        lg.finite_width.covariance_sde(
            np.eye(2), slopes=(0, -1), time=0.1, draws=2500, steps=3, key=0
        ).covariance
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_networks(name, monkeypatch):
    long, short = of_any_length(monkeypatch, DRAWN[name])
    np.testing.assert_array_equal(long, short)
    interrupted(DRAWN[name])


@pytest.mark.slow
@pytest.mark.parametrize("fit", ["fit_likelihood", "fit_cross_validation"])
def test_fits_stop_between_two_evaluations(fit, monkeypatch):
    """Nothing is running then: a process that ends while something is may crash."""
    from largen.regression import fit as fitting

    reached, look = [], fitting.check

    def look_after_an_interrupt():
        reached.append(fit)
        if len(reached) == 2:
            interrupt()  # waits for the look
            reached.append("the look")
        look()

    monkeypatch.setattr(fitting, "check", look_after_an_interrupt)
    with pytest.raises(KeyboardInterrupt):
        getattr(lg.regression, fit)(lg.mlp(1, "relu"), X[:6], X[:6, 0], noise=0.1)
    assert reached == [fit, fit, "the look"]


def test_an_interrupt_that_was_swallowed_in_plain_numpy_is_raised_again(monkeypatch):
    from largen.regression.large import iterative

    swallowed, look = [], iterative.check

    def look_after_a_callback():
        if not swallowed:
            swallowed.append(_swallowed())
        look()

    monkeypatch.setattr(iterative, "check", look_after_a_callback)
    with pytest.raises(KeyboardInterrupt):
        lg.regression.large.solve_kernel(np.eye(4), X[:4, 0], noise=0.1)
    assert swallowed == ["raised at once"]


@pytest.mark.slow
def test_blocks_on_disk_say_how_to_go_on(tmp_path):
    pytest.importorskip("zarr")

    def store():
        return lg.regression.large.stored_kernel(
            tmp_path / "kernel", lg.mlp(1, "relu"), X[:30], block=8
        )

    stopped = interrupted(store, 3)
    assert f"blocks are in {tmp_path / 'kernel'}: the same call" in stopped.__notes__[0]
    np.testing.assert_allclose(store()["ntk"][:], lg.ntk_kernel(lg.mlp(1, "relu"), X[:30]))


COMMON = """
x = np.random.default_rng(0).normal(size=(60, 10))
data = lg.Dataset(x, np.sign(x[:, 0]))
"""
PROGRAMS = {
    "kernel": """
x = np.random.default_rng(0).normal(size=(6000, 10))
lg.kernel(lg.mlp(9, "tanh"), x)
""",
    "train": """
x = np.random.default_rng(0).normal(size=(200, 10))
data = lg.Dataset(x, x[:, 0])
run = lg.Run(lg.mlp(3, "tanh"), lg.ntk(), data, optimizer=lg.gd(0.1), steps=3000)
lg.train(run, width=512, seeds=4, key=0)
""",
    "mean field, one hidden layer": COMMON
    + """
run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.1), steps=20_000)
lg.solve(run, method="particles", particles=2**16)
""",
    "mean field, gradient flow": COMMON
    + """
flow = lg.gradient_flow(1.0)
run = lg.Run(lg.mlp(1, "relu"), lg.mean_field(), data, optimizer=flow, times=np.linspace(0, 500, 9))
lg.solve(run, method="particles", particles=2**14)
""",
    "mean field, deep": COMMON
    + """
run = lg.Run(lg.mlp(2, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.1), steps=20_000)
lg.solve(run)
""",
    "kernel limit, draws": COMMON
    + """
run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, "logistic", optimizer=lg.gd(0.1), steps=100_000)
lg.solve(run, draws=1000)
""",
    "kernel limit, standard deviations": """
x = np.random.default_rng(0).normal(size=(1200, 10))
data = lg.Dataset(x[:1000], x[:1000, 0], x[1000:], x[1000:, 0])
run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=lg.gd(0.1), steps=2000)
lg.solve(run)
""",
    "monte_carlo_kernel": COMMON
    + """
lg.networks.monte_carlo_kernel(lg.mlp(3, "tanh"), x, width=512, draws=10**5, key=0)
""",
    "solve_kernel": """
x = np.random.default_rng(0).normal(size=(4000, 10))
K = lg.nngp_kernel(lg.mlp(1, "relu"), x)
print("segment", flush=True)
lg.regression.large.solve_kernel(K, x[:, 0], noise=1e-12, rank=3500, rtol=1e-140, max_steps=10**6)
""",
    "sample_kernels": COMMON
    + """
lg.finite_width.sample_kernels(lg.mlp(3, "relu"), x[:3], width=64, draws=10**7, key=0)
""",
    "fit_likelihood": """
x = np.random.default_rng(0).normal(size=(900, 10))
print("segment", flush=True)
lg.regression.fit_likelihood(lg.mlp(5, "relu"), x, np.sin(3 * x[:, 0]), max_steps=10_000)
""",
    "response_functions": COMMON
    + """
data = lg.Dataset(x[:8], x[:8, 0])
run = lg.Run(lg.mlp(2, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.1), steps=30)
lg.theories.response_functions(run, replicates=500)
""",
    "stored_kernel": """
import tempfile
x = np.random.default_rng(0).normal(size=(6000, 10))
lg.regression.large.stored_kernel(tempfile.mkdtemp(), lg.mlp(9, "tanh"), x)
""",
    "sweep": """
from largen.sweeps import Grid, Task, sweep
from examples.models import ResidualMLP
x = np.random.default_rng(0).normal(size=(256, 64)).astype("float32")
task = Task(x, (x[:, 0] > 0).astype(int), steps=10**6)
print("segment\\nsegment", flush=True)
sweep(ResidualMLP, task, Grid(lrs=[0.1, 0.2], base=(64, 2), schemes=["mup"]))
""",
    "quickstart": """
import sys, tempfile
from largen.cli import main
sys.argv = ["largen", "quickstart", "-o", tempfile.mkdtemp()]
main()
""",
}
ONCE = ("solve_kernel", "fit_likelihood")  # how often these say that they have begun


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_ends_soon_and_in_order(name):
    after = np.random.default_rng(len(name)).uniform(0, 2)  # somewhere on the way
    seconds, error = killed(PROGRAMS[name], after, 1 if name in ONCE else 2)
    assert seconds < WITHIN, error
    if name == "quickstart":
        assert error.startswith("Interrupted. Nothing is saved")
        assert error.count("\n") == 1
    else:
        assert "KeyboardInterrupt" in error


@pytest.mark.slow
def test_a_deep_solution_goes_on_to_the_bit(tmp_path):
    data = lg.Dataset(X[:3], X[:3, 0])
    run = lg.Run(lg.mlp(2, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.2), steps=12)

    def solve(name):
        options = {"particles": 256, "replicates": 2, "max_particles": 512, "method": "sweep"}
        return lg.solve(run, checkpoint=tmp_path / name, progress=False, **options)

    stopped = interrupted(lambda: solve("stopped.npz"), 2)
    assert "the same call resumes from it" in stopped.__notes__[0]
    assert list((tmp_path / "stopped.npz.states").iterdir())
    again, whole = solve("stopped.npz"), solve("whole.npz")
    np.testing.assert_array_equal(again.f_train, whole.f_train)
    np.testing.assert_array_equal(again.f_train_error, whole.f_train_error)
