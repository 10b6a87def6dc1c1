"""Closed equations of linear residual networks take the memory that they are given, and no more."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure, OutOfMemory
from largen.runs import Status
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.estimation.memory import closed_equations_fit
from largen.theories.mean_field.deep.method import choose_method
from largen.theories.mean_field.deep.sweep.advance import COPIES
from largen.theories.mean_field.deep.sweep.linear import Size, first_rows
from largen.theories.mean_field.deep.sweep.start import initial_matrices, unit

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 5)), RNG.normal(size=3)
BUDGET = 2.0**32


def run_of(blocks, steps, rate=0.2):
    net, data = lg.residual_mlp(blocks, "linear"), lg.Dataset(X, Y)
    return lg.Run(net, lg.depth_mup(), data, optimizer=lg.gd(rate), steps=steps)


def problem(run):
    return posed_by(run).problem


def test_what_is_counted_is_what_matrices_take():
    posed = problem(run_of(4, 10))
    size = Size.of(posed, 37)
    start, _ = unit(posed, size.units, np.float32)
    matrices = initial_matrices(start, (size.capacity, size.capacity))
    parts = (*matrices.inputs[:2], *matrices.outputs[:2], matrices.change)
    assert COPIES * 8 * sum(part.size for part in parts) == size.held


def test_few_steps_take_little():
    """64 blocks, three samples, ten steps: 2 GB, where room for most runs would take 17."""
    short, long = problem(run_of(64, 10)), problem(run_of(64, 1000))
    assert Size.of(short, first_rows(short, 10)).held < 2.1e9
    assert Size.of(long, first_rows(long, 1000)).held > 1.3e10


@pytest.mark.parametrize(("steps", "method"), [(10, "closed"), (1000, "sweep")])
def test_the_default_method_fits(steps, method):
    run = run_of(64, steps)
    fits = closed_equations_fit(problem(run), run, BUDGET)
    assert choose_method("auto", problem(run), steps, None, False, fits) == method


@pytest.mark.slow
def test_less_room_gives_the_same():
    run, tight = run_of(3, 12), 4e6
    rows = first_rows(problem(run), 12)
    assert Size.of(problem(run), rows).held > tight > Size.of(problem(run), 32).held
    wide, narrow = (
        lg.solve(run, method="closed"),
        lg.solve(run, method="closed", memory_budget=tight),
    )
    np.testing.assert_allclose(narrow.f_train, wide.f_train, atol=1e-12)
    np.testing.assert_allclose(narrow.feature_kernel, wide.feature_kernel, atol=1e-12)


@pytest.mark.slow
def test_directions_that_outgrow_it_on_the_way():
    run = run_of(3, 60, rate=0.5)
    budget = Size.of(problem(run), 32).held
    with pytest.raises(NumericalFailure, match=r"memory_budget: .* for 64 directions") as raised:
        lg.solve(run, method="closed", memory_budget=budget)
    found = raised.value.result
    assert found.status is Status.OUT_OF_MEMORY
    whole, there = lg.solve(run), np.isfinite(found.f_train).all(axis=1)
    assert 10 < there.sum() < 60
    np.testing.assert_allclose(found.f_train[there], whole.f_train[there], atol=1e-9)


def test_what_never_fits(monkeypatch):
    with pytest.raises(InvalidInput, match=r"memory_budget: .* 65 layers .* method='sweep'"):
        lg.solve(run_of(64, 10), method="closed", memory_budget=1e8)
    monkeypatch.setattr("largen.memory.available_bytes", lambda: 1e8)
    with pytest.raises(OutOfMemory, match=r"closed equations of 65 layers"):
        lg.solve(run_of(64, 10), method="closed")
    with pytest.raises(OutOfMemory, match=r"neurons a layer by the method 'sweep'"):
        lg.solve(run_of(64, 10), method="sweep")
