"""Inputs and networks that cannot be meant: each is named, with what was got and what is wanted."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure

IMAGES, ROWS = np.ones((2, 6, 6, 3)), np.ones((2, 5))
CONV, DENSE, RELU, STRIDED = lg.Conv((3, 3)), lg.Dense(), lg.Activation("relu"), lg.Conv((3, 3), 2)
END = (lg.Flatten(), DENSE)
CNN = lg.serial(CONV, RELU, *END)


@pytest.mark.parametrize(
    ("net", "x", "options", "words"),
    [
        (CNN, np.full_like(IMAGES, np.nan), {}, "216 of 216 entries are NaN"),
        (CNN, IMAGES.astype(np.uint8), {}, "wanted floats, got dtype uint8"),
        (CNN, IMAGES.astype(complex), {}, "wanted floats, got dtype complex"),
        (CNN, IMAGES[:0], {}, "x1: is empty"),
        (CNN, IMAGES[0], {}, "2 spatial axes"),
        (CNN, IMAGES, {"x2": IMAGES[..., :1]}, "x2: its samples have the shape"),
        (CNN, IMAGES, {"x2": IMAGES[0]}, "x2: wanted 4 axes"),
        (lg.mlp(1, "tanh"), ROWS, {"rtol": -1}, "rtol: wanted"),
        (lg.mlp(1), ROWS, {"mask1": ROWS > 0}, "have no positions"),
        (lg.mlp(1), IMAGES, {}, "spatial axes"),
        (lg.serial(CONV, RELU, DENSE), IMAGES, {}, "spatial axes"),
        (lg.serial(CONV, lg.AvgPool((7, 7)), *END), IMAGES, {}, "larger than the sample"),
        (lg.serial(lg.Conv((3,)), *END), IMAGES, {}, "1 spatial axes"),
        (lg.serial(DENSE, lg.GlobalAvgPool(), DENSE), ROWS, {}, "to pool over"),
        (lg.serial(CONV, lg.Residual(STRIDED), *END), IMAGES, {}, "different shapes"),
        (lg.serial(CONV, lg.Concatenate(CONV, STRIDED), *END), IMAGES, {}, "side by side"),
        (lg.serial(CONV, lg.Product(CONV, STRIDED), *END), IMAGES, {}, "different shapes"),
        (lg.serial(CONV, lg.repeat(STRIDED, 2), *END), IMAGES, {}, "does not keep the shape"),
        (lg.Flatten(), IMAGES, {}, "at least two affine maps"),
    ],
)
def test_bad_inputs(net, x, options, words):
    with pytest.raises(InvalidInput, match=words):
        lg.kernel(net, x, **options)


@pytest.mark.parametrize("before", [(), (lg.LayerNorm(),), (lg.Concatenate(CONV, CONV),)])
def test_groups_of_channels_that_are_not_alike(before):
    net = lg.serial(*before, lg.Conv((1, 1), groups=3), RELU, *END)
    with pytest.raises(NoTheory, match="into groups"):
        lg.kernel(net, IMAGES)


@pytest.mark.parametrize(
    ("name", "x", "x2"),
    [
        ("relu", ROWS * 1e160, None),
        ("relu", ROWS, ROWS * 1e160),
        ("erf", ROWS * 1e160, None),
        ("relu", (ROWS * 1e25).astype(np.float32), None),
    ],
)
def test_overflow(name, x, x2):
    net = lg.mlp(1, name)
    with pytest.raises(NumericalFailure, match="Scale the inputs") as caught:
        lg.kernel(net, x, x2)
    assert caught.value.result.ntk.shape == (2, 2)
    assert lg.kernel(net, x, x2, throw=False).ntk.shape == (2, 2)
