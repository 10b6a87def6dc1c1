"""Means of few replicates: standard errors, intervals, and how many are wanted."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from largen.theories.mean_field.deep.estimation.control_variate import correct, fit_error
from largen.theories.mean_field.engine.checkpoint import packed, unpacked
from largen.theories.mean_field.engine.replicates import Goal, Replicates, Seeds
from largen.theories.mean_field.engine.statistics import (
    NORMAL,
    Sums,
    margin,
    mean_and_error,
    replicates_for,
    widening,
)

DRAWS = 20_000


@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_intervals_of_few_replicates_contain_the_value(count):
    rng = np.random.default_rng(count)
    mean, error = mean_and_error(rng.standard_normal((count, DRAWS)))
    inside = np.mean(np.abs(mean) < margin(error, error, count))
    assert abs(inside - 0.95) < 4 * (0.95 * 0.05 / DRAWS) ** 0.5
    # Errors that do not depend on the number of replicates are those of a normal distribution.
    assert margin(np.ones(1), np.zeros(1), count) == pytest.approx(NORMAL)


def test_sums_are_the_mean_and_the_error_of_all():
    values = np.random.default_rng(1).standard_normal((7, 3)) + 2
    sums = Sums()
    for each in values:
        sums.add(each)
    for found, wanted in zip((sums.mean, sums.error), mean_and_error(values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(("count", "same"), [(3, False), (4, False), (4, True), (12, True)])
def test_errors_of_fitted_control_variates_are_those_of_means(count, same):
    """By the number of independent samples whose differences the coefficient is fitted to.

    With one of them Student's distribution has one degree of freedom less than the interval counts.
    """
    rng, samples, draws = np.random.default_rng(count), 8, 2000
    shape = count, draws, 1 if same else samples
    x, rest = (rng.standard_normal(shape) + np.zeros((1, 1, samples)) for _ in range(2))
    values, own = rest - 0.5 * x, -x  # exact values are 0
    exact = np.zeros((1, *values.shape[1:]))
    found = correct(values, exact, own)
    told = fit_error(values, found, exact, own)
    mean, bare = mean_and_error(found)
    inside, before = (
        np.mean(np.abs(mean / e)[:, 0] < widening(count) * NORMAL) for e in (told, bare)
    )
    assert (0.91 if same else 0.94) < inside < 0.98
    if count < 12:
        assert before < inside - (0.05 if same else 0.01)


def test_replicates_are_added_until_the_interval_is_that_of_rtol():
    assert replicates_for(1.0, 4, 1 / widening(4), 100) == 4
    assert replicates_for(1.0, 4, 0.99, 100) == 7
    assert widening(6) * 0.99 * (4.4 / 6) ** 0.5 > 1 > widening(7) * 0.99 * (4.4 / 7) ** 0.5
    assert replicates_for(1.0, 4, 10.0, 1000) == 443
    assert widening(443) * 10.0 * (4.4 / 443) ** 0.5 < 1 < widening(442) * 10.0 * (4.4 / 442) ** 0.5
    assert replicates_for(1.0, 4, 100.0, 7) == 7
    assert replicates_for(1.0, 4, 100.0, 2) == 4
    assert replicates_for(1.0, 1, np.nan, 100) == 1


class Part(NamedTuple):
    """A record in a record."""

    x: np.ndarray
    why: str | None
    much: np.ndarray | None


class Whole(NamedTuple):
    """What is written: all that records may have."""

    number: int
    size: float
    name: str
    by_name: dict[str, np.ndarray]
    parts: list[Part]


def test_records_are_read_as_they_are_written():
    parts = [Part(np.arange(3) + i, None, np.ones(2)) for i in range(2)]
    for some in (parts, [], [part._replace(much=None) for part in parts]):
        one = Whole(3, 0.1, "float32", {"f": np.zeros(2)}, some)
        held = {name: np.asarray(each) for name, each in packed([one, one], "all").items()}
        found = unpacked(list[Whole], held | {"allocated": np.zeros(1)}, "all")
        assert str(found) == str([one, one])
    assert unpacked(dict[str, np.ndarray], packed({}, "x"), "x") == {}


class Dice:
    """Replicates that are draws about 1."""

    def __init__(self, spread, diverges=-1):
        self.spread, self.diverges, self.seeds = spread, diverges, Seeds(np.random.default_rng(5))

    def begin(self, tell):
        return "fine", None, self.replicate("fine", 0, tell)

    def replicate(self, common, number, tell):
        draw = np.random.default_rng(self.seeds[number]).standard_normal()
        return common, np.nan if number == self.diverges else 1 + self.spread * draw

    def ended(self, result):
        return np.isfinite(result[1])

    def error(self, found):
        return float(mean_and_error(np.array([x for _, x in found]))[1])


@pytest.mark.parametrize("at_once", [1, 3])
def test_replicates_of_a_plan(at_once):
    told = []

    def run(plan, supposed: str | None = "fine", rounds=None, kept=None):
        goal = Goal(0.1, rounds, 4, 1000)
        replicates = Replicates(plan, supposed, goal, at_once, lambda *now: told.append(now))
        return replicates.run(kept).replicates

    many = run(Dice(0.3))
    assert widening(len(many)) * Dice(0.3).error(many) <= 0.1
    assert told[-1] == (100 * len(many), 100 * len(many))
    assert all(a[0] <= b[0] for a, b in pairwise(told))
    # Those that began with what did not suffice are computed again.
    assert run(Dice(0.3), "rough") == run(Dice(0.3), None) == many
    assert len(run(Dice(0.3), rounds=5)) == 5
    some = Replicates(Dice(0.3), None, Goal(0.1, 3, 4, 1000), at_once, lambda *now: None).run()
    assert run(Dice(0.3), kept=some) == many
    assert len(run(Dice(0.3, diverges=2))) == 3


def test_a_resumed_call_comes_to_the_same_replicates():
    """Whenever it was interrupted: errors of more replicates than were looked at decide nothing."""

    def run(kept=None, told=None):
        goal, tell = Goal(0.05, None, 4, 1000), lambda *now: told is None or told.append(now)
        return Replicates(Dice(0.3), "fine", goal, 1, tell).run(kept)

    whole = run()
    assert len(whole.replicates) > 16
    for cut in range(1, len(whole.replicates) + 1):
        told = []
        again = run(whole._replace(replicates=whole.replicates[:cut]), told)
        assert again.replicates == whole.replicates
        assert told[-1] == (100 * len(again.replicates),) * 2
        # The time before the first report is not that of replicates.
        assert cut == len(whole.replicates) or told[0][0] > 100 * cut


def test_more_replicates_are_foreseen_before_the_first_estimate():
    told = []
    goal = Goal(0.05, None, 12, 1000)
    found = Replicates(Dice(0.3), "fine", goal, 1, lambda *now: told.append(now)).run().replicates
    before = [total / 100 for done, total in told if 500 <= done < 1200]
    assert 12 < min(before) < max(before) < 2 * len(found)
    assert before[-1] > len(found) / 2


def test_all_replicates_are_foreseen_from_the_first_estimate(monkeypatch):
    told = []
    monkeypatch.setattr(Dice, "error", lambda self, found: self.spread / len(found) ** 0.5)
    run = Replicates(Dice(0.3), "fine", Goal(0.02, None, 4, 1000), 1, lambda *now: told.append(now))
    count = len(run.run().replicates)
    assert count > 4 * 4 * 4  # more than three rounds
    after = {total / 100 for done, total in told if done > 400}
    assert count <= min(after) <= max(after) < 1.2 * count


def test_an_error_of_few_replicates_does_not_decide_alone(monkeypatch):
    """A first error that is a hundred times too large asks for four times as many, not for all."""

    def error(self, found):
        return (100 if len(found) == 4 else 1) * self.spread / len(found) ** 0.5

    monkeypatch.setattr(Dice, "error", error)
    run = Replicates(Dice(0.1), "fine", Goal(0.1, None, 4, 1000), 1, lambda *now: None)
    assert len(run.run().replicates) == 16
