import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from tests.kernels.references import numpy_mlp, quadrature_mlp_entry

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.expectations import pair_moments, second_moment
from largen.kernels import tiles
from largen.programs.folding import fold

RNG = np.random.default_rng(3)
X, X2 = RNG.standard_normal((9, 5)), RNG.standard_normal((4, 5))


@pytest.mark.parametrize("act", ["relu", "erf"])
@pytest.mark.parametrize("hidden", [1, 6])
def test_mlp_equals_plain_numpy(act, hidden):
    net = lg.mlp(hidden, act, weight_std=1.3, bias_std=0.4)
    both = np.concatenate([X, X2])
    wanted = numpy_mlp(both, act, hidden, 1.3, 0.4)
    for got, cross, want in zip(lg.kernel(net, X), lg.kernel(net, X, X2), wanted, strict=True):
        assert got.dtype == np.float64
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, want[:9, :9], rtol=1e-12)
        np.testing.assert_allclose(cross, want[:9, 9:], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("hidden", "weight_std", "bias_std"), [(2, 1.5, 0.3), (3, 1.0, 0.0)])
def test_tanh_equals_quadrature(hidden, weight_std, bias_std):
    x = X[:2]
    net = lg.mlp(hidden, "tanh", weight_std=weight_std, bias_std=bias_std)
    got = lg.kernel(net, x)
    for i, j in ((0, 1), (1, 1)):
        want = quadrature_mlp_entry(
            np.tanh, lambda u: 1 / np.cosh(u) ** 2, x[i], x[j], hidden, weight_std, bias_std
        )
        assert abs(got.nngp[i, j] - want[0]) < 1e-11
        assert abs(got.ntk[i, j] - want[1]) < 1e-11


@pytest.mark.slow
def test_float32_at_depth_100():
    x = RNG.standard_normal((40, 6)).astype(np.float32)
    x[1], x[2], x[3] = x[0], 1.5 * x[0], x[0] * np.float32(1 + 1e-3)
    x[4] = x[0] + 1e-4 * x[5]
    net = lg.mlp(100, "relu", weight_std=2**0.5)
    for single, double in zip(lg.kernel(net, x), lg.kernel(net, x.astype(float)), strict=True):
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, double, rtol=1e-6)
    for single, double in zip(
        lg.kernel(net, x, x[::-1]), lg.kernel(net, x.astype(float)), strict=True
    ):
        np.testing.assert_allclose(single, double[:, ::-1], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["relu", "erf"])
def test_products_in_single_precision(act):
    # Rows of sizes from 1e-2 to 1e2, some nearly equal, some nearly parallel, and a row of zeros.
    far = RNG.uniform(0, 1, (60, 500)) * 10.0 ** RNG.uniform(-2, 2, (60, 1))
    near = far[:40] * (1 + 10.0 ** -np.arange(40)[:, None] * RNG.standard_normal((40, 500)))
    steps = 1 + 10.0 ** -(np.arange(20)[:, None] / 4) * RNG.standard_normal((20, 500))
    parallel = 3 * far[:20] * steps
    x = np.concatenate([far, near, parallel, np.zeros((1, 500))]).astype(np.float32)
    net = lg.mlp(3, act, weight_std=1.4, bias_std=0.1)
    for single, double in zip(lg.kernel(net, x), lg.kernel(net, x.astype(float)), strict=True):
        assert single.dtype == np.float32
        size = np.sqrt(np.diag(double))
        assert np.max(np.abs(single - double) / np.outer(size, size)) < 1e-6


def test_coincident_and_nearly_coincident_rows():
    # Between two inputs at distance ε the NTK of relu falls short of its diagonal by order ε.
    x = np.repeat(X[:1], 3, axis=0)
    x[2, 0] += 1e-9
    net = lg.mlp(3, "relu", weight_std=2**0.5)
    theta = lg.ntk_kernel(net, x)
    assert theta[0, 1] == theta[0, 0]
    with mpmath.workdps(40):
        rows = [[mpmath.mpf(v) for v in row] for row in x]
        want = _mpmath_relu(rows[0], rows[2], 3)
    assert abs(theta[0, 2] - want) / want < 1e-13
    cross = lg.ntk_kernel(net, x[:2], x)
    np.testing.assert_allclose(cross, theta[:2], rtol=1e-13)


def _mpmath_relu(a, b, hidden):
    aa, ab, bb = (
        2 * mpmath.fsum(p * q for p, q in zip(s, t, strict=True)) / len(s)
        for s, t in ((a, a), (a, b), (b, b))
    )
    ntk = ab
    for _ in range(hidden):
        r = mpmath.sqrt(aa * bb)
        th = mpmath.acos(ab / r)
        ab = r * (mpmath.sin(th) + (mpmath.pi - th) * mpmath.cos(th)) / mpmath.pi
        ntk = ab + (mpmath.pi - th) / mpmath.pi * ntk
    return ntk


