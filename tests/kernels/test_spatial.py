import numpy as np
import pytest
from tests.kernels.joint_reference import Joint, averages, windows

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.kernels.accuracy import inaccuracy
from largen.kernels.nngp_ntk import prepare

RNG = np.random.default_rng(5)
LINE, PLANE = RNG.standard_normal((3, 7, 2)), RNG.standard_normal((3, 4, 5, 2))
RELU, ERF = lg.Activation("relu"), lg.Activation("erf")


def agree(net, x, joint, split=None):
    """Compare with the reference, and so the kernel of the samples up to ``split`` and the rest."""
    wanted = joint.K, joint.T
    for got, want in zip(lg.kernel(net, x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11)
    if split:
        for got, want in zip(lg.kernel(net, x[:split], x[split:]), wanted, strict=True):
            np.testing.assert_allclose(got, want[:split, split:], rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "geometry",
    [
        {"window": (3,)},
        {"window": (4,), "strides": 2},
        {"window": (3,), "dilation": 2, "padding": "VALID"},
        {"window": (3,), "strides": 3, "padding": "CIRCULAR"},
    ],
)
@pytest.mark.parametrize("top", ["flatten", "pool"])
def test_convolution_on_a_line(geometry, top):
    end = lg.Flatten() if top == "flatten" else lg.GlobalAvgPool()
    conv = lg.Conv(**geometry, weight_std=1.3, bias_std=0.4)
    net = lg.serial(conv, RELU, lg.Conv((3,)), ERF, end, lg.Dense())
    first = windows((7,), **geometry)
    middle = (len(first[0]),)
    joint = Joint.of(LINE).affine(first, 1.3**2, 0.4**2).relu()
    joint = joint.affine(windows(middle, (3,))).erf()
    P = middle[0]
    joint = joint.flatten() if top == "flatten" else joint.linear(np.full((1, P), 1 / P))
    agree(net, LINE, joint.dense())


@pytest.mark.slow
def test_convolution_in_the_plane_with_pooling():
    conv = lg.Conv((3, 2), strides=(1, 2), weight_std=1.2, bias_std=0.3)
    pool = lg.layers.AvgPool((2, 3), strides=1, padding="SAME")
    net = lg.serial(
        conv,
        RELU,
        pool,
        lg.Conv((2, 2), padding="VALID"),
        RELU,
        lg.layers.GlobalSumPool(),
        lg.Dense(),
    )
    joint = Joint.of(PLANE).affine(windows((4, 5), (3, 2), (1, 2)), 1.2**2, 0.3**2).relu()
    joint = joint.linear(averages((4, 3), (2, 3), 1, "SAME"))
    joint = joint.affine(windows((4, 3), (2, 2), 1, "VALID")).relu()
    agree(net, PLANE, joint.linear(np.ones((1, 6))).dense(), split=2)


def test_pooled_inner_products_are_those_of_pooled_images():
    net = lg.serial(lg.Conv((1,)), lg.layers.AvgPool((2,), strides=1), lg.Flatten(), lg.Dense())
    pooled = (LINE[:, 1:] + LINE[:, :-1]) / 2
    wanted = np.einsum("apc,bpc->ab", pooled, pooled) / pooled[0].size
    np.testing.assert_allclose(lg.kernel(net, LINE).nngp, wanted, rtol=1e-12)


@pytest.mark.slow
def test_pooling_of_gaussians_and_data():
    # Averages of Gaussians are Gaussian: an activation may follow. Sums of parts of a window.
    net = lg.serial(
        lg.layers.AvgPool((2,), strides=1),
        lg.Conv((3,)),
        lg.layers.SumPool((3,), strides=2, padding="SAME"),
        ERF,
        lg.Flatten(),
        lg.Dense(),
    )
    joint = Joint.of(LINE).linear(averages((7,), (2,), 1)).affine(windows((6,), (3,)))
    joint = joint.linear(sum(windows((6,), (3,), 2))).erf()
    agree(net, LINE, joint.flatten().dense(), split=2)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["SAME", pytest.param("VALID", marks=pytest.mark.slow)])
def test_transposed_convolution(padding):
    up = lg.layers.ConvTranspose((3, 2), strides=(2, 3), padding=padding, bias_std=0.2)
    net = lg.serial(lg.Conv((3, 3)), RELU, up, RELU, lg.GlobalAvgPool(), lg.Dense())
    joint = Joint.of(PLANE).affine(windows((4, 5), (3, 3))).relu()
    joint = joint.affine(windows((4, 5), (3, 2), (2, 3), padding, transposed=True), b=0.2**2).relu()
    P = len(joint.K) // 3
    agree(net, PLANE, joint.linear(np.full((1, P), 1 / P)).dense())


@pytest.mark.slow
@pytest.mark.parametrize("behind", [lg.Flatten(), lg.GlobalAvgPool()])
def test_locally_connected(behind):
    local = lg.layers.LocallyConnected((3,), strides=2, bias_std=0.3)
    net = lg.serial(local, RELU, lg.Conv((2,)), RELU, behind, lg.Dense())
    joint = Joint.of(LINE).affine(windows((7,), (3,), 2), b=0.3**2).local().relu()
    joint = joint.affine(windows((4,), (2,))).relu()
    if behind == lg.Flatten():
        agree(net, LINE, joint.flatten().dense())
    else:
        agree(net, LINE, joint.linear(np.full((1, 4), 0.25)).dense())


