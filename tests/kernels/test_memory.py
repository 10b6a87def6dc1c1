"""Tiles that follow from a memory budget."""

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput
from largen.expectations import with_kinks
from largen.kernels import tiles
from largen.programs import program_of

X = np.random.default_rng(12).standard_normal((11, 6, 2))
RELU = lg.Activation("relu")
NET = lg.serial(lg.Conv((3,)), RELU, lg.layers.AvgPool((1,)), lg.GlobalAvgPool(), lg.Dense())


@pytest.mark.slow
def test_sizes_follow_from_the_budget_and_need_not_divide(monkeypatch):
    used = []
    monkeypatch.setattr(
        "largen.kernels.nngp_ntk.tile_size",
        lambda *args: used.append(tiles.tile_size(*args)) or used[-1],
    )
    budget = 8 * tiles.ARRAYS * 36 * (4**2 + 4)  # four samples of 6² pairs of positions
    whole, cut = lg.kernel(NET, X), lg.kernel(NET, X, memory_budget=budget)
    assert used == [11, 4]
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
        np.testing.assert_array_equal(b, b.T)


def test_largest_tiles():
    tanh, pairs = program_of(lg.mlp(2, "tanh"), 3), 8 * tiles.ARRAYS * 36
    net = program_of(NET, X.shape[1:])
    assert tiles.tile_size(tanh, 5000) == 500
    assert tiles.tile_size(tanh, 5000, (), tiles.fitting(tanh, 1, 2.0**24)) < 300
    assert tiles.fitting(net, 6, pairs * (9**2 + 9)) == 9
    assert tiles.fitting(net, 6, pairs * (9**2 + 9) - 1) == 8
    kinks = with_kinks(jnp.tanh, range(8))  # XLA's own count at 8 kinks: 193 arrays
    pieces = program_of(lg.mlp(2, kinks), 3)
    assert 193 < 1e6 / (8 * tiles.fitting(pieces, 1, 1e6) ** 2) < 300


def test_positions_are_counted_where_they_are_most():
    grown = lg.serial(
        lg.layers.Axes("CT"),
        lg.layers.ConvTranspose((2,), strides=2),
        lg.Flatten(),
        *[lg.Dense()] * 3,
    )
    assert tiles.most_positions(grown, (99, 6)) == 12
    assert (
        tiles.most_positions(lg.serial(lg.Conv((3,), strides=2), lg.Flatten(), lg.Dense()), (6, 1))
        == 6
    )
    assert tiles.most_positions(lg.mlp(3), 5) == 1
    lg.kernel(grown, np.ones((2, 3, 6)))


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (9000, "memory_budget: one pair of samples, with every pair of positions of 6, needs about "
         "9.2e.03 bytes, and the budget is 9e.03"),
        (0, "memory_budget: wanted"),
    ],
)  # fmt: skip
def test_too_small(budget, words):
    with pytest.raises(InvalidInput, match=words):
        lg.nngp_kernel(NET, X, memory_budget=budget)


def test_the_kernel_limit_has_a_budget():
    run = lg.Run(NET, lg.ntk(), lg.Dataset(X[:4], np.ones(4)), optimizer=lg.gd(0.1), steps=2)
    with pytest.raises(InvalidInput, match="memory_budget: one pair"):
        lg.solve(run, memory_budget=9000)
