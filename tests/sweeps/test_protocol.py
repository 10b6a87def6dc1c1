"""Transfer itself, on digits by gradient descent: what the schemes promise, and what they do not.

A residual MLP without normalisation, 200 steps of 128 samples. The base is width 64 and depth 4;
grids are coarse where networks are deep.
"""

import numpy as np
import pytest

from examples.models import ResidualMLP
from examples.tasks import digits_task
from largen.sweeps import Grid, sweep

pytestmark = pytest.mark.slow


def lrs(width, depth):
    if depth == 64:
        return [2.0**k for k in (-12, -8, -4, -3, -2, -1, 0)] if width == 64 else []
    return [2.0**k for k in (range(-9, 1) if depth == 16 else range(-4, 1))]


def swept(scheme):
    grid = Grid(lrs=lrs, base=(64, 4), widths=[64, 128], depths=[4, 16, 64], schemes=[scheme])
    return sweep(ResidualMLP, digits_task(200, 128), grid)


def test_depth_mup_keeps_the_best_rate_in_width_and_depth():
    found = swept("depth_mup")
    best = found.best().squeeze("scheme")
    ran = [(64, 4), (64, 16), (64, 64), (128, 4), (128, 16)]
    assert all(bool(best["trains"].sel(width=n, depth=l)) for n, l in ran)
    # One factor of two, between best rates of the grid: where losses are 0.001, the interpolation
    # between its points moves by 0.3 with the processor's instructions.
    assert np.ptp([float(best["grid"].sel(width=n, depth=l)) for n, l in ran]) <= 1.0
    # The minimum is not flat: losses at the transferred rate are near the best ones, too. Single
    # networks of 64 blocks oscillate there (0.4 to 2.7; five of them together 1.25). A rate four
    # times too small costs 7.
    ratio = found.transferred()["ratio"].squeeze("scheme")
    assert float(ratio.sel(depth=[4, 16]).max()) < 1.5
    assert float(ratio.sel(depth=64, width=64)) < 3.0
    deep = found.data["loss"].sel(depth=64, width=64).squeeze()
    assert float(deep.sel(lr=2.0**-4)) > 6 * float(best["loss"].sel(depth=64, width=64))


def test_mup_drifts_with_the_depth_and_cannot_train_deep_networks():
    found = swept("mup")
    drift = found.drift("depth").squeeze("scheme")
    assert float(drift.sel(depth=16, width=128)) <= -3.0
    assert float(drift.sel(depth=16, width=64)) <= -2.0
    assert not found.best()["trains"].sel(width=64, depth=64).any()
    assert np.isinf(found.transferred()["transferred"].sel(depth=16)).all()


def test_the_standard_parameterization_drifts_in_both():
    found = swept("standard")
    for along, least in (("depth", 3.0), ("width", 1.0)):
        drift = found.drift(along).squeeze("scheme")
        assert float(drift.sel(depth=16, width=128)) <= -least
    assert not found.best()["trains"].sel(width=64, depth=64).any()
