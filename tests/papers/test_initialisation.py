"""Figures and tables on networks at initialisation: what is claimed, and what came out."""

import pytest

from papers import figure, produce


def verdicts(name, folder):
    done = produce(figure(name), {}, folder, fast=True)
    assert all(path.stat().st_size for path in done.files)
    return [claim.agrees for claim in done.claims]


def test_phase_diagram(tmp_path):
    # The last one is Theorem 4.1 of the lectures, whose exponent fails for tanh: correlations
    # freeze at 0.4405.
    assert verdicts("003-1", tmp_path) == [True, True, True, False]


@pytest.mark.slow
def test_depth_over_width(tmp_path):
    # Theorem 5.1 has e^β, and e^{5β} in print, for the second moment of the tangent kernel.
    assert verdicts("003-2", tmp_path) == [True, True, False, False, True]


@pytest.mark.slow
def test_corrections_beside_samples(tmp_path):
    # Errors of shifts are too large for a verdict with few networks.
    assert False not in verdicts("2508.11522-table", tmp_path)
