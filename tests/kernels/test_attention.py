"""Self-attention, and samples of variable length."""

import numpy as np
import pytest
from tests.kernels.joint_reference import Joint, windows

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(8)
X = RNG.standard_normal((3, 5, 2))
RELU = lg.Activation("relu")
LENGTHS = [5, 3, 2]
MASK = np.arange(5) < np.array(LENGTHS)[:, None]


def agree(net, joint, **masks):
    got = lg.kernel(net, X, **masks)
    np.testing.assert_allclose(got.nngp, joint.K, rtol=1e-11)
    np.testing.assert_allclose(got.ntk, joint.T, rtol=1e-11)
    if masks:
        mask = masks["mask1"]
        cross = lg.kernel(net, X[:2], X[2:], mask1=mask[:2], mask2=mask[2:])
        np.testing.assert_allclose(cross.ntk, joint.T[:2, 2:], rtol=1e-11)


def test_attention():
    block = lg.Residual(
        lg.serial(
            lg.LayerNorm(), lg.layers.SelfAttention(logit_scale=1.7), lg.Dense(weight_std=1.1)
        )
    )
    net = lg.serial(
        lg.layers.SelfAttention(logit_scale=0.5),
        lg.Dense(weight_std=1.2, bias_std=0.3),
        block,
        RELU,
        lg.GlobalAvgPool(),
        lg.Dense(),
    )
    h = Joint.of(X).attended(0.5).dense(1.44, 0.09)
    h = h.plus(h.norm(True).attended(1.7).dense(1.21)).relu()
    agree(net, h.linear(np.full((1, 5), 0.2)).dense())


@pytest.mark.slow
def test_masks():
    there = MASK.T.ravel().astype(float)
    net = lg.serial(
        lg.Conv((3,), bias_std=0.3), RELU, lg.layers.SelfAttention(),
        lg.Dense(weight_std=1.2, bias_std=0.4), RELU,
        lg.LayerNorm(over_space=True), lg.Dense(bias_std=0.2), lg.GlobalAvgPool(), lg.Dense(),
    )  # fmt: skip
    h = Joint.of(X).scaled(there).affine(windows((5,), (3,)), b=0.09).scaled(there).relu()
    h = h.attended(1.0, there).scaled(there).dense(1.44, 0.16).scaled(there).relu()
    average = (there / np.tile(LENGTHS, 5)).reshape(5, 3)
    pool = np.einsum("pi,ij->ipj", average, np.eye(3)).reshape(3, 15)
    M = np.tile(pool @ h.m, 5)
    h.K += np.outer(M, M) - np.outer(h.m, M) - np.outer(M, h.m)
    h = h.scaled(there)
    h = h.scaled(1 / np.sqrt(np.tile(pool @ np.diag(h.K), 5)))
    agree(net, h.dense(b=0.04).scaled(there).mixed(pool).dense(), mask1=MASK)


def test_what_is_hidden_does_not_matter():
    net = lg.serial(lg.Conv((3,), bias_std=0.3), RELU, lg.layers.SelfAttention(),
        lg.GlobalAvgPool(),
                    lg.Dense(), RELU, lg.Dense())  # fmt: skip
    other = np.where(MASK[..., None], X, 7.0)
    theta = lg.ntk_kernel(net, X, mask1=MASK)
    np.testing.assert_allclose(lg.ntk_kernel(net, other, mask1=MASK), theta, rtol=1e-13)
    # A shorter sample by itself: the margins of its convolution are zeros as well.
    alone = lg.ntk_kernel(net, X[1:2, :3])
    np.testing.assert_allclose(theta[1:2, 1:2], alone, rtol=1e-12)


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ({"mask1": MASK[:2]}, "mask1: wanted a row for each of 3 samples"),
        ({"mask1": MASK[:, :2]}, "mask1: wanted one entry for each position"),
        ({"mask1": MASK.astype(float)}, "mask1: wanted Booleans"),
        ({"mask1": MASK & False}, "mask1: sample 0 has no position"),
        ({"mask2": MASK}, "mask2: belongs to x2"),
    ],
)
def test_bad_masks(masks, words):
    with pytest.raises(InvalidInput, match=words):
        lg.kernel(lg.serial(lg.Conv((3,)), lg.Flatten(), lg.Dense()), X, **masks)


def test_attention_wants_positions():
    with pytest.raises(InvalidInput, match="attends over positions"):
        lg.kernel(lg.serial(lg.Dense(), lg.layers.SelfAttention(), lg.Dense()), X[:, 0])
    with pytest.raises(InvalidInput, match="logit_scale"):
        lg.layers.SelfAttention(logit_scale=float("nan"))


def test_one_mask_of_two_and_axes_in_any_order():
    net = lg.serial(lg.Conv((3,), bias_std=0.3), RELU, lg.GlobalAvgPool(), lg.Dense())
    want = lg.ntk_kernel(net, X[:2], X, mask1=MASK[:2], mask2=MASK | True)
    np.testing.assert_allclose(lg.ntk_kernel(net, X[:2], X, mask1=MASK[:2]), want, rtol=1e-14)
    turned = lg.serial(lg.layers.Axes("CT"), *net.layers)
    first = np.swapaxes(X, 1, 2)
    got = lg.ntk_kernel(turned, first[:2], first, mask1=MASK[:2])
    np.testing.assert_allclose(got, want, rtol=1e-13)
    # The finite network counts the same channels.
    a, b = (lg.networks.finite_network(n, lg.standard(), width=8, inputs=x.shape[1:])
            for n, x in ((net, X), (turned, first)))  # fmt: skip
    assert a.table.rows[0].rule == b.table.rows[0].rule
    params = a.init(0)
    single = (samples.astype(np.float32) for samples in (X, first))
    outputs = (
        n.apply(q, x) for n, q, x in zip((a, b), (params, ((), *params)), single, strict=True)
    )
    np.testing.assert_allclose(*outputs, rtol=1e-5)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lambda: lg.layers.Axes("HW"), "order: wanted different letters"),
        (lambda: lg.layers.Axes("CHH"), "order: wanted different letters"),
        (
            lambda: lg.serial(lg.Conv((3,)), lg.layers.Axes("CT"), lg.Flatten(), lg.Dense()),
            "first layer",
        ),
        (
            lambda: lg.serial(lg.layers.Axes("CHW"), lg.Conv((3, 3)), lg.Flatten(), lg.Dense()),
            "3 axes",
        ),
    ],
)
def test_bad_orders_of_axes(net, words):
    with pytest.raises(InvalidInput, match=words):
        lg.kernel(net(), X)
