"""Figures and tables on networks at initialisation: what is claimed, and what came out."""

import pytest

from papers import figure, produce
from papers.verdicts import equals


def verdicts(name, folder):
    done = produce(figure(name), {}, folder, fast=True)
    assert all(path.stat().st_size for path in done.files)
    return [claim.agrees for claim in done.claims]


@pytest.mark.slow
def test_phase_diagram(tmp_path):
    # The last one is Theorem 4.1 of the lectures, whose exponent fails for tanh: correlations
    # freeze at 0.4405.
    assert verdicts("003-1", tmp_path) == [True, True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # Both orders of the limits, and (1.3.10) as printed.
        ("002-1.5", [True, True, True, False, False, True, False]),
        # e^β for E J⁴/(E J²)², 12/n₀² on the output, and exp(5β) for the NTK's change.
        ("003-5.1", [True, True, False, True, False, True, True, False, True]),
        # As printed, the lemma's rate is half of the best.
        ("002-3.2", [True, True, False]),
    ],
)
def test_numbered_results(name, wanted, tmp_path):
    assert verdicts(name, tmp_path) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # ξ_c for its inverse in (43).
        ("003-1.7", [True, False, None, False, True]),
        # κ₄ of the next layer.
        ("003-4.2", [True, True, True, True, False, True, True]),
        # N(−L/2N, L/N).
        ("002-1.6", [True, False, True] * 2),
        # Third moments have too large errors for a verdict with few networks.
        ("002-2.2", [True] * 7 + [None, True]),
    ],
)
def test_numbered_results_by_more_networks(name, wanted, tmp_path):
    assert verdicts(name, tmp_path) == wanted


@pytest.mark.slow
def test_shaped_networks(tmp_path):
    # σ_W = 1 for the shaped relu, and σ_W² in (2.3.1).
    *shaped, printed, right, misprinted = verdicts("002-2.3", tmp_path)
    assert False not in shaped
    assert [printed, right, misprinted] == [False, True, False]


@pytest.mark.parametrize(
    ("pair", "wanted", "agrees"),
    [
        ((1.0, 0.01), 1.01, True),
        ((1.0, 0.01), 2.0, False),
        ((1.0, 0.5), 1.0, None),
        ((0.0, 0.0), 0.0, True),
    ],
)
def test_verdicts_follow_from_intervals(pair, wanted, agrees):
    assert equals("", "", pair, wanted, 0.05).agrees is agrees


@pytest.mark.slow
def test_depth_over_width(tmp_path):
    # Theorem 5.1 has e^β, and e^{5β} in print, for the second moment of the tangent kernel.
    assert verdicts("003-2", tmp_path) == [True, True, False, False, True]


@pytest.mark.slow
def test_corrections_beside_samples(tmp_path):
    # Errors of shifts are too large for a verdict with few networks.
    assert False not in verdicts("2508.11522-table", tmp_path)
