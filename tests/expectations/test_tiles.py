"""Tiles of arrays of pairs."""

import jax.numpy as jnp
import numpy as np
import pytest

from largen.expectations.tiles import TILE, over_tiles


@pytest.mark.parametrize(
    "shape", [(3, 4), (2 * TILE + 5, 3), (TILE + 1, 2 * TILE), (2, TILE + 7, 3)]
)
def test_tiles_together_are_the_whole(shape):
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape))
    twice, squares = over_tiles(lambda tile: (2 * tile.of(x), tile.of(x) ** 2), shape)
    np.testing.assert_array_equal(twice, 2 * x)
    np.testing.assert_array_equal(squares, x**2)
