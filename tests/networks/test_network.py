"""Initialisation and forward pass of finite networks."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoRule

X = np.random.default_rng(0).normal(size=(7, 3))


def test_repeat_is_an_unrolled_serial():
    block = lg.Residual(
        lg.serial(lg.Activation("tanh"), lg.Dense(weight_std=1.1, bias_std=0.2), lg.Dense())
    )
    ends = lg.Dense(), lg.Dense()
    looped = lg.serial(ends[0], lg.repeat(block, 5), ends[1])
    unrolled = lg.serial(ends[0], *[block] * 5, ends[1])
    first, copies, last = lg.networks.init(
        looped, lg.depth_mup(), width=10, inputs=3, key=0, dtype=np.float64
    )
    listed = [jax.tree.map(lambda leaf, i=i: leaf[i], copies) for i in range(5)]
    got = lg.networks.apply(looped, (first, copies, last), X, param=lg.depth_mup())
    want = lg.networks.apply(unrolled, (first, *listed, last), X, param=lg.depth_mup())
    np.testing.assert_allclose(got, want, rtol=1e-14)
    kernels = [
        lg.networks.empirical_ntk(net, params, X, param=lg.depth_mup())
        for net, params in ((looped, (first, copies, last)), (unrolled, (first, *listed, last)))
    ]
    np.testing.assert_allclose(*kernels, rtol=1e-12)


@pytest.mark.parametrize(
    ("param", "power"), [(lg.ntk(), 0), (lg.depth_mup(), 0.5), (lg.complete_p(), 1)]
)
def test_branch_factor(param, power):
    """h ← h + L^(−α) W φ(h)/√N."""
    network = lg.networks.finite_network(lg.residual_mlp(3, "tanh"), param, width=8, inputs=3)
    params = network.init(1, np.float64)
    h = X @ params[0]["weight"] / np.sqrt(3)
    for weight in params[1][1]["weight"]:
        h = h + 3**-power * np.tanh(h) @ weight / np.sqrt(8)
    scale = 8 if param.d else np.sqrt(8)
    want = np.tanh(h) @ params[3]["weight"][:, 0] / scale
    np.testing.assert_allclose(network.apply(params, X), want, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_follows(dtype):
    net = lg.mlp(1, "relu", bias_std=0.1)
    params = lg.networks.init(net, lg.mup(), width=8, inputs=3, key=0, dtype=dtype)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(params))
    for reading in (lg.networks.apply, lg.networks.empirical_ntk):
        got = reading(net, params, X.astype(dtype), param=lg.mup())
        assert isinstance(got, np.ndarray)
        assert got.dtype == dtype
    assert jnp.ones(()).dtype == np.float32
    if dtype == np.float32:
        assert isinstance(lg.networks.apply(net, params, jnp.asarray(X, dtype)), jax.Array)


def test_standard_deviations_and_shapes():
    net = lg.mlp(2, "relu", weight_std=1.5, bias_std=0.5)
    params = lg.networks.init(
        net, lg.standard(), width=400, inputs=100, outputs=3, key=0, dtype=np.float64
    )
    assert [params[i]["weight"].shape for i in (0, 2, 4)] == [(100, 400), (400, 400), (400, 3)]
    assert [params[i]["bias"].shape for i in (0, 2, 4)] == [(400,), (400,), (3,)]
    for layer, fan_in in ((0, 100), (2, 400)):
        spread = params[layer]["weight"].std() * np.sqrt(fan_in) / 1.5
        assert abs(spread - 1) < 4 / np.sqrt(2 * 400 * fan_in)
        assert abs(params[layer]["bias"].std() / 0.5 - 1) < 4 / np.sqrt(2 * 400)
    mirrored = lg.networks.finite_network(net, lg.standard(), width=400, inputs=100, outputs=3)
    assert mirrored.parameters == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_functions_can_be_transformed():
    """Inside jit and grad of the user's own, networks are plain JAX functions."""
    network = lg.networks.finite_network(lg.mlp(1, "tanh"), lg.ntk(), width=4, inputs=3)

    @jax.jit
    def slope(key, x):
        return jax.grad(lambda p: network.apply(p, x).sum())(network.init(key))

    found = slope(jax.random.key(0), jnp.asarray(X, jnp.float32))
    assert found[2]["weight"].shape == (4, 1)


def test_bad_input_is_named():
    net, ok = lg.mlp(1, "tanh"), {"width": 4, "inputs": 3}
    network = lg.networks.finite_network(net, lg.ntk(), **ok)
    finite_network = inspect.unwrap(
        lg.networks.finite_network
    )  # without the types that tests check
    params = network.init(0)
    wrong = [
        ("width", lambda: finite_network(net, lg.ntk(), width=-4, inputs=3)),
        ("inputs", lambda: finite_network(net, lg.ntk(), width=4, inputs=0)),
        ("outputs", lambda: finite_network(net, lg.ntk(), **ok, outputs=0)),
        ("net", lambda: finite_network("mlp", lg.ntk(), **ok)),
        ("param", lambda: finite_network(net, "ntk", **ok)),
        ("key", lambda: network.init("zero")),
        ("dtype", lambda: network.init(0, "float16")),
        ("dtype", lambda: network.init(0, "floaty")),
        ("params", lambda: network.apply(params[:2], X)),
        (
            r"params\[0\]\['weight'\]",
            lambda: network.apply(
                ({"weight": np.ones((3, 5))}, (), {"weight": np.ones((4, 1))}), X
            ),
        ),
        ("params", lambda: lg.networks.apply(net, {}, X)),
        ("x: has 2 inputs", lambda: network.apply(params, X[:, :2])),
        ("x: wanted samples", lambda: network.apply(params, X[0])),
        ("NaN", lambda: network.apply(params, X * np.nan)),
        ("x2", lambda: lg.networks.empirical_ntk(net, params, X, X[:, :2])),
    ]
    for message, call in wrong:
        with pytest.raises(InvalidInput, match=message):
            call()


def test_layers_that_cannot_be():
    class Unheard(lg.layers.Layer):
        pass

    with pytest.raises(NoRule, match="Unheard"):
        lg.networks.finite_network(
            lg.serial(lg.Dense(), Unheard(), lg.Dense()), lg.ntk(), width=4, inputs=3
        )
    changes_shape = lg.serial(lg.Dense(), lg.Activation("relu"), lg.Residual(lg.Dense()))
    with pytest.raises(InvalidInput, match="residual branch"):
        lg.networks.finite_network(changes_shape, lg.ntk(), width=4, inputs=3, outputs=2)
