"""Limits of runs drawn at random against networks: a few here, more in ``tests.properties``."""

import pytest
from tests.properties import WORST, draw, z_score


@pytest.mark.slow
def test_one_hidden_layer():
    """Momentum and a shift along the abc-symmetry, in the mean field."""
    assert abs(z_score(draw(3, most_layers=1, networks=24))) < WORST


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_any_depth(seed):
    assert abs(z_score(draw(seed))) < WORST
