"""Spatial layers, normalisation and branches of finite networks, against plain NumPy."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(5)
WIDTH = 4


def network(*layers, inputs, outputs=2, param=None):
    net = lg.serial(*layers)
    param = param or lg.ntk()
    found = lg.networks.finite_network(net, param, width=WIDTH, inputs=inputs, outputs=outputs)
    return found, found.init(3, np.float64)


def naive(x, weight, window, strides, dilation, padding):
    """Convolve position by position; offsets of SAME are those that keep the sample centred."""
    space = x.shape[1:-1]
    reach = [d * (w - 1) + 1 for d, w in zip(dilation, window, strict=True)]
    if padding == "VALID":
        behind = [(n - r) // s + 1 for n, r, s in zip(space, reach, strides, strict=True)]
        before = [0] * len(space)
    else:
        behind = [-(-n // s) for n, s in zip(space, strides, strict=True)]
        before = [
            max(0, (o - 1) * s + r - n) // 2
            for o, s, r, n in zip(behind, strides, reach, space, strict=True)
        ]
    y = np.zeros((len(x), *behind, weight.shape[-1]))
    for out in product(*map(range, behind)):
        for k in product(*map(range, window)):
            read = [
                o * s + d * i - b
                for o, s, d, i, b in zip(out, strides, dilation, k, before, strict=True)
            ]
            if padding == "CIRCULAR":
                read = [r % n for r, n in zip(read, space, strict=True)]
            elif any(r < 0 or r >= n for r, n in zip(read, space, strict=True)):
                continue
            y[:, *out] += x[:, *read] @ weight[k]
    return y


@pytest.mark.parametrize("padding", ["SAME", "VALID", "CIRCULAR"])
@pytest.mark.parametrize(
    ("window", "strides", "dilation"),
    [((3,), (1,), (2,)), ((3, 2), (1, 1), (1, 1)), ((2, 3), (2, 1), (1, 2)), ((1, 2, 2),) * 3],
)
def test_convolution_is_the_sum_over_its_window(window, strides, dilation, padding):
    inputs = (*(5, 6, 4)[: len(window)], 3)
    layer = lg.Conv(
        window, strides=strides, padding=padding, dilation=dilation, weight_std=1.3, bias_std=0.7
    )
    net, params = network(layer, lg.Flatten(), lg.Dense(), inputs=inputs)
    x = RNG.normal(size=(2, *inputs))
    first, _, last = params
    h = naive(x, first["weight"], window, strides, dilation, padding)
    h = 1.3 * h / np.sqrt(np.prod(window) * 3) + 0.7 * first["bias"]
    want = h.reshape(2, -1) @ last["weight"] / np.sqrt(h[0].size)
    np.testing.assert_allclose(net.apply(params, x), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("window", "stride"), [(3, 2), (2, 3), (4, 1)])
def test_transposed_convolution_is_that_of_jax(window, stride, padding):
    layer = lg.layers.ConvTranspose((window,), strides=stride, padding=padding)
    net, params = network(layer, lg.Flatten(), lg.Dense(), inputs=(5, 3))
    x = RNG.normal(size=(2, 5, 3))
    with jax.enable_x64(True):
        h = jax.lax.conv_transpose(
            jnp.asarray(x),
            params[0]["weight"],
            (stride,),
            padding,
            dimension_numbers=("NHC", "HIO", "NHC"),
        )
    h = np.asarray(h) / np.sqrt(window * 3)
    want = h.reshape(2, -1) @ params[2]["weight"] / np.sqrt(h[0].size)
    np.testing.assert_allclose(net.apply(params, x), want, rtol=1e-12, atol=1e-13)


def test_circular_transposed_convolution_commutes_with_shifts():
    layer = lg.layers.ConvTranspose((3,), strides=2, padding="CIRCULAR")
    net, params = network(
        layer, lg.Activation("tanh"), lg.GlobalAvgPool(), lg.Dense(), inputs=(5, 3)
    )
    x = RNG.normal(size=(2, 5, 3))
    np.testing.assert_allclose(
        net.apply(params, np.roll(x, 2, 1)), net.apply(params, x), rtol=1e-12
    )


def test_pooling_and_norms_against_numpy():
    x = RNG.normal(size=(2, 4, 5, WIDTH))

    def of(*layers):
        net, params = network(lg.Dense(), *layers, lg.Flatten(), lg.Dense(), inputs=x.shape[1:])
        h = x @ params[0]["weight"] / 2
        return (
            h,
            net.apply(params, x),
            lambda y: (
                y.reshape(2, -1) @ params[-1]["weight"] / np.sqrt(params[-1]["weight"].shape[0])
            ),
        )

    h, got, readout = of(lg.layers.SumPool((2, 2)))
    blocks = np.lib.stride_tricks.sliding_window_view(h, (2, 2), (1, 2))[:, ::2, ::2]
    np.testing.assert_allclose(got, readout(blocks.sum((-1, -2))), rtol=1e-12)
    h, got, readout = of(lg.layers.MaxPool((2, 2), strides=1))
    blocks = np.lib.stride_tricks.sliding_window_view(h, (2, 2), (1, 2))
    np.testing.assert_allclose(got, readout(blocks.max((-1, -2))), rtol=1e-12)
    h, got, readout = of(lg.layers.AvgPool((3, 3), strides=1, padding="SAME"))
    edges = np.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=np.nan)
    means = np.nanmean(np.lib.stride_tricks.sliding_window_view(edges, (3, 3), (1, 2)), (-1, -2))
    np.testing.assert_allclose(got, readout(means), rtol=1e-12)
    h, got, readout = of(lg.LayerNorm(eps=0.0))
    centred = h - h.mean(-1, keepdims=True)
    np.testing.assert_allclose(got, readout(centred / centred.std(-1, keepdims=True)), rtol=1e-12)
    h, got, readout = of(lg.RMSNorm(over_space=True, eps=0.0))
    rms = np.sqrt((h**2).mean((1, 2, 3), keepdims=True))
    np.testing.assert_allclose(got, readout(h / rms), rtol=1e-12)
    h, got, readout = of(lg.layers.BatchNorm(eps=0.0))
    np.testing.assert_allclose(got, readout((h - h.mean((0, 1, 2))) / h.std((0, 1, 2))), rtol=1e-12)


def test_branches_against_numpy():
    x = RNG.normal(size=(3, 5))
    gate = lg.serial(lg.Dense(), lg.Activation("tanh"))
    body = lg.layers.Product(lg.Dense(), gate)
    skip = lg.Residual(
        lg.serial(lg.Activation("relu"), lg.Dense()), shortcut=lg.Dense(weight_std=2.0)
    )
    side = lg.layers.Concatenate(body, skip)
    net, params = network(lg.Dense(), side, lg.Dense(), inputs=5)
    first, ((plain, (gated, _)), ((_, branch), short)), last = params
    h = x @ first["weight"] / np.sqrt(5)
    left = (h @ plain["weight"] / 2) * np.tanh(h @ gated["weight"] / 2)
    right = 2.0 * h @ short["weight"] / 2 + np.maximum(h, 0) @ branch["weight"] / 2
    want = np.concatenate([left, right], 1) @ last["weight"] / np.sqrt(2 * WIDTH)
    np.testing.assert_allclose(net.apply(params, x), want, rtol=1e-12)


CONV = lg.Conv((3, 3), bias_std=0.5)
SPATIAL = {
    "pairs of positions": (CONV, lg.Activation("tanh"), lg.GlobalAvgPool(), lg.Dense()),
    "groups": (
        lg.Conv((3, 3), strides=2, padding="CIRCULAR"),
        lg.Conv((2, 1), padding="VALID", groups=2, bias_std=1.0),
        lg.Flatten(),
        lg.Dense(),
    ),
    "transposed": (
        lg.layers.ConvTranspose((2, 2), strides=2, bias_std=1.0),
        lg.layers.AvgPool((2, 2)),
        lg.Flatten(),
        lg.Dense(),
    ),
    "local": (
        lg.layers.LocallyConnected((3, 2), bias_std=0.3),
        lg.Activation("tanh"),
        lg.Residual(lg.Conv((3, 3)), shortcut=lg.Dense(bias_std=1.0)),
        lg.LayerNorm(),
        lg.Flatten(),
        lg.Dense(),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPATIAL)
def test_tangent_kernel_is_the_product_of_jacobians(name):
    inputs = (4, 3, 3)
    param = lg.mean_field(gamma=0.5)
    net, params = network(*SPATIAL[name], inputs=inputs, param=param)
    x1, x2 = RNG.normal(size=(3, *inputs)), RNG.normal(size=(2, *inputs))
    with jax.enable_x64(True):
        jacobians = [
            jax.jit(jax.jacobian(net.outputs_of))(params, jnp.asarray(x)) for x in (x1, x2)
        ]
    rates = jax.tree.map(lambda weight: net.table[weight].lr, net.module.names)
    want = sum(
        rate * np.einsum("ncp,mdp->nmcd", *(np.reshape(j, (*j.shape[:2], -1)) for j in pair))
        for rate, *pair in zip(*map(jax.tree.leaves, (rates, *jacobians)), strict=True)
    )
    got = lg.networks.empirical_ntk(net.net, params, x1, x2, param=param)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


def test_both_ways_of_summing_over_positions_agree(monkeypatch):
    from largen.networks.rules.affine import tangent_of

    shapes = [(n, 6, *rest) for n, rest in ((2, (1, 5)), (2, (3, 4)), (3, (1, 5)), (3, (3, 4)))]
    a1, g1, a2, g2 = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes)
    many = [jnp.concatenate([t] * 20) for t in (a1, g1, a2, g2)]
    pairs, matrices = tangent_of(a1[:1], g1[:1], a2[:1], g2[:1]), tangent_of(*many)
    np.testing.assert_allclose(matrices[:1, :1], pairs, rtol=1e-5)


def test_training_a_convolutional_network_on_images():
    x = RNG.normal(size=(6, 4, 4, 1))
    data = lg.Dataset(x, np.sign(x.mean((1, 2, 3))), x[:2], np.zeros(2))
    net = lg.serial(lg.Conv((3, 3)), lg.Activation("relu"), lg.GlobalAvgPool(), lg.Dense())
    run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(lr=1.0), steps=30)
    found = lg.train(run, width=32, seeds=2, key=0, record=("feature_kernel", "ntk"))
    losses = found.to_xarray()["loss_train"].values
    assert (losses[:, -1] < 0.7 * losses[:, 0]).all()
    assert found.to_xarray()["feature_kernel"].shape == (2, 2, 1, 6, 6)


@pytest.mark.parametrize(
    ("layers", "inputs", "message"),
    [
        ((lg.Conv((5, 5), padding="VALID"), lg.Flatten(), lg.Dense()), (4, 4, 1), "larger than"),
        ((lg.Conv((3,)), lg.Flatten(), lg.Dense()), (4, 4, 1), "1 spatial axes"),
        ((lg.Conv((3, 3)), lg.Flatten(), lg.Dense()), 16, "2 spatial axes"),
        ((lg.Conv((3, 3)), lg.Dense()), (4, 4, 1), "Flatten"),
        ((lg.Dense(), lg.GlobalAvgPool(), lg.Dense()), 4, "its input has none"),
        ((lg.Conv((3, 3), groups=3), lg.Flatten(), lg.Dense()), (4, 4, 3), "groups"),
        ((lg.Conv((9, 9), padding="CIRCULAR"), lg.Flatten(), lg.Dense()), (3, 3, 1), "once"),
        (
            (lg.Dense(), lg.Residual(lg.layers.AvgPool((2,))), lg.Flatten(), lg.Dense()),
            (4, 1),
            "different shapes",
        ),
    ],
)
def test_what_does_not_fit_is_refused(layers, inputs, message):
    with pytest.raises(InvalidInput, match=message):
        network(*layers, inputs=inputs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lg.Conv(()), "window"),
        (lambda: lg.Conv((3, 0)), "window"),
        (lambda: lg.Conv((3, 3), strides=(1, 2, 3)), "strides"),
        (lambda: lg.Conv((3, 3), padding="same"), "SAME"),
        (lambda: lg.Conv((3, 3), groups=0), "groups"),
        (lambda: lg.layers.AvgPool("2"), "window"),
        (lambda: lg.layers.Dropout(1.0), "rate"),
        (lambda: lg.LayerNorm(eps=-1.0), "eps"),
        (lambda: lg.layers.Concatenate(lg.Dense()), "two branches"),
        (lambda: lg.layers.Product(lg.Dense(), lg.Dense), "branch 1"),
    ],
)
def test_wrong_records_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_float64_samples_and_float32_parameters():
    net, _ = network(lg.Conv((3,)), lg.Flatten(), lg.Dense(), inputs=(4, 2))
    x, params = RNG.normal(size=(2, 4, 2)), net.init(0, np.float32)
    double = jax.tree.map(lambda p: p.astype(np.float64), params)
    np.testing.assert_allclose(net.apply(params, x), net.apply(double, x), rtol=1e-12)


def test_dropout_is_evaluated_without_masks_and_not_trained():
    layers = lg.Dense(), lg.layers.Dropout(0.3), lg.Dense()
    net, params = network(*layers, inputs=3)
    plain, _ = network(layers[0], layers[2], inputs=3)
    x = RNG.normal(size=(4, 3))
    np.testing.assert_allclose(
        net.apply(params, x), plain.apply((params[0], params[2]), x), rtol=1e-12
    )
    with pytest.raises(InvalidInput, match="masks"):
        lg.Run(net.net, lg.ntk(), lg.Dataset(x, x[:, 0]), optimizer=lg.gd(0.1), steps=1)


@pytest.mark.slow
def test_batch_norm_has_no_kernel_of_two_samples():
    net, params = network(lg.Dense(), lg.layers.BatchNorm(), lg.Dense(), inputs=3)
    with pytest.raises(NoTheory, match="couples"):
        lg.networks.empirical_ntk(net.net, params, RNG.normal(size=(3, 3)))
