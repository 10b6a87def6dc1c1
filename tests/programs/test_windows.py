"""Windows that slide along axes, against plain sums over offsets."""

import numpy as np
import pytest
from jax import lax

from largen.programs.windows import Window, slides

LENGTH, TAPS = 5, 3
VALUES = np.random.default_rng(0).normal(size=(LENGTH, 2)).astype(np.float32)


def summed(window, array, axis):
    (slide,) = slides(window, (array.shape[axis],))
    return np.asarray(slide.summed(slide.extended(array, axis), axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_periodic_transposed_windows_spread_every_position(axis, stride):
    array = np.moveaxis(VALUES, 0, axis)
    window = Window((TAPS,), (stride,), (1,), "CIRCULAR", transposed=True)
    found = np.moveaxis(summed(window, array, axis), axis, 0)
    spread = np.zeros((LENGTH * stride, 2))
    spread[::stride] = np.moveaxis(array, axis, 0)
    around = [sum(np.roll(spread, k + start, 0) for k in range(TAPS)) for start in range(-TAPS, 1)]
    assert any(np.allclose(found, wanted, rtol=1e-6) for wanted in around)


@pytest.mark.parametrize("axis", [0, 1])
def test_windows_with_zeros_around(axis):
    array = np.moveaxis(VALUES, 0, axis)
    found = np.moveaxis(summed(Window((TAPS,), (1,), (1,)), array, axis), axis, 0)
    padded = np.pad(np.moveaxis(array, axis, 0), ((1, 1), (0, 0)))
    wanted = sum(padded[k : k + LENGTH] for k in range(TAPS))
    np.testing.assert_allclose(found, wanted, atol=4e-6)  # single precision


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize(("taps", "stride"), [(3, 2), (2, 3), (4, 2)])
def test_transposed_windows_are_those_of_jax(padding, taps, stride):
    window = Window((taps,), (stride,), (1,), padding, transposed=True)
    wanted = lax.conv_transpose(
        VALUES.T[:, :, None], np.ones((taps, 1, 1), np.float32), (stride,), padding,
        dimension_numbers=("NHC", "HIO", "NHC"),
    )[:, :, 0].T  # fmt: skip
    np.testing.assert_allclose(summed(window, VALUES, 0), wanted, atol=4e-6)


def test_taps_have_factors():
    factors = 0.5, 2.0, 1.0
    window = Window((TAPS,), (1,), (1,), "VALID", weights=(factors,))
    wanted = sum(f * VALUES[k : k + TAPS] for k, f in enumerate(factors))
    np.testing.assert_allclose(summed(window, VALUES, 0), wanted, atol=4e-6)