@pytest.mark.slow
@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_residual_by_hand(act):
    # Each block adds β² times the kernels of Dense(φ(·)): unrolled here with pair moments.
    blocks, beta2 = 4, 1 / 4
    net = lg.residual_mlp(blocks, act, weight_std=1.2, bias_std=0.3)
    got = lg.kernel(net, X, X2, param=lg.depth_mup())
    w, b = 1.2**2, 0.3**2
    K = [b + w * u @ v.T / 5 for u, v in ((X, X), (X, X2), (X2, X2))]
    K = [np.diag(K[0])[:, None], K[1], np.diag(K[2])[None, :]]
    T = K[1]
    for _ in range(blocks):
        E, D = _moments(act, K)
        # rates within branches are L^(2α − 1) = 1 in depth-μP
        T = T + beta2 * (w * E[1] + b + w * D * T)
        K = [k + beta2 * (w * e + b) for k, e in zip(K, E, strict=True)]
    E, D = _moments(act, K)
    np.testing.assert_allclose(got.nngp, w * E[1] + b, rtol=1e-11)
    np.testing.assert_allclose(got.ntk, w * E[1] + b + w * D * T, rtol=1e-11)


def _moments(act, K):
    with jax.enable_x64(True):
        value, slope = pair_moments(act, K[0], K[2], (K[0] + K[2]) / 2 - K[1])
        first, second = (np.asarray(second_moment(act, k)) for k in (K[0], K[2]))
        return [first, (first + second) / 2 - np.asarray(value), second], np.asarray(slope)


