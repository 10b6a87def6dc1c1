"""Weights whose fan-in is a product of widths: the rule of a matrix that is not square."""

import pytest

import largen as lg
from largen.transfer.initial import InitialDistribution
from largen.transfer.resolve import FoundWeight, resolve
from largen.transfer.updates import update

N = 16.0  # ratio of the fan-in; that of the fan-out is 4, since the fan-in is a product of two


@pytest.mark.parametrize(
    ("optimizer", "lr"),
    [
        ("sgd", 4 / N),  # fan-out over fan-in
        ("adam", 1 / N),
        ("muon", (4 / N) ** 0.5),  # the spectral norm of updates
    ],
)
def test_products_of_two_signals_are_read_by_matrices_that_are_wide(optimizer, lr):
    shapes = (4, 16), (16, 256)
    found = FoundWeight(
        "w", "hidden", False, *shapes, N, N, InitialDistribution(0.1, -0.5), factors=2
    )
    own = resolve(lg.mup(), update(optimizer), found, 1.0)
    assert own.lr == pytest.approx(lr)
    if optimizer == "adam":
        assert own.eps == pytest.approx(1 / 4)  # ∝ 1/fan-out, as the gradients are
