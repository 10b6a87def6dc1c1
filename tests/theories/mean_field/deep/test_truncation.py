"""What directions change that were too small to be kept, on one network and on others."""

from functools import partial

import numpy as np
import pytest

import largen as lg
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.estimation import replicates
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.estimation.truncation import (
    add_remainder,
    change_of,
    uncertain,
    values_of,
)
from largen.theories.mean_field.deep.sweep.schedule import descent
from largen.theories.mean_field.record_times import Recorded

DEEP = "largen.theories.mean_field.deep"

RNG = np.random.default_rng(8)
X, Y = RNG.standard_normal((6, 12)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
STEPS, LAST = 30, Recorded(np.array([30]), np.zeros((0, 2), int))
EFFORT = NumericalSettings(1e-2, 1024, 1, 1024, "variance_reduced", 0.1, np.float64)
SMOOTH, KINKED = (
    lg.Run(lg.mlp(3, name), lg.mean_field(), lg.Dataset(X, Y), optimizer=lg.gd(rate), steps=STEPS)
    for name, rate in (("tanh", 1.0), ("relu", 0.1))
)


def networks(run, seed, tolerances):
    """Return one network trained with finer and finer tolerances."""
    one = partial(
        replicates._random, posed_by(run).problem, run, LAST, seed=seed, schedule=descent(run)
    )
    found, known = [], None
    for tolerance in tolerances:
        found.append(one(EFFORT._replace(tolerance=tolerance), known=known))
        # The matrices are used up by the next one.
        known, found[-1] = found[-1].matrices, found[-1]._replace(matrices=None)
    return found


@pytest.mark.slow
def test_one_network_tells_of_others():
    """What is left out by another network is made up for, up to the error that is told."""
    posed = posed_by(SMOOTH).problem
    change = change_of(posed, SMOOTH, *networks(SMOOTH, 1, [0.1, 0.1 / 3]))
    rough, exact = (values_of(posed, SMOOTH, one) for one in networks(SMOOTH, 2, [0.1, 1e-3]))
    for name, moved in change.items():
        nothing = np.zeros(rough[name].shape)
        better, told = add_remainder(posed, name, rough[name], nothing, moved)
        before, after, told = map(
            np.linalg.norm, (rough[name] - exact[name], better - exact[name], told)
        )
        assert after < 1.5 * told, name
        # What changes of features is not the same for others.
        if name != "feature_kernel":
            assert after < 0.65 * before, name


def test_where_slopes_jump_all_of_it_is_an_error():
    mean, error, change = RNG.standard_normal((3, 4))
    posed = posed_by(KINKED).problem
    found, off = add_remainder(posed, "f", mean, np.abs(error), change)
    np.testing.assert_array_equal(found, mean)
    np.testing.assert_allclose(off, np.hypot(error, change))
    np.testing.assert_allclose(uncertain(posed, "f", change), np.abs(change))


@pytest.mark.parametrize("run", [SMOOTH, KINKED], ids=["smooth", "kinked"])
def test_what_is_not_known_changes_nothing_and_is_no_error_of_zero(run):
    mean, change = RNG.standard_normal((2, 4))
    change[2] = np.nan
    found, error = add_remainder(posed_by(run).problem, "f", mean, np.zeros(4), change)
    assert found[2] == mean[2]
    np.testing.assert_array_equal(np.isnan(error), np.isnan(change))


@pytest.mark.slow
def test_solutions_have_it(monkeypatch):
    """The mean is moved by what the trial has found, outputs and kernels alike."""
    found = []

    def told(*args):
        found.append(change_of(*args))
        return found[-1]

    options = {"particles": 512, "replicates": 2, "rtol": 1e-2, "method": "sweep"}
    monkeypatch.setattr(replicates, "change_of", told)
    moved = lg.solve(SMOOTH, **options)
    monkeypatch.setattr(
        f"{DEEP}.estimation.averages.add_remainder",
        lambda problem, name, mean, error, change: (mean, error),
    )
    bare = lg.solve(SMOOTH, **options)
    change = {"f_train" if name == "f" else name: each for name, each in found[0].items()}
    assert len(change) == 4
    for name, each in change.items():
        difference = getattr(moved, name) - getattr(bare, name)
        np.testing.assert_allclose(difference, each.reshape(difference.shape), atol=1e-6)
        assert np.abs(difference).max() > 1e-3