@pytest.mark.slow
def test_many_channels():
    # The data's distances are found by matrix products there.
    x = RNG.standard_normal((3, 4, 40))
    for top in (lg.Flatten(), lg.GlobalAvgPool()):
        net = lg.serial(lg.Conv((3,)), RELU, top, lg.Dense())
        joint = Joint.of(x).affine(windows((4,), (3,))).relu()
        joint = joint.flatten() if top == lg.Flatten() else joint.linear(np.full((1, 4), 0.25))
        agree(net, x, joint.dense(), split=1)


@pytest.mark.slow
def test_coincident_inputs_behind_pooling():
    # The NTK of relu depends on the root of the gap: its rounding must not show.
    net = lg.serial(
        lg.Conv((3, 3)), RELU, lg.layers.AvgPool((2, 2)), lg.Conv((2, 2)), RELU, lg.GlobalAvgPool(),
        lg.Dense(),
    )  # fmt: skip
    twins = PLANE[[0, 0, 1]]
    theta = lg.ntk_kernel(net, twins)
    assert abs(theta[0, 1] / theta[0, 0] - 1) < 1e-14


@pytest.mark.slow
def test_zero_images_and_flat_ones():
    # MNIST's margins: pixels of variance 0, and pairs of positions that coincide.
    x = np.zeros((2, 5, 5, 1))
    x[0, 2, 2], x[1, 2, 2:4] = 1.0, 0.5
    net = lg.serial(lg.Conv((3, 3)), RELU, lg.Conv((3, 3)), RELU, lg.GlobalAvgPool(), lg.Dense())
    assert all(np.isfinite(kernel).all() for kernel in lg.kernel(net, x))


def test_layers_without_a_kernel():
    for layer, words in ((lg.layers.MaxPool((2, 2)), "largest"), (lg.layers.BatchNorm(), "batch")):
        net = lg.serial(lg.Conv((3, 3)), layer, lg.Flatten(), lg.Dense())
        with pytest.raises(NoTheory, match=words) as error:
            lg.kernel(net, PLANE)
        assert "Monte Carlo" in str(error.value)


def test_sums_over_positions_make_large_variances():
    """60² times as large: behind a global sum tanh is a step, which the error bound must see."""
    x = RNG.standard_normal((4, 60, 2))
    for top, wrong in ((lg.GlobalAvgPool(), False), (lg.layers.GlobalSumPool(), True)):
        tanh = lg.Activation("tanh")
        net = lg.serial(lg.Conv((3,)), tanh, top, lg.Dense(weight_std=2.0), tanh, lg.Dense())
        lowered, _ = prepare(net, lg.ntk(), (60, 2))
        assert (inaccuracy(lowered, (x,), None) is not None) == wrong


@pytest.mark.slow
def test_upsampling_repeats_positions():
    x, relu = RNG.standard_normal((4, 5, 3)), lg.Activation("relu")
    behind = (
        lg.Conv((3,), bias_std=0.2),
        relu,
        lg.Conv((2,)),
        relu,
        lg.GlobalAvgPool(),
        lg.Dense(),
    )
    got = lg.kernel(lg.serial(lg.layers.Upsample((3,)), *behind), x)
    want = lg.kernel(lg.serial(*behind), np.repeat(x, 3, axis=1))
    for one, two in zip(got, want, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)
    with pytest.raises(InvalidInput, match="2 spatial axes"):
        lg.kernel(lg.serial(lg.layers.Upsample((2, 2)), *behind), x)


def test_padding_in_numbers_is_that_of_zeros_added_by_hand():
    x = RNG.standard_normal((4, 5, 3))
    behind = lg.Activation("relu"), lg.Flatten(), lg.Dense()
    conv = lg.Conv((3,), padding=((2, 1),), strides=2, bias_std=0.1)
    by_hand = lg.Conv((3,), padding="VALID", strides=2, bias_std=0.1)
    padded = np.pad(x, ((0, 0), (2, 1), (0, 0)))
    got, want = (
        lg.kernel(lg.serial(conv, *behind), x),
        lg.kernel(lg.serial(by_hand, *behind), padded),
    )
    for one, two in zip(got, want, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)
    assert lg.Conv((3, 3), padding=1).padding == ((1, 1), (1, 1))
    networks = [
        lg.networks.finite_network(
            lg.serial(first, *behind), lg.ntk(), width=4, inputs=inputs.shape[1:]
        )
        for first, inputs in ((conv, x), (by_hand, padded))
    ]
    params = networks[0].init(0, np.float64)
    one, two = (f.apply(params, x) for f, x in zip(networks, (x, padded), strict=True))
    np.testing.assert_allclose(one, two, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lg.layers.AvgPool((2,), padding=2), "without a position"),
        (lambda: lg.layers.ConvTranspose((2,), padding=1), "ConvTranspose takes one of"),
        (lambda: lg.Conv((3,), padding=-1), "≥ 0"),
        (lambda: lg.Conv((3, 3), padding=(1,)), "has 1 entries"),
        (lambda: lg.Conv((3,), padding=((1, 2, 3),)), "before, after"),
        (lambda: lg.layers.Upsample(0), "≥ 1"),
    ],
)
def test_wrong_paddings_and_factors(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()
