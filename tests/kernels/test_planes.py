"""Convolutional kernels by planes of displacement, beside those from all pairs of positions.

A pool of window 1 is the identity, but its rule takes all pairs of positions at once: in front of
the global pool it selects the form that planes must agree with.
"""

import jax
import numpy as np
import pytest
from tests.kernels.joint_reference import Joint, windows

import largen as lg
from largen.errors import InvalidInput
from largen.kernels import planes, tiles
from largen.kernels.nngp_ntk import prepare

RNG = np.random.default_rng(3)
LINES, IMAGES = RNG.standard_normal((5, 6, 2)), RNG.standard_normal((4, 5, 4, 2))
RELU, ERF = lg.Activation("relu"), lg.Activation("erf")
TOP = (lg.GlobalAvgPool(), lg.Dense(weight_std=1.2, bias_std=0.1))


def conv(window, **geometry):
    return lg.Conv(window, weight_std=1.3, bias_std=0.3, **geometry)


def by_pairs(layers, axes):
    """Return the network of ``layers`` with a pool of window 1 in front of its global pool."""
    where = next(k for k, layer in enumerate(layers) if "Global" in type(layer).__name__)
    return lg.serial(*layers[:where], lg.layers.AvgPool((1,) * axes), *layers[where:])


def is_by_planes(net, x):
    lowered, _ = prepare(net, lg.ntk(), x.shape[1:])
    return planes.at_pool(lowered.program) is not None


def agree(layers, x, split=None, **given):
    """Compare both forms for one set of samples, or for two."""
    net, pairs = lg.serial(*layers), by_pairs(layers, x.ndim - 2)
    assert is_by_planes(net, x)
    assert not is_by_planes(pairs, x)
    sets = (x,) if split is None else (x[:split], x[split:])
    for got, want in zip(
        lg.kernel(net, *sets, **given), lg.kernel(pairs, *sets, **given), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


SLOW = pytest.mark.slow
CASES = {
    "zeros": [conv((3,)), RELU, conv((3,)), ERF],
    "periodic": [conv((3,), padding="CIRCULAR"), RELU, conv((5,), padding="CIRCULAR"), RELU],
    "even windows": [conv((2,)), RELU, conv((4,), padding="CIRCULAR"), RELU],
    "dilation": [conv((3,), dilation=2), RELU, conv((3,)), RELU],
    "window beyond the line": [conv((9,)), RELU, conv((13,)), ERF],
    "pointwise": [conv((3,)), RELU, lg.Dense(bias_std=0.2), ERF, lg.RMSNorm(), conv((3,)), RELU],
    "both paddings": [conv((3,)), RELU, conv((3,), padding="CIRCULAR"), RELU],
    "residual": [conv((3,)), lg.Residual(lg.serial(RELU, conv((3,)), RELU, conv((3,)))), RELU],
    "repeated": [conv((3,)), lg.repeat(lg.Residual(lg.serial(RELU, conv((3,)))), 3), RELU],
    "branches": [
        conv((3,)),
        lg.layers.Concatenate(lg.serial(RELU, conv((3,))), conv((5,))),
        lg.layers.Product(lg.serial(conv((3,)), RELU), conv((1,))),
        lg.LayerNorm(),
        lg.layers.Dropout(0.2),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "zeros" else SLOW) for n in CASES]
)
def test_equal_to_all_pairs_on_a_line(name):
    agree([*CASES[name], *TOP], LINES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("padding", "window", "sizes"),
    [  # each window with both paddings, and each size with both where a window fits into it
        ("SAME", (3, 3), (5, 4)),
        ("SAME", (1, 3), (3, 3)),
        ("SAME", (5, 2), (6, 1)),
        ("SAME", (3, 3), (6, 1)),
        ("CIRCULAR", (3, 3), (3, 3)),
        ("CIRCULAR", (1, 3), (5, 4)),
        ("CIRCULAR", (5, 2), (5, 4)),
    ],
)
def test_equal_to_all_pairs_in_the_plane(padding, window, sizes):
    images = RNG.standard_normal((4, *sizes, 2))
    layers = [conv(window, padding=padding), RELU, conv((3, 1), padding=padding), RELU]
    agree([*layers, *TOP], images, split=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "erf", "gelu", "sin", "abs", "exp", "gaussian", "linear"])
def test_every_closed_form(name):
    # Layers of the exponential function have variances that grow as exponentials themselves.
    phi, size = lg.Activation(name), 1 / 8 if name == "exp" else 1 / 2
    agree([conv((3,)), phi, conv((3,)), phi, *TOP], size * LINES)


@pytest.mark.slow
def test_layers_behind_the_pool_and_a_sum():
    behind = [lg.layers.GlobalSumPool(), lg.Dense(bias_std=0.2), lg.Activation("tanh"), lg.Dense()]
    agree([conv((3, 3)), RELU, conv((3, 3)), RELU, *behind], IMAGES / 5, split=2)


