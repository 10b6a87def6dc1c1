"""Values of neural-tangents where both are defined."""

import numpy as np
import pytest
from tests.kernels.neural_tangents_values import VALUES

import largen as lg


def x_of(*shape):
    return np.sin(1.0 + 0.7 * np.arange(np.prod(shape))).reshape(shape)


def conv(window, strides=1, padding="SAME"):
    return lg.Conv(window, strides, padding, weight_std=1.3, bias_std=0.2)


PLANE, LINE, ROWS = x_of(3, 4, 5, 2), x_of(3, 6, 4), x_of(3, 5)
RELU, ERF, DENSE, FIRST = (
    lg.Activation("relu"),
    lg.Activation("erf"),
    lg.Dense(),
    lg.Dense(1.3, 0.2),
)
LOCAL = lg.LocallyConnected((3,), weight_std=1.3, bias_std=0.2)
UP = lg.ConvTranspose((3,), 2, weight_std=1.3, bias_std=0.2)
SHORTCUT = lg.Conv((1, 1), 2)
TOP = (RELU, lg.GlobalAvgPool(), DENSE)
CASES = {
    "conv_flatten": (
        PLANE,
        [conv((3, 3)), RELU, conv((2, 2), (1, 2), "VALID"), RELU, lg.Flatten(), DENSE],
    ),
    "conv_pool": (
        PLANE,
        [conv((3, 3), 1, "CIRCULAR"), RELU, lg.AvgPool((2, 2), 1), conv((2, 2)), ERF, *TOP[1:]],
    ),
    "avgpool_same": (
        PLANE,
        [conv((2, 3), (2, 1)), RELU, lg.AvgPool((2, 2), padding="SAME"), conv((2, 2)), RELU,
         lg.SumPool((1, 2), 1), *TOP[1:]],
    ),
    "local": (LINE, [LOCAL, RELU, conv((3,)), *TOP]),
    "transpose": (LINE, [conv((3,)), RELU, UP, RELU, lg.Flatten(), DENSE]),
    "layernorm": (
        LINE, [FIRST, lg.LayerNorm(), RELU, DENSE, lg.LayerNorm(over_space=True), ERF, *TOP[1:]]
    ),
    "resnet": (
        PLANE,
        [conv((3, 3)), lg.Residual(lg.serial(RELU, conv((3, 3)), RELU, conv((3, 3)))),
         lg.Residual(lg.serial(RELU, conv((3, 3), 2)), SHORTCUT), *TOP],
    ),
    "concat_product": (
        ROWS,
        [FIRST, RELU, lg.Concatenate(lg.serial(lg.Dense(1.2), ERF), lg.serial(lg.Dense(0.7), RELU)),
         DENSE, lg.Product(lg.serial(DENSE, RELU), lg.serial(lg.Dense(1.2), ERF)), DENSE],
    ),
    "dropout": (ROWS, [FIRST, RELU, lg.Dropout(0.2), DENSE, ERF, DENSE]),
    "attention": (
        LINE, [FIRST, RELU, lg.SelfAttention(1.2 * 0.9), lg.Dense(1.1), lg.Dense(1.3, 0.3), *TOP]
    ),
    "attention_identity": (
        LINE,
        [FIRST, RELU,
         lg.MultiHeadAttention(lg.Dense(0.9), lg.Dense(1.2), lg.Dense(1.1), mechanism="identity"),
         lg.Dense(1.3, 0.3), RELU, lg.Flatten(), DENSE],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in ("resnet", "attention_identity") else pytest.mark.slow)
        for n in CASES
    ],
)
def test_values_of_neural_tangents(name):
    x, layers = CASES[name]
    got = lg.kernel(lg.serial(*layers), x)
    upper = np.triu_indices(3)
    nngp, ntk = (np.array(values) for values in VALUES[name])
    np.testing.assert_allclose(got.nngp[upper], nngp, rtol=1e-12)
    # On the diagonal its NTK is off by the root of the rounding of √(K₁₁K₂₂ − K₁₂²).
    diagonal = np.equal(*upper)
    np.testing.assert_allclose(got.ntk[upper][~diagonal], ntk[~diagonal], rtol=1e-10)
    np.testing.assert_allclose(got.ntk[upper][diagonal], ntk[diagonal], rtol=1e-8)
