"""The best rate on a grid."""

import numpy as np
import pytest

from largen.sweeps.optimum import optimum

X = np.arange(-6.0, 1.0)


def test_a_parabola_is_found_between_grid_points():
    for centre in (-3.4, -2.0, -1.1):
        assert optimum(X, np.exp(0.3 * (X - centre) ** 2)[None]).at == pytest.approx(centre)


def test_the_neighbour_diverged_so_the_grid_point_is_kept():
    losses = np.where(X > -2, np.inf, np.exp(-X))[None]
    found = optimum(X, losses)
    assert (found.at, found.low, found.high, found.edge) == (-2.0, -2.5, -1.5, False)


def test_ends_of_the_grid_are_said():
    assert optimum(X, np.exp(-X)[None]).edge
    assert optimum(X, np.exp(X)[None]).edge


def test_rates_at_which_one_seed_diverged_are_not_chosen():
    losses = np.stack([np.exp(-X), np.where(X > -3, np.inf, np.exp(-X))])
    assert optimum(X, losses).grid == -3.0


def test_nothing_trained():
    found = optimum(X, np.full((2, 7), np.inf))
    assert np.isnan(found.at)
    assert not found.edge


def test_rates_that_were_not_run_are_left_out():
    losses = np.exp((X + 2) ** 2)[None]
    losses[:, ::2] = np.nan
    found = optimum(X, losses)
    assert found.at == pytest.approx(-2.0)
    assert found.high - found.low == pytest.approx(2.0)


def test_the_interval_holds_rates_that_noise_does_not_tell_apart():
    draw = np.random.default_rng(0)
    flat = 1.0 + 0.001 * (X + 3) ** 2 + 0.05 * draw.normal(size=(6, 7))
    sharp = 1.0 + 0.5 * (X + 3) ** 2 + 0.05 * draw.normal(size=(6, 7))
    assert optimum(X, flat).high - optimum(X, flat).low >= 4.0
    assert optimum(X, sharp).high - optimum(X, sharp).low == pytest.approx(1.0)