@pytest.mark.slow
def test_masks():
    mask = np.arange(6) < np.array([6, 4, 2, 5, 1])[:, None]
    agree([conv((3,)), RELU, conv((3,)), RELU, *TOP], LINES, mask1=mask)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["CIRCULAR", pytest.param("SAME", marks=SLOW)])
def test_equal_to_one_covariance_of_all_positions(padding):
    net = lg.serial(conv((3, 3), padding=padding), RELU, conv((3, 2), padding=padding), RELU, *TOP)
    joint = Joint.of(IMAGES).affine(windows((5, 4), (3, 3), 1, padding), 1.3**2, 0.3**2).relu()
    joint = joint.affine(windows((5, 4), (3, 2), 1, padding), 1.3**2, 0.3**2).relu()
    joint = joint.linear(np.full((1, 20), 1 / 20)).dense(1.2**2, 0.1**2)
    for got, want in zip(lg.kernel(net, IMAGES), (joint.K, joint.T), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.slow
def test_tiles_within_a_memory_budget():
    """Tiles of two samples, the last of which overlaps; symmetric bit for bit."""
    net = lg.serial(conv((3,)), RELU, *TOP)
    budget = 8 * tiles.ARRAYS * 6 * (2**2 + 2)
    whole, cut = lg.kernel(net, LINES), lg.kernel(net, LINES, memory_budget=budget)
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
        np.testing.assert_array_equal(b, b.T)
    with pytest.raises(InvalidInput, match="memory_budget: one pair of samples, with every posit"):
        lg.nngp_kernel(net, LINES, memory_budget=8 * tiles.ARRAYS * 6)


@pytest.mark.slow
def test_memory_of_a_tile_is_below_its_estimate():
    net, images = lg.serial(conv((3, 3)), RELU, conv((3, 3)), RELU, *TOP), np.ones((2, 16, 16, 3))
    lowered, _ = prepare(net, lg.ntk(), images.shape[1:])
    program, size = lowered.program, 2
    with jax.enable_x64(True):
        sides = (images, None, np.ones(2)), None
        one = jax.jit(tiles.tile_at, static_argnums=(0, 1, 2))
        tile = one.lower(program, True, (size, size), lowered.constants, sides, (0, 0)).compile()
    taken, estimate = tile.memory_analysis(), tiles.bytes_of(program, 256)
    assert taken is not None
    assert taken.temp_size_in_bytes < estimate[0] * size**2 + estimate[1] * size
    all_pairs, _ = prepare(by_pairs([conv((3, 3)), RELU, *TOP], 2), lg.ntk(), images.shape[1:])
    by_planes = tiles.fitting(program, 256, 2.0**20)
    assert by_planes >= tiles.fitting(all_pairs.program, 256, 2.0**28)


@pytest.mark.slow
def test_derivatives():
    """With respect to σ_w, σ_b and inputs, as behind all pairs of positions."""
    layers = [conv((3,)), RELU, conv((3,)), RELU, *TOP]
    forms = lg.serial(*layers), by_pairs(layers, 1)

    def of_constants(net):
        kernels = lg.kernels.kernel_of_stds(net, LINES[:3])

        def total(s):
            found = kernels({"0.weight_std": s[0], "2.bias_std": s[1]})
            return (found.nngp * WEIGHTS + found.ntk).sum()

        return jax.grad(total)(np.array([1.3, 0.3]))

    def of_inputs(net):
        return jax.grad(lambda x: (lg.ntk_kernel(net, x, LINES[3:]) * WEIGHTS[:2, :2]).sum())(
            LINES[:2]
        )

    with jax.enable_x64(True):
        for derivative in (of_constants, of_inputs):
            got, want = map(derivative, forms)
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


WEIGHTS = RNG.standard_normal((3, 3))


@pytest.mark.parametrize(
    "before",
    [
        [lg.Conv((3,), strides=2)],
        [lg.Conv((3,), padding="VALID")],
        [lg.Conv((3,)), RELU, lg.layers.AvgPool((2,))],
        [lg.layers.LocallyConnected((3,)), RELU],
        [lg.Conv((3,)), lg.Activation("tanh")],
    ],
)
def test_where_planes_do_not_apply(before):
    assert not is_by_planes(lg.serial(*before, *TOP), LINES)


@pytest.mark.slow
def test_twins_have_equal_kernels():
    """Coincident samples have gap 0 behind the pool, on which a relu's NTK depends."""
    net = lg.serial(conv((3, 3)), RELU, lg.GlobalAvgPool(), lg.Dense(), RELU, lg.Dense())
    theta = lg.ntk_kernel(net, IMAGES[[0, 0, 1]])
    assert abs(theta[0, 1] / theta[0, 0] - 1) < 1e-14
