"""Values of neural-tangents where both are defined."""

import numpy as np
import pytest
from tests.kernels.neural_tangents_values import VALUES

import largen as lg
from largen.expectations import hermite, leaky_relu, monomial, polynomial, rbf


def x_of(*shape):
    return np.sin(1.0 + 0.7 * np.arange(np.prod(shape))).reshape(shape)


def sized(weight_std):
    return lg.Dense(weight_std=weight_std)


def conv(window, strides=1, padding="SAME"):
    return lg.Conv(window, strides=strides, padding=padding, weight_std=1.3, bias_std=0.2)


PLANE, LINE, ROWS = x_of(3, 4, 5, 2), x_of(3, 6, 4), x_of(3, 5)
RELU, ERF, DENSE, FIRST = (
    lg.Activation("relu"),
    lg.Activation("erf"),
    lg.Dense(),
    lg.Dense(weight_std=1.3, bias_std=0.2),
)
WIDER, BIASED = sized(1.2), lg.Dense(weight_std=1.3, bias_std=0.3)
LOCAL = lg.layers.LocallyConnected((3,), weight_std=1.3, bias_std=0.2)
UP = lg.layers.ConvTranspose((3,), strides=2, weight_std=1.3, bias_std=0.2)
SHORTCUT = lg.Conv((1, 1), strides=2)
TOP = (RELU, lg.GlobalAvgPool(), DENSE)
CASES = {
    "conv_flatten": (
        PLANE,
        [conv((3, 3)), RELU, conv((2, 2), (1, 2), "VALID"), RELU, lg.Flatten(), DENSE],
    ),
    "conv_pool": (
        PLANE,
        [conv((3, 3), 1, "CIRCULAR"), RELU, lg.layers.AvgPool((2, 2), strides=1),
         conv((2, 2)), ERF, *TOP[1:]],
    ),
    "avgpool_same": (
        PLANE,
        [conv((2, 3), (2, 1)), RELU, lg.layers.AvgPool((2, 2), padding="SAME"), conv((2, 2)), RELU,
         lg.layers.SumPool((1, 2), strides=1), *TOP[1:]],
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
        [FIRST, RELU, lg.layers.Concatenate(lg.serial(WIDER, ERF), lg.serial(sized(0.7), RELU)),
         DENSE, lg.layers.Product(lg.serial(DENSE, RELU), lg.serial(WIDER, ERF)), DENSE],
    ),
    "dropout": (ROWS, [FIRST, RELU, lg.layers.Dropout(0.2), DENSE, ERF, DENSE]),
    "attention": (
        LINE,
        [FIRST, RELU, lg.layers.SelfAttention(logit_scale=1.2 * 0.9), sized(1.1), BIASED, *TOP],
    ),
    "attention_identity": (
        LINE,
        [FIRST, RELU,
         lg.layers.MultiHeadAttention(sized(0.9), WIDER, sized(1.1), mechanism="identity"),
         BIASED, RELU, lg.Flatten(), DENSE],
    ),
}  # fmt: skip


ACTIVATIONS = {
    "relu": "relu", "leaky_relu": leaky_relu(0.3), "abs": "abs", "erf": "erf", "gelu": "gelu",
    "sin": "sin", "cos": "cos", "exp": "exp", "gaussian": "gaussian", "rbf": rbf(0.7),
    "monomial": monomial(3), "polynomial": polynomial([0.3, -1.0, 0.5]), "sign": "sign",
}  # fmt: skip
KINKED = ("relu", "leaky_relu", "abs", "sign")
UPPER = np.triu_indices(3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_neural_tangents(name):
    phi = lg.Activation(ACTIVATIONS[name])
    net = lg.serial(FIRST, phi, lg.Dense(weight_std=1.1, bias_std=0.3), phi, DENSE)
    nngp, ntk = VALUES[name]
    np.testing.assert_allclose(lg.nngp_kernel(net, ROWS)[UPPER], nngp, rtol=1e-11)
    if name != "sign":  # its derivative is no function
        rtol = np.where(np.equal(*UPPER) & (name in KINKED), 1e-8, 1e-10)
        assert np.all(np.abs(lg.ntk_kernel(net, ROWS)[UPPER] / ntk - 1) < rtol)


def test_hermite_polynomials_of_neural_tangents():
    """It has them for inputs of the mean square 1 only."""
    unit = ROWS / np.sqrt(np.mean(ROWS**2, 1, keepdims=True))
    got = lg.kernel(lg.serial(DENSE, lg.Activation(hermite(3)), DENSE), unit)
    for ours, theirs in zip(got, VALUES["hermite"], strict=True):
        np.testing.assert_allclose(ours[UPPER], theirs, rtol=1e-12)


@pytest.mark.slow
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
    nngp, ntk = (np.array(values) for values in VALUES[name])
    np.testing.assert_allclose(got.nngp[UPPER], nngp, rtol=1e-12)
    # On the diagonal its NTK is off by the root of the rounding of √(K₁₁K₂₂ − K₁₂²).
    diagonal = np.equal(*UPPER)
    np.testing.assert_allclose(got.ntk[UPPER][~diagonal], ntk[~diagonal], rtol=1e-10)
    np.testing.assert_allclose(got.ntk[UPPER][diagonal], ntk[diagonal], rtol=1e-8)
