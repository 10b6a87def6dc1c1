"""Patches that an affine map with several taps reads, and their transpose."""

import numpy as np
import pytest

from largen.programs.receptive_fields import gather, scatter

SAMPLES, BEFORE, BEHIND, TAPS, CHANNELS = 3, 5, 4, 2, 3


@pytest.fixture
def taps_and_features():
    rng = np.random.default_rng(0)
    return rng.normal(size=(TAPS, BEHIND, BEFORE)), rng.normal(size=(SAMPLES * BEFORE, CHANNELS))


def test_patches_are_sums_over_positions(taps_and_features):
    taps, x = taps_and_features
    wanted = np.einsum("koi,sic->sokc", taps, x.reshape(SAMPLES, BEFORE, CHANNELS))
    np.testing.assert_allclose(gather(taps, x), wanted.reshape(SAMPLES * BEHIND, -1), rtol=1e-12)


def test_what_returns_is_the_transpose(taps_and_features):
    taps, x = taps_and_features
    patches = np.random.default_rng(1).normal(size=(SAMPLES * BEHIND, TAPS * CHANNELS))
    assert np.vdot(patches, gather(taps, x)) == pytest.approx(np.vdot(scatter(taps, patches), x))
