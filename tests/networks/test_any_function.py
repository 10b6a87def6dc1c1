"""Kernels and expansions of functions that largen did not make; Monte Carlo kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.linalg import cg

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.networks.network import finite_network
from largen.networks.tangents import tiles
from largen.networks.tangents.products import by_products

RNG = np.random.default_rng(0)
X1, X2 = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3))
NET = lg.mlp(2, "tanh", bias_std=0.5)
PARAMS = lg.networks.init(NET, lg.ntk(), width=16, inputs=3, outputs=2, key=0, dtype=np.float64)


def model(params, x):
    return lg.networks.apply(NET, params, x)


def by_hand(params, x):
    """The same network, written without largen."""
    first, _, second, _, last = params
    h = x @ first["weight"] / np.sqrt(3) + 0.5 * first["bias"]
    h = jnp.tanh(h) @ second["weight"] / 4 + 0.5 * second["bias"]
    return jnp.tanh(h) @ last["weight"] / 4 + 0.5 * last["bias"]


def scalar(params, x):
    return by_hand(params, x)[:, 0]


@pytest.mark.parametrize("method", ["jacobian", "products", "auto"])
def test_methods_agree_with_structured_contraction(method):
    want = lg.networks.empirical_ntk(NET, PARAMS, X1, X2)
    got = lg.networks.ntk_of_function(by_hand, PARAMS, X1, X2, method=method)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=1e-12)
    one = lg.networks.ntk_of_function(scalar, PARAMS, X1, method=method)
    np.testing.assert_allclose(
        one, lg.networks.empirical_ntk(NET, PARAMS, X1)[..., 0, 0], rtol=1e-12
    )


def test_rates_freeze_and_weigh():
    """Only the read-out moves: the kernel of its features, with its own rate."""
    rates = jax.tree.map(lambda _: 0.0, PARAMS)
    rates[-1]["weight"] = 2.0
    param = lg.ntk().with_rates({"0": 0, "2": 0, "4.bias": 0, "4.weight": 2})
    want = lg.networks.empirical_ntk(NET, PARAMS, X1, param=param)
    got = lg.networks.ntk_of_function(by_hand, PARAMS, X1, rates=rates)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_operator():
    """Products, their transposes, and a solve; samples before outputs."""
    rates = jax.tree.map(lambda _: 0.5, PARAMS)
    operator = lg.networks.ntk_operator_of_function(by_hand, PARAMS, X1, X2, rates=rates)
    full = lg.networks.ntk_of_function(by_hand, PARAMS, X1, X2, rates=rates)
    full = full.transpose(0, 2, 1, 3).reshape(10, 8)
    v = RNG.normal(size=8)
    assert operator.shape == (10, 8)
    np.testing.assert_allclose(operator @ v, full @ v, rtol=1e-12)
    np.testing.assert_allclose(operator.T @ np.ones(10), full.T @ np.ones(10), rtol=1e-12)
    square = lg.networks.ntk_operator_of_function(scalar, PARAMS, X1)
    solved, failed = cg(square, np.ones(5), rtol=1e-10)
    assert not failed
    kernel = lg.networks.ntk_of_function(scalar, PARAMS, X1)
    np.testing.assert_allclose(kernel @ solved, np.ones(5), rtol=1e-8)


def test_output_kernel():
    f = np.asarray(lg.networks.apply(NET, PARAMS, X1))
    np.testing.assert_allclose(
        lg.networks.nngp_of_function(by_hand, PARAMS, X1), f @ f.T / 2, rtol=1e-12
    )


@pytest.mark.slow
def test_expansions():
    """Exact for polynomials of their degree, and with an error of the next order for others."""
    at = jax.tree.map(lambda p: p + 0.1, PARAMS)
    with jax.enable_x64(True):
        jacobian = jax.jvp(lambda p: by_hand(p, X1), (PARAMS,), (jax.tree.map(jnp.ones_like, at),))
        line = lg.networks.linearize(by_hand, PARAMS)(at, X1)
        np.testing.assert_allclose(line, jacobian[0] + 0.1 * jacobian[1], rtol=1e-12)

        def quartic(p, x):
            return (x @ p) ** 4

        w = np.array([0.3, -1.0, 0.5])
        for degree, exact in ((3, False), (4, True)):
            got = lg.networks.taylor_expand(quartic, w, degree)(2 * w, X1)
            assert np.allclose(got, quartic(2 * w, X1), rtol=1e-12) == exact
        off = []
        for size in (0.1, 0.05):
            near = jax.tree.map(lambda p, s=size: p * (1 + s), PARAMS)
            expanded = lg.networks.taylor_expand(by_hand, PARAMS, 2)(near, X1)
            off.append(np.abs(expanded - by_hand(near, X1)).max())
        assert 6.5 < off[0] / off[1] < 9.5  # third order


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("of", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_expansions_inside_transformations(dtype, of):
    """Double precision stays so, and inside jit, grad, vmap and jvp x may be any array."""
    params = jax.tree.map(lambda p: p.astype(dtype), PARAMS)
    at = jax.tree.map(lambda p: 1.1 * p, params)
    toward = jax.tree.map(np.ones_like, at)
    with jax.enable_x64(True):
        want = np.asarray(
            lg.networks.linearize(by_hand, PARAMS)(jax.tree.map(lambda p: 1.1 * p, PARAMS), X1)
        )
        slope = jax.jvp(
            lambda p: lg.networks.linearize(by_hand, PARAMS)(p, X1), (PARAMS,),
            (jax.tree.map(np.ones_like, PARAMS),),
        )[1]  # fmt: skip
    for x in (of(X1.astype(dtype)), X1):
        line = lg.networks.linearize(model, params)
        whole = line(at, x)
        assert whole.dtype == (np.float64 if np.float64 in (dtype, x.dtype) else np.float32)
        assert isinstance(whole, np.ndarray) == isinstance(x, np.ndarray)
        np.testing.assert_allclose(
            whole, want, rtol=1e-11 if dtype == np.float64 == x.dtype else 1e-5
        )
        for double in (False, dtype == np.float64):
            with jax.enable_x64(double):
                found = {
                    "jit": jax.jit(lambda p, line=line, x=x: line(p, x))(at),
                    "both traced": jax.jit(line)(at, x),
                    "vmap": jax.vmap(lambda p, line=line, x=x: line(p, x))(
                        jax.tree.map(lambda p: p[None], at)
                    )[0],
                }
                for value in found.values():
                    np.testing.assert_allclose(value, want, rtol=3e-5, atol=1e-6)
                    assert value.dtype == (np.float64 if double else np.float32)
                grad = jax.grad(lambda p, line=line, x=x: line(p, x).sum())(at)
                along = jax.jvp(lambda p, line=line, x=x: line(p, x), (at,), (toward,))[1]
                np.testing.assert_allclose(along, slope, rtol=3e-5, atol=1e-5)
                total = sum(jnp.sum(g) for g in jax.tree.leaves(grad))
                np.testing.assert_allclose(total, slope.sum(), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("param", [lg.ntk(), lg.mean_field(2.0)])
def test_monte_carlo_against_the_exact_kernels(param):
    net = lg.mlp(2, "relu", weight_std=2**0.5, bias_std=0.2)
    exact = lg.kernel(net, X1, X2, param=param)
    found = lg.networks.monte_carlo_kernel(net, X1, X2, width=128, draws=400, key=1, param=param)
    bias = 3 / 128 * np.abs(np.stack(exact)).max()
    for got, error, want in zip(found[:2], found[2:], exact, strict=True):
        assert np.all(np.abs(got - want) < 4 * error + bias)
        assert np.all(error < 0.2 * np.abs(want).max())


@pytest.mark.slow
def test_monte_carlo_errors_are_those_of_the_mean():
    """Repeated estimates scatter by the stated error."""
    net = lg.mlp(1, "erf")
    found = [lg.networks.monte_carlo_kernel(net, X1, width=16, draws=20, key=k) for k in range(60)]
    for mean, error in ((0, 2), (1, 3)):
        scatter = np.std([f[mean] for f in found], axis=0, ddof=1)
        stated = np.mean([f[error] for f in found], axis=0)
        assert np.all(np.abs(scatter / stated - 1) < 0.45)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lg.networks.ntk_of_function(by_hand, PARAMS, X1, method="best"), "method: 'best'"),
        (
            lambda: lg.networks.ntk_of_function(lambda p, x: jnp.sum(x), PARAMS, X1),
            "f: wanted outputs",
        ),
        (
            lambda: lg.networks.ntk_of_function(by_hand, PARAMS, X1, rates={}),
            "rates: wanted a tree",
        ),
        (lambda: lg.networks.ntk_of_function(by_hand, PARAMS, X1 * np.nan), "x1: 15 of 15"),
        (lambda: lg.networks.taylor_expand(by_hand, PARAMS, -1), "degree: wanted"),
        (lambda: lg.networks.linearize(by_hand, PARAMS)({}, X1), "params: wanted a tree"),
        (lambda: lg.networks.monte_carlo_kernel(NET, X1, width=8, draws=1, key=0), "draws: wanted"),
    ],
)
def test_wrong_input(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_leaves_of_parameters_are_named():
    params = {"in": {"w": np.ones((3, 4)), "b": np.zeros(4)}, "out": [np.ones((4, 1))]}

    def f(p, x):
        return (x @ p["in"]["w"] + p["in"]["b"]) @ p["out"][0]

    def changed(**new):
        return params | {"in": params["in"] | new}

    of_tree = lg.networks.linearize(f, params)
    for call in (lambda p: lg.networks.ntk_of_function(f, p, X1), lambda p: of_tree(p, X1)):
        with pytest.raises(InvalidInput, match=r"params\['in'\]\['b'\]: 1 of 4 entries are NaN"):
            call(changed(b=np.array([0, 0, np.nan, 0])))
        with pytest.raises(InvalidInput, match=r"params\['in'\]\['w'\]: wanted floats, got"):
            call(changed(w=np.ones((3, 4), int)))
    with pytest.raises(InvalidInput, match=r"params\['in'\]\['b'\]: wanted shape \(4,\), got"):
        of_tree(changed(b=np.zeros(1)), X1)
    with pytest.raises(InvalidInput, match=r"got no params\['in'\]\['b'\]"):
        of_tree(params | {"in": {"w": params["in"]["w"]}}, X1)
    with pytest.raises(InvalidInput, match=r"got params\['out'\]\[1\] as well"):
        of_tree(params | {"out": params["out"] * 2}, X1)
    rates = {"in": {"w": 1.0, "b": np.ones(3)}, "out": [1.0]}
    with pytest.raises(InvalidInput, match=r"rates\['in'\]\['b'\]: wanted a number or an array"):
        lg.networks.ntk_of_function(f, params, X1, rates=rates)


def test_dropout_has_no_masks_to_estimate_with():
    net = lg.serial(lg.Dense(), lg.layers.Dropout(0.5), lg.Dense())
    with pytest.raises(NoTheory, match="draws masks"):
        lg.networks.monte_carlo_kernel(net, X1, width=8, key=0)


def test_batches_that_are_coupled():
    """Orthogonal samples become centred vectors of size √P: E[ĥĥᵀ] = P/(P − 1) (1 − 11ᵀ/P)."""
    net, p = (
        lg.serial(lg.Dense(weight_std=1.7), lg.layers.BatchNorm(eps=0.0), lg.Dense(weight_std=1.2)),
        4,
    )
    found = lg.networks.monte_carlo_kernel(net, 3 * np.eye(p), width=32, draws=400, key=0)
    want = 1.2**2 * p / (p - 1) * (np.eye(p) - 1 / p)
    assert np.all(np.abs(found.nngp - want) < 4.5 * found.nngp_error)
    assert np.all(found.nngp_error < 0.15)
    # Outputs of a centred batch sum to 0, whatever the weights.
    np.testing.assert_allclose(found.ntk.sum(0), 0, atol=1e-12)
    assert np.all(np.diag(found.ntk) > np.diag(want))
    with pytest.raises(NoTheory, match="couples the samples"):
        lg.networks.monte_carlo_kernel(net, X1, X2, width=8, key=0)


@pytest.mark.parametrize("param", [lg.ntk(), lg.mup(2.0)])
def test_products_know_the_rates_of_a_parameterization(param):
    net = lg.mlp(2, "tanh", bias_std=0.5)
    network = finite_network(net, param, width=16, inputs=3)
    rates = network.per_leaf(network.table, "lr")
    with jax.enable_x64(True):
        params = lg.networks.init(net, param, width=16, inputs=3, key=0, dtype=np.float64)
        found = by_products(network.outputs_of, params, rates, X1, X1)
        want = lg.networks.empirical_ntk(net, params, X1, param=param)
        np.testing.assert_allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize("method", ["auto", "jacobian", "products"])
@pytest.mark.parametrize("outputs", [None, 2])
def test_large_sets_are_computed_in_tiles(method, outputs, monkeypatch):
    def model(params, x):
        found = jnp.tanh(x @ params["a"]) @ params["b"]
        return found if outputs else found[:, 0]

    rng = np.random.default_rng(3)
    params = {"a": rng.standard_normal((4, 6)), "b": rng.standard_normal((6, outputs or 1))}
    x1, x2 = rng.standard_normal((11, 4)), rng.standard_normal((7, 4))
    wanted = [lg.networks.ntk_of_function(model, params, x1, x, method=method) for x in (x2, None)]
    monkeypatch.setattr(tiles, "_side", lambda plan: 4)
    found = [lg.networks.ntk_of_function(model, params, x1, x, method=method) for x in (x2, None)]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_samples_in_a_list_of_arrays():
    rows = list(X1)
    line = lg.networks.linearize(model, PARAMS)(PARAMS, rows)
    np.testing.assert_allclose(line, model(PARAMS, X1), rtol=1e-12)
    traced = jax.jit(lambda p: lg.networks.apply(NET, p, rows))(PARAMS)
    np.testing.assert_allclose(traced, model(PARAMS, X1), rtol=1e-5)
