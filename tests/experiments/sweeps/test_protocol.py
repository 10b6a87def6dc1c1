"""Transfer itself, on digits by gradient descent: what the schemes promise, and what they do not.

A residual MLP without normalisation, 200 steps of 128 samples. The base is width 64 and depth 4;
grids are coarse where networks are deep.
"""

import numpy as np
import pytest

from largen.experiments.sweeps import sweep
from largen.experiments.sweeps.tasks import digits_task
from largen.transfer.torch.models import ResidualMLP

pytestmark = pytest.mark.slow


def lrs(width, depth):
    if depth == 64:
        return [2.0**k for k in (-12, -8, -4, -3, -2, -1, 0)] if width == 64 else []
    return [2.0**k for k in (range(-9, 1) if depth == 16 else range(-4, 1))]


@pytest.fixture(scope="module")
def found():
    return sweep(
        ResidualMLP, digits_task(200, 128), lrs=lrs, base=(64, 4), widths=[64, 128],
        depths=[4, 16, 64],
    )  # fmt: skip


def test_depth_mup_keeps_the_best_rate_in_width_and_depth(found):
    best = found.best().sel(scheme="depth_mup")
    ran = [(64, 4), (64, 16), (64, 64), (128, 4), (128, 16)]
    at = np.array([float(best["log2_lr"].sel(width=n, depth=l)) for n, l in ran])
    assert all(bool(best["trains"].sel(width=n, depth=l)) for n, l in ran)
    assert np.ptp(at) <= 1.0
    # The minimum is not flat: losses at the transferred rate are near the best ones, too.
    ratio = found.transferred()["ratio"].sel(scheme="depth_mup")
    assert float(ratio.sel(depth=[4, 16]).max()) < 1.5
    assert float(ratio.sel(depth=64, width=64)) < 3.0


def test_mup_drifts_with_the_depth_and_cannot_train_deep_networks(found):
    drift = found.drift("depth").sel(scheme="mup")
    assert float(drift.sel(depth=16, width=128)) <= -3.0
    assert float(drift.sel(depth=16, width=64)) <= -2.0
    assert not bool(found.best()["trains"].sel(scheme="mup", width=64, depth=64))
    assert np.isinf(found.transferred()["transferred"].sel(scheme="mup", depth=16)).all()


def test_the_standard_parameterization_drifts_in_both(found):
    assert float(found.drift("depth").sel(scheme="standard", depth=16, width=128)) <= -3.0
    assert float(found.drift("width").sel(scheme="standard", depth=16, width=128)) <= -1.0
    assert not bool(found.best()["trains"].sel(scheme="standard", width=64, depth=64))