def test_repetition_equals_the_written_out_network():
    block = lg.Residual(lg.serial(lg.Activation("erf"), lg.Dense(weight_std=1.1, bias_std=0.2)))
    tail = (lg.Activation("erf"), lg.Dense())
    folded = lg.kernel(lg.serial(lg.Dense(), lg.repeat(block, 5), *tail), X)
    flat = lg.kernel(lg.serial(lg.Dense(), block, block, block, block, block, *tail), X)
    for a, b in zip(folded, flat, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_layers_with_constants_of_their_own():
    stds = (1.5, 0.7, 1.1)
    phi = lg.Activation("relu")
    net = lg.serial(
        lg.Dense(weight_std=stds[0]),
        phi,
        lg.Dense(weight_std=stds[1]),
        phi,
        lg.Dense(weight_std=stds[2]),
    )
    plain = numpy_mlp(X, "relu", 2)[0]  # relu is homogeneous: σ_w² factor out
    np.testing.assert_allclose(lg.nngp_kernel(net, X), np.prod(np.square(stds)) * plain, rtol=1e-12)


def test_activation_on_the_inputs_is_applied_to_the_data():
    inner = (lg.Dense(weight_std=1.2), lg.Activation("erf"), lg.Dense())
    got = lg.kernel(lg.serial(lg.Activation("tanh"), *inner), X)
    want = lg.kernel(lg.serial(*inner), np.tanh(X))
    np.testing.assert_allclose(got.ntk, want.ntk, rtol=1e-12)


def test_parameterizations_that_are_equivalent_have_equal_kernels():
    net = lg.mlp(2, "erf", weight_std=1.3, bias_std=0.2)
    base = lg.kernel(net, X, param=lg.ntk())
    for param in (
        lg.ntk().shift({"hidden": "1/2", "input": "-1/3"}),
        lg.mean_field(gamma=0.3),
        lg.mean_field().shift({"output": 1}),
    ):
        for a, b in zip(lg.kernel(net, X, param=param), base, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_relative_rates_enter_the_ntk():
    # μP's read-in has rate D times that of mean_field's: its own term of the NTK is D times larger.
    net, D = lg.mlp(1, "erf"), X.shape[1]
    mean_field = lg.kernel(net, X, param=lg.mean_field())
    mup = lg.kernel(net, X, param=lg.mup())
    np.testing.assert_allclose(mup.nngp, mean_field.nngp, rtol=1e-12)
    read_in = mean_field.ntk - mean_field.nngp
    np.testing.assert_allclose(mup.ntk, mup.nngp + D * read_in, rtol=1e-11)


def test_gamma_of_order_one_divides_the_output():
    net = lg.mlp(1, "erf")
    half, one = 0.5, [0, "1/2", "1/2"]
    lazy = lg.kernel(net, X, param=lg.abc(a=one, b=0, c=0, gamma=half))
    np.testing.assert_allclose(lazy.nngp, lg.nngp_kernel(net, X) / half**2, rtol=1e-12)
    np.testing.assert_allclose(lazy.ntk, lg.ntk_kernel(net, X), rtol=1e-12)


@pytest.mark.parametrize("tile", [1, 4])
def test_tiles_of_any_size(monkeypatch, tile):
    net = lg.mlp(2, "relu", bias_std=0.1)
    wanted = numpy_mlp(X, "relu", 2, 1.0, 0.1)
    monkeypatch.setattr(tiles, "TILE", tile)
    got = lg.kernel(net, X)
    for a, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, want, rtol=1e-12)
        assert (a == a.T).all()
    np.testing.assert_allclose(lg.ntk_kernel(net, X, X2), lg.ntk_kernel(net, X2, X).T, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_twins_in_different_tiles(monkeypatch, dtype):
    # Their distance is taken from the rows themselves, wherever these lie among all of them.
    net, pair = lg.mlp(6, "relu"), [3, 7]
    x = X.astype(dtype)
    x[7] = x[3] * (1 + (1e-9 if dtype == np.float64 else 1e-6))
    wanted, across = lg.kernel(net, x[pair]), lg.kernel(net, x[:5], x[5:])
    monkeypatch.setattr(tiles, "TILE", 2)
    got = lg.kernel(net, x)
    for whole, cross, alone in zip(got, across, wanted, strict=True):
        np.testing.assert_allclose(whole[np.ix_(pair, pair)], alone, rtol=2 * np.finfo(dtype).eps)
        np.testing.assert_allclose(cross[3, 2], alone[0, 1], rtol=2 * np.finfo(dtype).eps)


def test_a_deep_network_is_a_loop():
    assert fold("dadadad") == ((("d", "a"), 3), (("d",), 1))
    assert fold("abcd") == ((("a",), 1), (("b",), 1), (("c",), 1), (("d",), 1))
    assert fold("xabababyy") == ((("x",), 1), (("a", "b"), 3), (("y",), 2))
    assert fold("") == ()
    for sequence in ("aabaabaab", "abababcabc", "aaaaabbbbb"):
        assert "".join("".join(block) * times for block, times in fold(sequence)) == sequence

    def size(depth):
        net = lg.mlp(depth, "relu")
        return len(str(jax.make_jaxpr(lambda x: lg.kernel(net, x))(np.float32(X))))

    assert size(80) < 1.1 * size(4)


@pytest.mark.slow
def test_under_jit_and_vmap_of_the_user():
    net = lg.mlp(3, "relu", bias_std=0.1)
    x = X.astype(np.float32)
    jitted = jax.jit(lambda x: lg.kernel(net, x))(x)
    for a, b in zip(jitted, lg.kernel(net, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)
    stacked = jax.vmap(lambda x: lg.nngp_kernel(net, x, X2.astype(np.float32)))(
        jnp.stack([x, 2 * x])
    )
    np.testing.assert_allclose(stacked[0], lg.nngp_kernel(net, x, X2.astype(np.float32)), rtol=2e-5)


def test_jax_arrays_in_jax_arrays_out():
    out = lg.kernel(lg.mlp(1), jnp.asarray(X, jnp.float32))
    assert isinstance(out.ntk, jax.Array)
    assert out.ntk.dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.array([[1.0, np.nan]]),), "x1: 1 of 2 entries are NaN"),
        ((np.ones(3),), r"x1: wanted samples, .* got shape \(3,\)"),
        ((np.ones((2, 3), complex),), "x1: wanted floats, got dtype complex128"),
        ((np.ones((0, 3)),), "x1: is empty"),
        ((np.ones((2, 3)), np.ones((2, 4))), "x2: its samples have the shape"),
        ((np.ones((2, 3)), np.full((2, 3), np.inf)), "x2: 6 of 6 entries"),
    ],
)
def test_bad_inputs(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        lg.kernel(lg.mlp(1), *arguments)


def test_bad_networks_and_parameterizations():
    x = np.ones((2, 3))
    with pytest.raises(NoTheory, match="grows as N"):
        lg.kernel(lg.mlp(2), x, param=lg.abc(a=0, b=0, c=0))


def test_mixed_precision_gives_the_wider_one():
    assert lg.nngp_kernel(lg.mlp(1), X.astype(np.float32), X2).dtype == np.float64


@pytest.mark.slow
@pytest.mark.parametrize("function", [lg.kernel, lg.nngp_kernel, lg.ntk_kernel])
def test_jax_arrays_in_double_precision(function):
    """They come from a context that is left by the time they are passed on."""
    x = np.random.default_rng(1).standard_normal((5, 3))
    with jax.enable_x64(True):
        one, two = jnp.asarray(x), jnp.asarray(x[:2] + 0.1)
    net = lg.mlp(2, "relu", bias_std=0.1)
    for found, want in (
        (function(net, one), function(net, x)),
        (function(net, one, two), function(net, x, two)),
    ):
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
            assert ours.dtype == np.float64
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("net", [lg.mlp(2, "tanh"), lg.mlp(1, "relu")], ids=str)
def test_kernels_of_known_samples_are_computed_inside_of_a_jit(net):
    x = np.random.default_rng(0).normal(size=(4, 3))
    wanted = lg.kernel(net, x)
    twice = jax.jit(lambda factor: lg.kernel(net, x).ntk * factor)(2.0)
    np.testing.assert_allclose(twice, 2 * wanted.ntk, rtol=1e-6)
    chosen = jax.lax.cond(
        True, lambda: jnp.asarray(lg.nngp_kernel(net, x)), lambda: jnp.zeros((4, 4))
    )
    np.testing.assert_allclose(chosen, wanted.nngp, rtol=1e-6)
