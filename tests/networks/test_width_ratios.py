"""Hidden layers of unequal widths: sizes, errors, and what parameterizations make of them."""

from fractions import Fraction

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput
from largen.parameterizations import canonical_form

RATIOS = (2, 1 / 2, 3 / 2)
NET = lg.mlp(3, "tanh", bias_std=0.3, width_ratios=RATIOS)
X = np.random.default_rng(5).normal(size=(5, 6))


def test_sizes_and_values():
    """Every layer divides by the root of its own fan-in: against plain NumPy."""
    network = lg.networks.finite_network(NET, lg.mean_field(2.0), width=8, inputs=6)
    params = network.init(0, np.float64)
    assert [p["weight"].shape for p in params if p] == [(6, 16), (16, 4), (4, 12), (12, 1)]
    h = X
    for layer in params:
        if layer:
            last = layer["weight"].shape[1] == 1
            scale = 2 * np.sqrt(8) if last else 1  # γ = γ₀√N of the width N
            h = h @ layer["weight"] / np.sqrt(h.shape[1]) + 0.3 * layer["bias"]
            h = h / scale if last else np.tanh(h)
    np.testing.assert_allclose(network.apply(params, X), h[:, 0], rtol=1e-13)
    np.testing.assert_allclose(lg.networks.apply(NET, params, X, param=lg.mean_field(2.0)), h[:, 0])


def test_channels_of_convolutions():
    net = lg.serial(
        lg.Conv((3,), width_ratio=2),
        lg.Activation("relu"),
        lg.Conv((3,), width_ratio=1 / 2),
        lg.Flatten(),
        lg.Dense(),
    )
    params = lg.networks.init(net, lg.ntk(), width=6, inputs=(4, 5), key=0)
    assert [p["weight"].shape for p in params if p] == [(3, 5, 12), (3, 12, 3), (12, 1)]
    assert lg.ntk().table(net, inputs=(4, 5))[
        "2.weight"
    ].multiplier.constant ** -2 == pytest.approx(2 * 3)


@pytest.mark.parametrize("param", [lg.ntk(), lg.standard(), lg.mean_field(1.5), lg.mup()], ids=str)
def test_one_ratio_for_all_is_another_unit_of_width(param):
    """Layers of rN neurons are the network of width rN: σ are equal, and so are rates of equal
    powers of N but for that power of r; γ = γ₀(N)^d has another γ₀."""
    ratio, plain = Fraction(3, 2), lg.mlp(2, "tanh", bias_std=0.3)
    scaled = lg.mlp(2, "tanh", bias_std=0.3, width_ratios=[ratio] * 2)
    one = param.table(scaled, lg.gd(1.0), width=8, inputs=6)
    two = param.table(plain, lg.gd(1.0), width=12, inputs=6)
    for name in one:
        effective = [table[name].multiplier * table[name].init_std for table in (one, two)]
        if name.startswith("4"):  # the read-out is divided by γ
            effective = [e * t.gamma for e, t in zip(effective, (one, two), strict=True)]
        assert effective[0] == pytest.approx(effective[1], rel=1e-12)


def test_trajectories_do_not_change_along_the_symmetry():
    y = np.sign(X[:, 0])
    theta = {"input": "1/2", "hidden": "-1/2", "output": 1, "bias": "1/4"}
    data, param = lg.Dataset(X, y), lg.mean_field(1.5)
    nets = [
        lg.train(lg.Run(NET, p, data, optimizer=lg.gd(0.3, momentum=0.5), steps=10), 8, 2, 11)
        for p in (param, param.shift(theta))
    ]
    assert np.abs(nets[0].f_train[:, -1] - nets[0].f_train[:, 0]).max() > 0.1
    np.testing.assert_allclose(nets[1].f_train, nets[0].f_train, rtol=0, atol=1e-9)


def test_canonical_constants():
    """σ stays; rates count fan-ins where initial standard deviations hold them, as for windows."""
    wanted = {lg.mean_field(): [1, 1, 1, 1], lg.mup(): [6, 2, 1 / 2, 3 / 2]}
    for param, rates in wanted.items():
        form = canonical_form(param, NET, lg.gd(1.0), 6)
        weights = [w for w in form.weights.values() if w.kind == "weight"]
        assert [w.std for w in weights] == pytest.approx([1] * 4)
        assert [w.rate for w in weights] == pytest.approx(rates)


@pytest.mark.parametrize("ratio", [0, -1, "wide", 2**0.5, float("nan"), 1e-9])
def test_ratios_are_ratios_of_integers(ratio):
    with pytest.raises(InvalidInput, match="width_ratio"):
        lg.Dense(width_ratio=ratio)
    with pytest.raises(InvalidInput, match="width_ratio"):
        lg.Conv((3,), width_ratio=ratio)


def test_wrong_input():
    half = lg.Dense(width_ratio=0.5)
    with pytest.raises(InvalidInput, match="take a multiple of 2"):
        lg.networks.finite_network(lg.serial(half, lg.Dense()), lg.ntk(), width=7, inputs=3)
    with pytest.raises(InvalidInput, match="read-out"):
        lg.ntk().table(lg.serial(lg.Dense(), half))
    for inner in (lg.Residual(half), lg.repeat(half, 2), lg.layers.Product(half, lg.Dense())):
        with pytest.raises(InvalidInput, match="1/2"):
            lg.ntk().table(lg.serial(lg.Dense(), inner, lg.Dense()), inputs=3)
    with pytest.raises(InvalidInput, match="width_ratios"):
        lg.mlp(2, "relu", width_ratios=[1])
    params = lg.networks.init(lg.mlp(1, "relu"), lg.ntk(), width=5, inputs=6, key=0)
    with pytest.raises(InvalidInput, match="2 times a width"):
        lg.networks.apply(lg.mlp(1, "relu", width_ratios=[2]), params, X.astype("f"))
