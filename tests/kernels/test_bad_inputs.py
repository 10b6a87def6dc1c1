"""Inputs and networks that cannot be meant: each is named, with what was got and what is wanted."""

import warnings
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, LostDigits, NoTheory, NumericalFailure

IMAGES, ROWS = np.ones((2, 6, 6, 3)), np.ones((2, 5))
CONV, DENSE, RELU, STRIDED = (
    lg.Conv((3, 3)),
    lg.Dense(),
    lg.Activation("relu"),
    lg.Conv((3, 3), strides=2),
)
END = (lg.Flatten(), DENSE)
CNN = lg.serial(CONV, RELU, *END)


@pytest.mark.parametrize(
    ("net", "x", "options", "words"),
    [
        (CNN, np.full_like(IMAGES, np.nan), {}, "216 of 216 entries are NaN"),
        (CNN, IMAGES.astype(complex), {}, "wanted floats, got dtype complex"),
        (CNN, IMAGES[:0], {}, "x1: is empty"),
        (CNN, IMAGES[0], {}, "2 spatial axes"),
        (CNN, IMAGES, {"x2": IMAGES[..., :1]}, "x2: its samples have the shape"),
        (CNN, IMAGES, {"x2": IMAGES[0]}, "x2: wanted 4 axes"),
        (lg.mlp(1, "tanh"), ROWS, {"rtol": -1}, "rtol: wanted"),
        (lg.mlp(1), ROWS, {"mask1": ROWS > 0}, "have no positions"),
        (lg.mlp(1), IMAGES, {}, "spatial axes"),
        (lg.serial(CONV, RELU, DENSE), IMAGES, {}, "spatial axes"),
        (lg.serial(CONV, lg.layers.AvgPool((7, 7)), *END), IMAGES, {}, "larger than its input"),
        (lg.serial(lg.Conv((3,)), *END), IMAGES, {}, "1 spatial axes"),
        (lg.serial(DENSE, lg.GlobalAvgPool(), DENSE), ROWS, {}, "its input has none"),
        (lg.serial(CONV, lg.Residual(STRIDED), *END), IMAGES, {}, "different shapes"),
        (lg.serial(CONV, lg.layers.Concatenate(CONV, STRIDED), *END), IMAGES, {}, "side by side"),
        (lg.serial(CONV, lg.layers.Product(CONV, STRIDED), *END), IMAGES, {}, "different shapes"),
        (lg.serial(CONV, lg.repeat(STRIDED, 2), *END), IMAGES, {}, "does not keep the shape"),
        (lg.Flatten(), IMAGES, {}, "at least two affine maps"),
    ],
)
def test_bad_inputs(net, x, options, words):
    with pytest.raises(InvalidInput, match=words):
        lg.kernel(net, x, **options)


@pytest.mark.parametrize("before", [(), (lg.LayerNorm(),), (lg.layers.Concatenate(CONV, CONV),)])
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
        ("tanh", ROWS * 1e160, None),
        ("relu", (ROWS * 1e25).astype(np.float32), None),
    ],
)
def test_overflow(name, x, x2):
    net = lg.mlp(1, name)
    with pytest.raises(NumericalFailure, match="Scale the inputs") as caught:
        lg.kernel(net, x, x2)
    assert caught.value.result.ntk.shape == (2, 2)
    assert lg.kernel(net, x, x2, throw=False).ntk.shape == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "elu", lambda x: x * jnp.tanh(x)])
def test_inputs_too_large_for_integrals(name):
    # Without a bound, tables of the size of these inputs would take all memory.
    for size in (1e6, 1e15, 1e100, 1e200):
        with pytest.raises(NumericalFailure, match="Scale the inputs"):
            lg.kernel(lg.mlp(1, name), ROWS * size)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "elu", "erf", "relu", "gaussian", "sign"])
def test_inputs_that_vanish(name):
    # Outputs are then those of the bias alone; without one, those of inputs that are 0.
    biased, plain = lg.mlp(2, name, bias_std=0.3), lg.mlp(2, name)
    of_zero = lg.nngp_kernel(biased, ROWS * 0.0)
    for size in (0.0, 5e-324, 1e-200, 1e-10):
        np.testing.assert_allclose(lg.nngp_kernel(biased, ROWS * size), of_zero)
        assert np.isfinite(lg.nngp_kernel(plain, ROWS * size)).all()


@pytest.mark.parametrize("size", [1e8, 1e15, 1e100])
def test_one_sample_far_off_leaves_the_others(size):
    rng = np.random.default_rng(0)
    x, net = rng.standard_normal((4, 3)), lg.mlp(2, "relu", bias_std=0.2)
    far = np.vstack([x, size * rng.standard_normal((1, 3))])
    with pytest.warns(LostDigits):
        beside = lg.kernel(net, far)
    for found, alone in zip(beside, lg.kernel(net, x), strict=True):
        np.testing.assert_allclose(found[:4, :4], alone, rtol=1e-13)


@pytest.mark.parametrize("size", [1e4, 1e6, 1e7, 1e8, 1e10, 1e13])
@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_lost_digits_are_told(size, convert):
    """By exact fractions: what is lost is less than is said, if anything is, but not much less."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, far = convert(rng.standard_normal((20, 3))), convert(size * rng.standard_normal((20, 3)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = np.asarray(lg.nngp_kernel(lg.serial(lg.Dense(), lg.Dense()), x, far))
    a, b = (np.vectorize(Fraction, otypes=[object])(np.asarray(x)) for x in (x, far))
    missed = np.vectorize(Fraction, otypes=[object])(found) - a @ b.T / 3
    scale = np.sqrt(np.outer(np.mean(np.square(x), axis=1), np.mean(np.square(far), axis=1)))
    lost = np.abs(missed.astype(float) / scale).max()
    if not caught:
        assert lost < 1e-8
    else:
        (warning,) = caught
        assert warning.category is LostDigits
        said = float(str(warning.message).split("off by ")[1].split()[0])
        assert lost < said < 100 * lost
        assert said > 1e-8


@pytest.mark.slow
def test_every_public_function_reports_lost_digits():
    x, y, net = np.diag([1e9, 1.0, 0.0]), np.ones(3), lg.mlp(1, "erf", bias_std=0.1)
    run = lg.Run(net, lg.ntk(), lg.Dataset(x, y), optimizer=lg.gd(lr=1e-20), steps=2)
    for call in (
        lambda: lg.kernel(net, x),
        lambda: lg.kernel(net, x[:1], x[1:2]),
        lambda: lg.kernel(net, x[::2]),
        lambda: lg.kernels.kernel_of_stds(net, x),
        lambda: lg.posterior(net, x, y, noise=0.1),
        lambda: lg.regression.log_likelihood(net, x, y, noise=0.1),
        lambda: lg.solve(run),
    ):
        with pytest.warns(LostDigits, match="Scale samples alike"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lg.nngp_kernel(net, x, rtol=1e-6)
        for small in (x[1:], 1e-10 * x[1:], 0 * x):
            lg.nngp_kernel(net, small)
