"""Patches that an affine map with several taps reads, and their transpose."""

import numpy as np
import pytest

from largen.programs.operations import Affine
from largen.programs.receptive_fields import View, gather, scatter
from largen.programs.windows import Window

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


@pytest.mark.parametrize("tied", [True, False])
def test_an_affine_map_has_the_covariance_of_weighted_sums_over_windows(tied):
    factors = np.array([0.5, 2.0, 1.0])
    window = Window((3,), (1,), (1,), weights=(tuple(factors),))
    reading, view = View.of((BEFORE,)).read_by(Affine((0,), 0, window, tied))
    x = np.random.default_rng(0).normal(size=(BEFORE, 1))
    values = reading.taps @ x  # (tap, position, channel); weights have unit variance
    covariance = np.einsum("kac,kbc->ab", values, values)
    padded = np.pad(x[:, 0], 1)
    patches = np.stack([padded[a : a + 3] for a in range(BEFORE)])
    wanted = (factors * patches) @ patches.T
    np.testing.assert_allclose(covariance, wanted if tied else np.diag(np.diag(wanted)), atol=1e-6)
    assert view.space == (BEFORE,)
