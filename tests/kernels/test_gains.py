"""Tangent kernels of trained gains and offsets: closed forms, quadrature, derivatives, networks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.architectures import weight_sites
from largen.errors import InvalidInput, NoTheory

DENSE, TANH, RELU = lg.Dense(bias_std=0.3), lg.Activation("tanh"), lg.Activation("relu")
GAIN, BOTH = lg.layers.Gain(), lg.layers.Gain(offset=True)
X = np.random.default_rng(0).standard_normal((3, 5))


def ntk_of(*layers: Any, frozen: bool = False, rates: Any = None) -> Any:
    """Return the tangent kernel at rates by name, with gains and offsets at 1 or frozen."""
    net = lg.serial(*layers)
    found = lg.ntk().table(net)
    rates = (rates or {}) | {
        name: 0.0 for name in found if frozen and name.endswith(("gain", "offset"))
    }
    return lg.kernel(net, X, param=lg.ntk().with_rates(rates)).ntk


def part_of_gains(*layers, rates=None):
    return ntk_of(*layers, rates=rates) - ntk_of(*layers, frozen=True)


def covariance(weight_std=1.0, bias_std=0.0):
    return weight_std**2 * X @ X.T / X.shape[1] + bias_std**2


def test_gain_and_offset_before_relu_in_closed_form():
    K = covariance(bias_std=0.3)
    root = np.sqrt(np.outer(np.diag(K), np.diag(K)))
    angle = np.arccos(np.clip(K / root, -1, 1))
    np.fill_diagonal(angle, 0)
    both, step = (
        (root * np.sin(angle) + (np.pi - angle) * K) / (2 * np.pi),
        (np.pi - angle) / (2 * np.pi),
    )
    got = part_of_gains(DENSE, BOTH, RELU, lg.Dense(), rates={"1.gain": 0.7, "1.offset": 1.3})
    # relu: χ(u) = u relu'(u) = relu(u).
    np.testing.assert_allclose(got, 0.7 * both + 1.3 * step, rtol=1e-12)


def test_gains_of_linear_networks_in_closed_form():
    K = covariance(bias_std=0.3)
    got = part_of_gains(
        DENSE, lg.layers.Gain(0.5, offset=True), lg.Dense(weight_std=2.0), GAIN, lg.Dense()
    )
    np.testing.assert_allclose(got, 4 * (K + 1) + 4 * 0.25 * K, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("initial", [0.6, 1.0])
def test_gain_before_tanh_by_quadrature(initial):
    """Θ has E[χχ'] with χ(u) = u tanh'(au), which is not E[tanh'tanh'] E[uu']."""
    z = np.linspace(-9, 9, 601)
    w = np.exp(-(z**2) / 2)
    w = np.outer(w, w) / w.sum() ** 2
    K, want, apart = covariance(2.0), np.zeros((3, 3)), np.zeros((3, 3))
    for i, j in np.ndindex(3, 3):
        rest = np.sqrt(max(K[j, j] - K[i, j] ** 2 / K[i, i], 0))
        u = np.sqrt(K[i, i]) * z[:, None] + 0 * z
        v = K[i, j] / np.sqrt(K[i, i]) * z[:, None] + rest * z
        slopes = np.cosh(initial * u) ** -2 * np.cosh(initial * v) ** -2
        want[i, j] = (w * u * v * slopes).sum() + (w * slopes).sum()
        apart[i, j] = (w * slopes).sum() * (K[i, j] + 1)
    got = part_of_gains(
        lg.Dense(weight_std=2.0), lg.layers.Gain(initial, offset=True), TANH, lg.Dense()
    )
    np.testing.assert_allclose(got, want, rtol=1e-7)
    assert np.abs(apart / want - 1).max() > 0.2


def test_gains_before_and_behind_homogeneous_functions_are_the_same():
    norm = lg.LayerNorm(gain=True)
    before = ntk_of(DENSE, norm, RELU, DENSE, GAIN, lg.Dense())
    behind = ntk_of(DENSE, lg.LayerNorm(), RELU, GAIN, DENSE, GAIN, lg.Dense())
    np.testing.assert_allclose(before, behind, rtol=1e-12)


@pytest.mark.slow
def test_blocks_of_infinite_depth_have_the_kernel_of_many_finite_ones():
    body = lg.serial(lg.LayerNorm(gain=True, offset=True), TANH, lg.Dense())
    param = lg.depth_mup().with_rates({"input": 0.0})

    def of(depth):
        net = lg.serial(lg.Dense(), lg.repeat(lg.Residual(body), depth), lg.Dense())
        return lg.kernel(net, X, param=param).ntk

    coarse, fine = of(64), of(128)
    np.testing.assert_allclose(of(np.inf), 2 * fine - coarse, rtol=2e-3)


NETS = {
    "functions": (
        DENSE, lg.layers.Gain(0.8, offset=True), TANH, lg.layers.Gain(1.2, offset=True), TANH,
        lg.Dense(),
    ),
    "branches": (DENSE, lg.Residual(lg.serial(lg.layers.Gain(0.6, offset=True), TANH)), lg.Dense()),
    "blocks": (
        DENSE,
        lg.repeat(lg.Residual(lg.serial(lg.RMSNorm(gain=True, offset=True), RELU, DENSE)), 2),
        lg.Residual(lg.serial(DENSE, TANH, DENSE, lg.layers.Gain(0.3))),
        lg.Dense(),
    ),
    "images": (
        lg.Conv((3,)), lg.LayerNorm(gain=True, offset=True), TANH,
        lg.Conv((3,)), GAIN, lg.GlobalAvgPool(), lg.Dense(),
    ),
}  # fmt: skip


def jacobians(network, params, x):
    found = jax.jacobian(network.apply)(params, x)
    return [leaf.reshape(len(x), -1) for leaf in jax.tree.leaves(found)]


def tangent(network, params, x):
    rates = jax.tree.leaves(network.per_leaf(network.table, "lr"))
    both = zip(rates, jacobians(network, params, x), strict=True)
    return sum(rate * j @ j.T for rate, j in both)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_kernels_are_those_of_wide_networks(name):
    net, param = lg.serial(*NETS[name]), lg.ntk().with_rates({"bias": 1.5})
    x = X if name != "images" else np.random.default_rng(1).standard_normal((2, 4, 2))
    inputs, found = x.shape[1:] if x.ndim > 2 else x.shape[1], []
    for width, draws in ((48, 240), (96, 120)):
        network = lg.networks.finite_network(net, param, width=width, inputs=inputs)
        keys = jax.random.split(jax.random.key(width), draws)
        with jax.enable_x64(True):
            one = jax.jit(
                lambda key, network=network: tangent(network, network.draw(key, float), x)
            )
            kernels = np.stack([one(key) for key in keys])
        found.append((kernels.mean(0), kernels.std(0, ddof=1) / np.sqrt(draws)))
        if width == 48:  # the structured kernel is that of all derivatives
            params = network.init(1, np.float64)
            with jax.enable_x64(True):
                want = tangent(network, params, jnp.asarray(x))
            empirical = lg.networks.empirical_ntk(net, params, x, param=param)
            np.testing.assert_allclose(empirical, want, rtol=1e-11, atol=1e-12)
    (coarse, a), (fine, b) = found
    limit, without = (
        lg.kernel(net, x, param=p).ntk for p in (param, param.with_rates({"bias": 0}))
    )
    value, error = 2 * fine - coarse, np.hypot(2 * b, a)
    assert np.abs((value - limit) / error).max() < 4
    assert np.abs((value - without) / error).max() > 6


@pytest.mark.parametrize("param", [lg.ntk(), lg.mean_field(), lg.mup(), lg.standard()], ids=str)
def test_gains_scale_as_biases(param):
    net = lg.serial(DENSE, lg.LayerNorm(gain=True, offset=True), TANH, DENSE, TANH, lg.Dense())
    for optimizer in (lg.gd(0.1), lg.adam(0.1)):
        table = param.table(net, optimizer)
        for kind in ("gain", "offset"):
            # The bias of the hidden map has the constant 0.3 in front.
            rule, bias = table[f"1.{kind}"], table["3.bias"]
            assert not rule.init_std.constant
            assert rule.lr == bias.lr or optimizer.adaptive
            assert (rule.lr.width, rule.multiplier.width) == (bias.lr.width, bias.multiplier.width)
    assert "1.gain" not in {weight.name for weight in weight_sites(net)}


def test_rates_of_gains_by_name_and_by_role():
    net = DENSE, lg.RMSNorm(gain=True), TANH, lg.Dense()
    full, none = ntk_of(*net), ntk_of(*net, frozen=True)
    half = ntk_of(*net, rates={"1.gain": 0.5})
    np.testing.assert_allclose(half, (full + none) / 2, rtol=1e-12)
    np.testing.assert_allclose(ntk_of(*net, rates={"bias": 0.0, "0.bias": 1.0}), none, rtol=1e-12)


def test_training_follows_the_kernel_and_feedback_alignment_of_overlap_one_is_descent():
    net = lg.serial(DENSE, BOTH, TANH, lg.Dense())
    data = lg.Dataset(X, np.array([1.0, -1.0, 0.5]))
    run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(lr=0.2), steps=4)
    limit = lg.solve(run).f_train
    aligned = run.with_changes(optimizer=lg.optimizers.feedback_alignment(lr=0.2, correlation=1.0))
    np.testing.assert_allclose(lg.solve(aligned).f_train, limit, rtol=1e-10)


@pytest.mark.parametrize("kind", [lg.layers.BatchNorm, lg.LayerNorm])
def test_trained_gains_move_in_networks(kind):
    net = lg.serial(lg.Dense(), kind(gain=True, offset=True), RELU, lg.Dense())
    data = lg.Dataset(X, np.array([1.0, -1.0, 0.5]))
    run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(lr=0.2), steps=3)
    still = run.with_changes(param=lg.ntk().with_rates({"1": 0.0}))
    both = [lg.train(each, width=16, seeds=2).f_train for each in (run, still)]
    assert np.abs(both[0] - both[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((GAIN, DENSE, TANH, DENSE), "before its first affine map"),
        ((DENSE, TANH, DENSE, GAIN), "behind its last one"),
        ((DENSE, lg.Residual(lg.serial(TANH, DENSE, GAIN)), RELU, DENSE), "Put a Dense"),
        (
            (DENSE, lg.repeat(lg.Residual(lg.serial(TANH, DENSE, GAIN)), np.inf), DENSE),
            "end in trained gains",
        ),
    ],
)
def test_what_has_no_rule_is_refused_by_name(layers, said):
    with pytest.raises((InvalidInput, NoTheory), match=said):
        lg.kernel(lg.serial(*layers), X, param=lg.depth_mup())


def test_mean_fields_refuse_gains_by_name():
    data = lg.Dataset(X, np.array([1.0, -1.0, 0.5]))
    net = lg.serial(DENSE, GAIN, TANH, DENSE, TANH, DENSE)
    run = lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(lr=0.2), steps=4)
    with pytest.raises(NoTheory, match=r"no rule for trained gains \(Gain\(\) at 1\)"):
        lg.solve(run)


def test_an_offset_needs_a_gain():
    with pytest.raises(InvalidInput, match="gain=True"):
        lg.LayerNorm(offset=True)
