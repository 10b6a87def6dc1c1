"""Tangent kernels from affine maps equal products of Jacobians, whatever the function is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.networks.tangents.contraction import Derived, Factored
from largen.networks.tangents.factors import plan_of
from largen.networks.tangents.samples_apart import apart, proved_apart

RNG = np.random.default_rng(5)


def draw(*shape):
    return RNG.normal(size=shape) / max(shape[:-1] or (1,)) ** 0.5


def flat(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def mlp(p, x):
    h = jax.nn.relu(x @ p["a"] / 2.0 + p["bias"])
    return jnp.tanh(h @ p["b"]) @ p["c"]


def transposed(p, x):
    return jnp.tanh(p["a"].T @ x.T).T @ p["b"].T * 3.0


def tied(p, x):
    """A weight and its transpose, used three times."""
    h = jnp.tanh(x @ p["w"])
    return jnp.tanh(jnp.tanh(h @ p["w"].T) @ p["w"]) @ p["w"].T


def tied_but_reshaped(p, x):
    """Uses whose entries cannot be compared axis by axis."""
    h = jnp.tanh(x @ p["w"])
    return (h[:, :4] @ p["w"].reshape(6, 4).T)[:, :4] @ p["w"]


def attention(p, x):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) / 2.0)
    mixed = jnp.einsum("bhts,bshk->bthk", weights, v)
    return jnp.einsum("bthk,hkd->btd", mixed, p["o"]).mean(1)


def normalised(p, x):
    h = x @ p["a"]
    h = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)
    return jax.nn.gelu(h * p["gain"] + p["bias"]) @ p["b"]


def looped(p, x):
    h = x @ p["a"]
    h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), h, p["layers"])
    return h @ p["b"]


def stepped(p, x):
    """A recurrent network over the positions of samples, backwards, and two stacked read-outs."""

    def step(h, x):
        return jnp.tanh(x @ p["a"] + h @ p["w"] + p["bias"]), h.sum(-1)

    h, sums = jax.lax.scan(step, jnp.zeros((len(x), 3)), x.swapaxes(0, 1), reverse=True)
    first, *others = p["layers"]
    return sum(h @ w.T for w in others) + h @ first.T * sums[0][:, None]


def embedded(p, x):
    """Tokens, with the table tied to the outputs."""
    h = p["table"][x.astype(int)] + p["place"]
    return jnp.tanh(h @ p["w"]).sum(1) @ p["table"].T


def convolution(p, x, **options):
    return jax.lax.conv_general_dilated(x, p, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


def cnn(p, x):
    h = jnp.tanh(convolution(p["a"], x, window_strides=(1, 1), padding="SAME") + p["bias"])
    h = convolution(p["b"], h, window_strides=(2, 1), padding=((1, 0), (2, 1)), rhs_dilation=(1, 2))
    h = convolution(p["groups"], jnp.tanh(h), window_strides=(1, 1), padding="VALID",
                    feature_group_count=2)  # fmt: skip
    return jnp.tanh(h).mean((1, 2)) @ p["c"]


def channels_first(p, x):
    """A transposed convolution, with channels before space."""
    h = jax.lax.conv_general_dilated(
        jnp.moveaxis(x, -1, 1), p["a"], (1, 1), ((1, 1), (1, 1)), lhs_dilation=(2, 2),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )  # fmt: skip
    return jnp.tanh(h).sum((2, 3))


def standardised(p, x):
    """Weights that are functions of parameters, a remat, and a derivative of its own."""
    w = (p["a"] - p["a"].mean()) / p["a"].std()

    @jax.custom_vjp
    def kept(h):
        return h

    kept.defvjp(lambda h: (h, None), lambda _, g: (g,))
    return kept(jax.checkpoint(lambda h: jnp.tanh(h @ p["b"] * p["scale"]))(x @ w))


X = flat(0, 5, 4), flat(1, 3, 4)
SEQUENCES, IMAGES = (flat(2, 4, 3, 4), flat(3, 2, 3, 4)), (flat(4, 3, 5, 6, 2), flat(5, 2, 5, 6, 2))
TOKENS = np.array([[0.0, 1, 2], [2, 2, 4], [4, 0, 1]]), np.array([[1.0, 1, 1], [3, 4, 0]])
CASES = {
    "mlp": (mlp, {"a": draw(4, 6), "bias": draw(6), "b": draw(6, 5), "c": draw(5, 3)}, X),
    "transposed": (transposed, {"a": draw(4, 6), "b": draw(2, 6)}, X),
    "tied": (tied, {"w": draw(4, 6)}, X),
    "tied_but_reshaped": (tied_but_reshaped, {"w": draw(4, 6)}, X),
    "attention": (
        attention,
        {"q": draw(4, 2, 3), "k": draw(4, 2, 3), "v": draw(4, 2, 3), "o": draw(2, 3, 2)},
        SEQUENCES,
    ),
    "normalised": (
        normalised,
        {"a": draw(4, 6), "gain": draw(6), "bias": draw(6), "b": draw(6, 2)},
        X,
    ),
    "looped": (looped, {"a": draw(4, 3), "layers": draw(5, 3, 3), "b": draw(3, 2)}, X),
    "stepped": (
        stepped,
        {"a": draw(4, 3), "w": draw(3, 3), "layers": draw(3, 2, 3), "bias": draw(3)},
        SEQUENCES,
    ),
    "embedded": (embedded, {"table": draw(5, 4), "place": draw(3, 4), "w": draw(4, 4)}, TOKENS),
    "cnn": (
        cnn,
        {
            "a": draw(3, 3, 2, 4), "bias": draw(4), "b": draw(2, 2, 4, 6),
            "groups": draw(2, 1, 3, 4), "c": draw(4, 2),
        },
        IMAGES,
    ),
    "channels_first": (channels_first, {"a": draw(3, 2, 3, 3)}, IMAGES),
    "standardised": (
        standardised,
        {"a": draw(4, 6), "b": draw(6, 2), "scale": np.array(0.7)},
        X,
    ),
}  # fmt: skip


def from_jacobians(f, params, x1, x2):
    """Return the kernel of whole batches, (n1, n2, output, output)."""
    with jax.enable_x64(True):
        one, two = (jax.jacrev(lambda p, x=x: f(p, x))(params) for x in (x1, x2))
        parts = jax.tree.map(
            lambda a, b: np.einsum("iak,jbk->ijab", *(j.reshape(*j.shape[:2], -1) for j in (a, b))),
            one, two,
        )  # fmt: skip
        return sum(jax.tree.leaves(parts))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_product_of_jacobians(name):
    f, params, (x1, x2) = CASES[name]
    got = lg.networks.ntk_of_function(f, params, x1, x2)
    np.testing.assert_allclose(got, from_jacobians(f, params, x1, x2), rtol=1e-11, atol=1e-12)
    got = lg.networks.ntk_of_function(f, params, x1)
    np.testing.assert_allclose(got, from_jacobians(f, params, x1, x1), rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(got, got.transpose(1, 0, 3, 2))


@pytest.mark.parametrize(
    "name",
    [
        "tied",
        "cnn",
        "channels_first",
        "looped",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("attention", "embedded")),
    ],
)
def test_products_of_factors_whatever_is_cheaper(name, monkeypatch):
    """Both ways for arrays in affine maps: products of factors, and derivatives from factors."""
    f, params, (x1, x2) = CASES[name]
    for factor in (0, 10**12):
        monkeypatch.setattr(
            "largen.networks.tangents.contraction.cost_of_products",
            lambda *_, factor=factor: (factor, 1),
        )
        got = lg.networks.ntk_of_function(f, params, x1, x2)
        np.testing.assert_allclose(got, from_jacobians(f, params, x1, x2), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["standardised", "looped"])
def test_products_with_vectors(name):
    """Of functions that have derivatives in one direction only, too."""
    f, params, (x1, x2) = CASES[name]
    got = lg.networks.ntk_of_function(f, params, x1, x2, method="products")
    np.testing.assert_allclose(got, from_jacobians(f, params, x1, x2), rtol=1e-11, atol=1e-12)


def ways(name, samples=5):
    f, params, (x, _) = CASES[name]
    found = plan_of(f, params, x, (samples, samples), factored=True).arrays
    return dict(zip(sorted(params), found, strict=True))


def test_what_is_read_from_a_function():
    """Weights of affine maps have factors, an array used in two ways has none."""
    assert [type(w) for w in ways("mlp").values()] == [Factored, Factored, Derived, Factored]
    assert len(ways("tied")["w"].sites) == 4
    for name, leaf in (
        ("tied_but_reshaped", "w"), ("standardised", "a"), ("mlp", "bias")
    ):  # fmt: skip
        assert ways(name)[leaf] == Derived((), ())
    assert [site.part[1] for site in ways("looped")["layers"].sites] == [0, 1, 2, 3, 4]
    assert len({site.part for site in ways("stepped")["w"].sites}) == 1
    for name in ("attention", "cnn", "embedded", "channels_first", "looped", "stepped"):
        params = CASES[name][1]
        affine = [leaf for leaf in params if leaf not in ("bias", "place")]
        assert all(ways(name)[leaf].sites for leaf in affine)


def test_the_derivative_is_formed_where_it_is_cheaper():
    """Of a small filter at many positions, for many samples."""

    def f(p, x):
        h = convolution(p, x, window_strides=(1, 1), padding="SAME")
        return jnp.tanh(h).mean((1, 2))

    p, x = flat(0, 3, 3, 1, 2), flat(1, 4, 16, 16, 1)
    with jax.enable_x64(True):
        (many,) = plan_of(f, p, x, (100, 100), factored=True).arrays
    assert isinstance(many, Derived)
    assert many.sites
    np.testing.assert_allclose(
        lg.networks.ntk_of_function(f, p, x), from_jacobians(f, p, x, x), rtol=1e-11
    )


@pytest.mark.parametrize("name", CASES)
def test_samples_are_proved_to_be_apart(name):
    f, params, (x, _) = CASES[name]
    assert proved_apart(f, params, x) == (name != "standardised")
    with jax.enable_x64(True):
        assert apart(f, params, jnp.asarray(x))


def batch_statistics(p, x):
    h = x @ p["a"]
    return ((h - h.mean(0)) / h.std(0)) @ p["b"]


def masked_by_row(p, x):
    keep = jax.random.bernoulli(jax.random.key(0), 0.5, (len(x), 6))
    return (jnp.tanh(x @ p["a"]) * keep) @ p["b"]


def centred_outputs(p, x):
    out = jnp.tanh(x @ p["a"]) @ p["b"]
    return out - out.mean(0, keepdims=True)


def ranked(p, x):
    return jnp.sort(jnp.tanh(x @ p["a"]) @ p["b"], axis=0)


def neighbours(p, x):
    return (x + jnp.roll(x, 1, axis=0)) @ p["a"] @ p["b"]


@pytest.mark.parametrize(
    ("f", "method"),
    [
        (batch_statistics, "auto"), (batch_statistics, "jacobian"), (masked_by_row, "auto"),
        (masked_by_row, "products"), (centred_outputs, "auto"), (ranked, "auto"),
        (neighbours, "auto"),
    ],
)  # fmt: skip
def test_coupled_samples_have_the_kernel_of_their_batch(f, method):
    params = {"a": draw(4, 6), "b": draw(6, 2)}
    assert not proved_apart(f, params, X[0])
    for x2 in (X[1], None):
        got = lg.networks.ntk_of_function(f, params, X[0], x2, method=method)
        want = from_jacobians(f, params, X[0], X[0] if x2 is None else x2)
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def test_coupled_samples_inside_jit():
    params = {"a": draw(4, 6), "b": draw(6, 2)}
    jitted = jax.jit(lambda p: lg.networks.ntk_of_function(batch_statistics, p, X[0]))
    with jax.enable_x64(True):
        want = from_jacobians(batch_statistics, params, X[0], X[0])
        np.testing.assert_allclose(jitted(params), want, rtol=1e-11, atol=1e-12)


def test_a_mask_common_to_all_samples_couples_none():
    def f(p, x):
        keep = jax.random.bernoulli(jax.random.key(0), 0.5, (6,))
        return (jnp.tanh(x @ p["a"]) * keep) @ p["b"]

    assert proved_apart(f, {"a": draw(4, 6), "b": draw(6, 2)}, X[0])


@pytest.mark.parametrize("low", ["x", "params"])
def test_mixed_precision_is_the_higher_one(low):
    f, params, (x, _) = CASES["mlp"]
    if low == "x":
        x = x.astype("f")
    else:
        params = jax.tree.map(lambda p: p.astype("f"), params)
    got = lg.networks.ntk_of_function(f, params, x)
    wide = jax.tree.map(lambda p: p.astype(float), params)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, got.transpose(1, 0, 3, 2))
    np.testing.assert_allclose(got, from_jacobians(f, wide, x.astype(float), x), rtol=1e-11)
    scalar = lg.networks.ntk_of_function(lambda p, x: f(p, x)[:, 0], params, x)
    lg.regression.posterior_from_kernel(scalar, x[:, 0].astype(float), noise=0.1)  # not refused


def test_inside_transformations():
    f, params, (x, _) = CASES["mlp"]
    with jax.enable_x64(True):
        want = lg.networks.ntk_of_function(f, params, x)
        np.testing.assert_allclose(
            jax.jit(lg.networks.ntk_of_function, static_argnums=0)(f, params, x), want
        )
        stacked = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), params)
        both = jax.vmap(lambda p: lg.networks.ntk_of_function(f, p, x))(stacked)
        np.testing.assert_allclose(both[0], want, rtol=1e-12)
        toward = jax.tree.map(jnp.ones_like, params)
        slope = jax.jvp(lambda p: lg.networks.ntk_of_function(f, p, x), (params,), (toward,))[1]
        h = 1e-5
        ends = [
            lg.networks.ntk_of_function(f, jax.tree.map(lambda p, s=s: p + s * h, params), x)
            for s in (1, -1)
        ]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-8)


def test_rates_of_entries():
    f, params, (x, _) = CASES["tied"]
    rates = {"w": np.abs(draw(4, 6))}
    with jax.enable_x64(True):
        j = jax.jacrev(lambda p: f(p, x))(params)["w"]
    want = np.einsum("iakl,kl,jbkl->ijab", j, rates["w"], j)
    np.testing.assert_allclose(
        lg.networks.ntk_of_function(f, params, x, rates=rates), want, rtol=1e-11
    )


@pytest.mark.slow
def test_networks_follow_the_same_rule_of_precision():
    net = lg.mlp(2, "tanh", bias_std=0.3)
    params = lg.networks.init(net, lg.ntk(), width=8, inputs=4, outputs=2, key=0)
    got = lg.networks.empirical_ntk(net, params, X[0])
    np.testing.assert_array_equal(got, got.transpose(1, 0, 3, 2))
    want = lg.networks.ntk_of_function(lambda p, x: lg.networks.apply(net, p, x), params, X[0])
    np.testing.assert_allclose(got, want, rtol=1e-12)
