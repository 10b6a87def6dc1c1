"""Functions in JAX as they are, against the same networks in our layers, and their draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory
from largen.reading.jax.population import run
from largen.reading.jax.population.rules import RULES as POPULATION_RULES
from largen.reading.jax.rules import RULES
from largen.reading.values import Value

RNG = np.random.default_rng(5)
VECTORS, IMAGES = RNG.normal(size=(3, 5)), RNG.normal(size=(2, 4, 4, 3))
TOKENS = RNG.normal(size=(2, 4, 3))
SMALL = (8, 16)
RELU = lg.Activation("relu")


def normal(key, *shape):
    return jax.random.normal(key, shape)


def init(key, width):
    """Parameters of two hidden layers and a block, with several laws."""
    keys = jax.random.split(key, 6)
    return {
        "first": {"w": normal(keys[0], 5, width), "b": 0.1 * normal(keys[1], width)},
        "up": jax.random.uniform(keys[2], (2 * width, width), minval=-1.0),
        "down": normal(keys[3], 2 * width, width) * jnp.sqrt(0.5 / width),
        "gain": jnp.ones(width),
        "head": jax.random.truncated_normal(keys[4], -2, 2, (width, 2)) / jnp.sqrt(width),
        "few": normal(keys[5], 3),
    }


def affine(p, x):
    return x @ p["w"] / jnp.sqrt(len(p["w"])) + p["b"]


def perceptron(p, x):
    h = jax.nn.relu(affine(p["first"], x))
    h = jnp.tanh(jnp.einsum("sn,mn->sm", h, p["up"]) * (3 / h.shape[1]) ** 0.5)
    return jax.nn.gelu(h @ p["down"], approximate=False) @ p["head"]


HEAD_STD = float(stats.truncnorm.std(-2, 2))
PERCEPTRON = lg.serial(
    lg.Dense(bias_std=0.1), RELU, lg.Dense(width_ratio=2), lg.Activation("tanh"), lg.Dense(),
    lg.Activation("gelu"), lg.Dense(weight_std=HEAD_STD),
)  # fmt: skip


def off(net, ours, x):
    """Return the largest relative differences of kernels."""
    found, expected = net.kernel(x), lg.kernel(ours, x, param=lg.ntk())
    return max(
        float(np.max(np.abs(np.asarray(a) / np.asarray(b) - 1)))
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.slow
def test_two_hidden_layers_have_the_kernels_of_our_layers():
    net = lg.read(init, VECTORS, SMALL, apply=perceptron)
    assert off(net, PERCEPTRON, VECTORS) < 1e-8
    assert "first.w  5       normal            1       normal  0.01" in str(net)


def layer_norm(h, gain, mean, variance):
    return (h - mean) / jnp.sqrt(variance + 1e-5) * gain


def by_mean_of_squares(h, gain):
    centred = h - h.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain


def by_variance(h, gain):
    return layer_norm(h, gain, h.mean(-1, keepdims=True), h.var(-1, keepdims=True))


def by_moments(h, gain):  # as flax does
    mean, square = h.mean(-1), jax.lax.square(h).mean(-1)
    variance = jnp.maximum(0.0, square - jax.lax.square(mean))
    factor = jax.lax.rsqrt(jnp.expand_dims(variance, -1) + 1e-5) * gain.reshape(1, -1)
    return (h - jnp.expand_dims(mean, -1)) * factor


def of_jax(h, gain):
    return gain * jax.nn.standardize(h, epsilon=1e-5)


def root_mean_square(h, gain):
    return h / jnp.sqrt(jnp.mean(h * h, axis=-1, keepdims=True) + 1e-5) * gain


def residual(norm):
    def apply(p, x):
        h = affine(p["first"], x)
        block = jax.nn.relu(norm(h, p["gain"]) @ p["up"].T * (3 / h.shape[1]) ** 0.5)
        h = h + 0.5 * (block @ p["down"])
        return norm(h, p["gain"]) @ p["head"]

    return apply


def our_residual(norm):
    block = {
        "norm": (norm, "x"), "up": (lg.Dense(width_ratio=2), "norm"), "relu": (RELU, "up"),
        "down": (lg.Dense(), "relu"), "end": ("sum", "x", (0.5, "down")),
    }  # fmt: skip
    dense = lg.Dense(bias_std=0.1), lg.layers.Graph(block)
    return lg.serial(*dense, norm, lg.Dense(weight_std=HEAD_STD))


@pytest.mark.slow
@pytest.mark.parametrize(
    "norm", [by_mean_of_squares, by_variance, by_moments, of_jax, root_mean_square]
)
def test_norms_are_read_however_they_are_written(norm):
    ours = lg.RMSNorm(eps=1e-5) if norm is root_mean_square else lg.LayerNorm(eps=1e-5)
    net = lg.read(init, VECTORS, SMALL, apply=residual(norm))
    if norm in (by_variance, root_mean_square):
        assert off(net, our_residual(ours), VECTORS) < 1e-8
    assert net.layer == lg.read(init, VECTORS, SMALL, apply=residual(norm)).layer
    assert sum(part == ours for part in net.layer.parts) == 2


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.maximum(x, 0.0), "relu"),
        (jax.nn.softplus, "softplus"),
        (jax.nn.silu, "silu"),
        (jax.nn.leaky_relu, "leaky_relu"),
        (lambda x: x * jax.nn.sigmoid(x), "silu"),
        (lambda x: jnp.minimum(jax.nn.relu(x), 20.0), "max.min"),
        (lambda x: x**2, "integer_pow"),
    ],
)
def test_functions_have_the_name_of_their_values(function, name):
    net = lg.read(
        init, VECTORS, SMALL, apply=lambda p, x: function(affine(p["first"], x)) @ p["head"]
    )
    (found,) = (part for part in net.layer.parts if isinstance(part, lg.Activation))
    assert found.activation.name == name


def image_init(key, width):
    keys = jax.random.split(key, 3)
    return {
        "a": normal(keys[0], 3, 3, 3, width) / 27**0.5,
        "b": normal(keys[1], 3, 3, width, width) * (2 / 9 / width) ** 0.5,
        "head": normal(keys[2], 4 * width, 1) / (4 * width) ** 0.5,
    }


def convolutional(p, x):
    def conv(h, w, stride, padding):
        names = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(h, w, (stride,) * 2, padding, dimension_numbers=names)

    h = jax.nn.relu(conv(x, p["a"], 1, "SAME"))
    h = jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID") / 4
    h = jax.nn.relu(conv(h, p["b"], 2, ((1, 1), (1, 1))))
    return h.reshape(len(h), -1) @ p["head"]


@pytest.mark.slow
def test_convolutions_have_the_kernels_of_our_layers():
    second = lg.Conv((3, 3), strides=(2, 2), padding=((1, 1), (1, 1)), weight_std=2**0.5)
    first = lg.serial(lg.Conv((3, 3)), RELU, lg.layers.AvgPool((2, 2), strides=1))
    ours = lg.serial(first, second, RELU, lg.layers.Flatten(), lg.Dense())
    net = lg.read(image_init, IMAGES, SMALL, apply=convolutional)
    assert off(net, ours, IMAGES) < 1e-8


@pytest.mark.slow
def test_means_over_positions_have_the_kernels_of_our_layers():
    def apply(p, x):
        h = jnp.einsum("btd,dn->btn", x, p["w"])
        return jnp.einsum("btn,nc->btc", jnp.sin(h), p["v"]).mean(1)

    def make(key, width):
        keys = jax.random.split(key)
        return {"w": normal(keys[0], 3, width), "v": normal(keys[1], width, 1) / width**0.5}

    ours = lg.serial(
        lg.Dense(weight_std=3**0.5), lg.Activation("sin"), lg.Dense(), lg.GlobalAvgPool()
    )
    assert off(lg.read(make, TOKENS, SMALL, apply=apply), ours, TOKENS) < 1e-8


def equinox_model(key, width):
    eqx = pytest.importorskip("equinox")
    return eqx.nn.MLP(5, 1, width, 2, activation=jnp.tanh, key=key)


def test_an_equinox_model_has_a_uniform_read_in_and_vanishing_biases():
    net = lg.read(equinox_model, VECTORS, SMALL, apply=lambda model, x: jax.vmap(model)(x))
    assert [w.map.weight for w in net.weights] == [f"layers.{i}.weight" for i in range(3)]
    assert [w.bias_variance.power for w in net.weights] == [0, -1, -1]
    assert {w.law.kind for w in net.weights} == {"uniform"}
    biases = [np.square(getattr(net.at(n).parts[-1], "bias_std")) for n in (8, 32)]  # noqa: B009
    np.testing.assert_allclose(biases, [1 / 24, 1 / 96], rtol=1e-12)
    with pytest.raises(NoTheory, match="not Gaussian"):
        lg.kernel(net, VECTORS)


def test_a_forward_pass_may_take_the_width():
    def apply(p, x, width):  # as modules of flax, which hold their sizes
        return jnp.tanh(affine(p["first"], x)).reshape(-1, width) @ p["head"]

    ours = lg.serial(lg.Dense(bias_std=0.1), lg.Activation("tanh"), lg.Dense(weight_std=HEAD_STD))
    assert off(lg.read(init, VECTORS, SMALL, apply=apply), ours, VECTORS) < 1e-8


@jax.custom_jvp
def straight_through(x):
    return jnp.sign(x)


straight_through.defjvp(lambda x, dx: (jnp.sign(x[0]), dx[0]))


def looped(p, h):
    step = lambda h, _: (jnp.tanh(h @ p["down"][: h.shape[1]]), None)  # noqa: E731
    return jax.lax.scan(step, h, None, 2)[0] @ p["head"]


REFUSED = {
    "a maximum": (
        lambda p, h: h.max(1, keepdims=True) * p["head"][0],
        r"line \d+ of test_jax.py \(reduce_max\).*which grows with the width, has no limit",
    ),
    "a given derivative": (lambda p, h: straight_through(h) @ p["head"], "derivatives given"),
    "a matrix and its transpose": (
        lambda p, h: jnp.tanh(jnp.tanh(h @ p["up"].T) @ p["up"]) @ p["head"], "up: .*transpose",
    ),
    "a sum": (
        lambda p, h: h / jnp.sum(h**2, axis=1, keepdims=True) @ p["head"], "wanted a factor 1/width"
    ),
    "no read-out": (lambda p, h: jnp.tanh(h), "read the logits"),
    "a function of the outputs": (
        lambda p, h: jax.nn.log_softmax(h @ p["head"]), "not linear in the last weights",
    ),
    "no dependence": (lambda p, h: jnp.ones(3), "does not depend on x"),
    "a part": (lambda p, h: h[:, :3] @ p["head"][:3], r"slice\): it takes a part of the channels"),
    "a part of a matrix": (lambda p, h: looped(p, h), "slice"),
    "logits of a growing head": (
        lambda p, h: jax.nn.softmax(h @ h.T) @ h @ p["head"], "heads of a growing size",
    ),
    "two read-outs": (
        lambda p, h: (h @ p["head"]) * (jnp.tanh(h) @ p["head"]), "there is a rule for one read-out"
    ),
    "a table of few columns": (
        lambda p, h: h @ p["head"] + p["few"].sum(), "no axis of it grows with the width",
    ),
    "a computed weight": (lambda p, h: h @ jnp.sin(p["head"]), "head|sin|weight"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name):
    forward, said = REFUSED[name]
    with pytest.raises(NoRule, match=rf"(?s)lg\.read: .*{said}"):
        lg.read(init, VECTORS, SMALL, apply=lambda p, x: forward(p, affine(p["first"], x)))


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda key, *s: jax.random.gumbel(key, s), "made by log"),
        (lambda key, *s: np.random.default_rng(0).normal(size=s), "not drawn from the key"),
    ],
)
def test_laws_that_are_not_known_are_not_guessed(draw, said):
    def make(key, width):
        one, two = jax.random.split(key)
        return {"w": draw(one, 5, width), "v": normal(two, width, 1)}

    with pytest.raises(NoRule, match=rf"lg\.read: w: .*{said}"):
        lg.read(make, VECTORS, SMALL, apply=lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"])


COPIED = {
    "mirrored": lambda key, n: jnp.concatenate([normal(key, n // 2, n), -normal(key, n // 2, n)]),
    "one row": lambda key, n: jnp.broadcast_to(normal(key, 1, n), (n, n)),
    "repeated": lambda key, n: jnp.repeat(jax.random.uniform(key, (n, n // 2)), 2, axis=1),
    "a batch of keys": lambda key, n: jax.vmap(lambda k: normal(k, n, n // 2))(
        jnp.stack([key, key])
    ).reshape(n, n),
}


@pytest.mark.parametrize("name", [*COPIED, "parts of one draw", "an equal sign in each column"])
def test_copies_inside_a_weight_are_not_taken_to_be_independent(name):
    def draw(key, n):
        if name == "parts of one draw":
            return jnp.concatenate(jnp.split(normal(key, n, n), 2, axis=1), axis=0).reshape(n, n)
        if name in COPIED:
            return COPIED[name](key, n)
        return jax.nn.initializers.orthogonal(n**0.5)(key, (n, n))

    def make(key, width):
        keys = jax.random.split(key, 3)
        return {
            "a": normal(keys[0], 5, width),
            "b": draw(keys[1], width) / width**0.5,
            "c": normal(keys[2], width, 1) / width**0.5,
        }

    def apply(p, x):
        return jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"]) @ p["c"]

    if name in COPIED:
        with pytest.raises(NoRule, match=r"b: .*its entries are copies of each other"):
            lg.read(make, VECTORS, SMALL, apply=apply)
    else:
        assert lg.read(make, VECTORS, SMALL, apply=apply).layer


def test_layers_of_a_stack_that_have_one_key_are_not_taken_to_be_independent():
    def make(key, width):
        weights = stacked_init(key, width)
        one = weights["blocks"]["up"][:1]
        return weights | {"blocks": weights["blocks"] | {"up": jnp.repeat(one, 3, axis=0)}}

    with pytest.raises(NoRule, match=r"blocks.up\[0\]: .*copies of each other"):
        lg.read(make, VECTORS, SMALL, apply=lambda p, x: by_scan(p, x @ p["first"]) @ p["head"])


@pytest.mark.parametrize(
    ("draw", "reused"),
    [
        (lambda keys, *s: normal(keys[1], *s[::-1]).T, "c"),
        (lambda keys, *s: 0.3 * jax.random.uniform(keys[0], s, minval=-1.0), "a"),
        (lambda keys, *s: normal(jax.random.split(jax.random.wrap_key_data(
            jax.random.key_data(keys[2])))[0], *s), "b"),
        (lambda keys, *s: jax.vmap(lambda k: normal(k, *s))(keys[1:2])[0], "c"),
        (lambda keys, *s: normal(keys[2], *s), ""),
    ],
)  # fmt: skip
def test_weights_of_one_key_are_not_taken_to_be_independent(draw, reused):
    def make(key, width):
        keys = jax.random.split(key, 3)
        return {
            "a": normal(keys[0], 5, width),
            "b": normal(jax.random.split(keys[2])[0], width),
            "c": normal(keys[1], width, width) / jnp.sqrt(width),
            "d": draw(keys, width, 2) / jnp.sqrt(width),
        }

    def apply(p, x):
        return jnp.tanh(jnp.tanh(x @ p["a"] + p["b"]) @ p["c"]) @ p["d"]

    if not reused:
        assert lg.read(make, VECTORS, SMALL, apply=apply).layer
    else:
        with pytest.raises(NoRule, match=rf"d: .*the random key of {reused}; split the key"):
            lg.read(make, VECTORS, SMALL, apply=apply)


@pytest.mark.parametrize(
    ("make", "apply", "said"),
    [
        (init, 3, "apply: wanted a function"),
        (lambda key: {}, perceptron, "make: .*raised TypeError"),
        (lambda key, width: {}, perceptron, "make: wanted parameters"),
        (lambda key, width: init(key, 8), perceptron, "make: .*has to use"),
        (init, lambda p, x: x @ p["none"], "x: apply.*KeyError"),
        (init, lambda p, x: (x, x), "apply: wanted an array"),
    ],
)
def test_wrong_functions_are_named(make, apply, said):
    with pytest.raises(InvalidInput, match=said):
        lg.read(make, VECTORS, SMALL, apply=apply)


def stacked_init(key, width):
    keys = jax.random.split(key, 3)

    def block(key):
        one, two = jax.random.split(key)
        up = normal(one, width, 2 * width) / width**0.5
        return {"up": up, "down": normal(two, 2 * width, width) / (2 * width) ** 0.5}

    return {
        "first": normal(keys[0], 5, width) / 5**0.5,
        "blocks": jax.vmap(block)(jax.random.split(keys[1], 3)),
        "head": normal(keys[2], width, 2) / width**0.5,
    }


def residual_block(h, p):
    return h + jnp.tanh(h @ p["up"]) @ p["down"]


def by_scan(p, h):
    return jax.lax.scan(lambda h, p: (residual_block(h, p), None), h, p["blocks"])[0]


def by_remat(p, h):
    step = jax.checkpoint(lambda h, p: (residual_block(h, p), h.mean()))
    return jax.lax.scan(step, h, p["blocks"], unroll=2)[0]


def by_number(p, h):
    for n in range(3):
        h = residual_block(h, jax.tree.map(lambda each, n=n: each[n], p["blocks"]))
    return h


def by_fori(p, h):
    at = lambda n: jax.tree.map(lambda each: each[n], p["blocks"])  # noqa: E731
    return jax.lax.fori_loop(0, 3, lambda n, h: residual_block(h, at(n)), h)


def unstacked(p, h):
    for up, down in zip(p["blocks"]["up"], jnp.unstack(p["blocks"]["down"]), strict=True):
        h = residual_block(h, {"up": up, "down": down})
    return h


@pytest.mark.parametrize("blocks", [by_scan, by_remat, by_number, by_fori, unstacked])
def test_stacked_weights_are_read_layer_by_layer(blocks):
    net = lg.read(
        stacked_init, VECTORS, SMALL,
        apply=lambda p, x: blocks(p, x @ p["first"]) @ p["head"],
    )  # fmt: skip
    names = [f"blocks.{w}[{n}]" for n in range(3) for w in ("up", "down")]
    assert [w.map.weight for w in net.weights] == ["first", *names, "head"]
    one = {
        "up": (lg.Dense(width_ratio=2), "x"), "tanh": (lg.Activation("tanh"), "up"),
        "down": (lg.Dense(), "tanh"), "end": ("sum", "x", "down"),
    }  # fmt: skip
    ours = lg.serial(lg.Dense(), *[lg.layers.Graph(one)] * 3, lg.Dense())
    assert off(net, ours, VECTORS) < 1e-8


def test_a_stack_that_is_read_as_a_whole_as_well_is_no_stack_of_independent_ones():
    def apply(p, x):
        h = x @ p["first"]
        return (h @ p["blocks"]["up"][0] + jnp.einsum("sn,knm->sm", h, p["blocks"]["up"])) @ (
            p["blocks"]["down"][1] @ p["head"]
        )

    with pytest.raises(NoRule, match=r"blocks.up|blocks.down"):
        lg.read(stacked_init, VECTORS, SMALL, apply=apply)


FEW = lg.reading.Population(neurons=256, replicates=16)


def largest_z(found, expected):
    """Return the largest deviations in standard errors, of NNGP and NTK."""
    names = ("nngp", "ntk")
    return max(
        float(np.max(abs(getattr(found, n) - np.asarray(getattr(expected, n)))
                     / getattr(found, f"{n}_error")))
        for n in names
    )  # fmt: skip


def with_offset(p, x):
    h = jnp.tanh(affine(p["first"], x))
    h = jax.nn.relu(h @ (p["up"].T * (3 / h.shape[1]) ** 0.5) - p["bias"])
    return 2 * (p["few"] + (p["outwards"] @ h.T).T)


def offset_init(key, width):
    keys = jax.random.split(jax.random.fold_in(key, 7), 3)
    return init(key, width) | {
        "outwards": normal(keys[0], 3, 2 * width) / (2 * width) ** 0.5,
        "few": normal(keys[1], 3) / 2,
        "bias": normal(keys[2], 2 * width) / 2,
    }


CASES = {
    "norms": (init, residual(by_variance), VECTORS),
    "offset": (offset_init, with_offset, VECTORS),
    "images": (image_init, convolutional, IMAGES),
    "stack": (stacked_init, lambda p, x: by_scan(p, x @ p["first"]) @ p["head"], VECTORS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_both_readings_agree(name):
    make, apply, x = CASES[name]
    net = lg.read(make, x, SMALL, apply=apply)
    assert largest_z(net.kernel(x, method=FEW), net.kernel(x)) < 4


def without_derivatives(monkeypatch):
    step = run.differentiated

    def stopped(primitive, options, given):
        return step(primitive, options, [run.Dual(each.value) for each in given])

    monkeypatch.setattr(run, "differentiated", stopped)


def without_biases(monkeypatch):
    def kept(population, call, primitive):
        return [population.tensors(call.args[0], call)]

    monkeypatch.setitem(POPULATION_RULES, "sub", kept)


def attention(p, ids):
    def block(h, p):
        q, k, v = jnp.einsum("btn,cnhd->cbthd", jax.nn.standardize(h), p["qkv"])
        logits = jnp.einsum("bthd,bshd->bhts", q, k) / 2
        logits = jnp.where(jnp.tril(jnp.ones(logits.shape[-2:], bool)), logits, -jnp.inf)
        return h + jnp.einsum("bhts,bshd,hdn->btn", jax.nn.softmax(logits), v, p["out"]), None

    h, _ = jax.lax.scan(block, jnp.take(p["ids"], ids, axis=0) + p["places"][:4], p["blocks"])
    return jax.nn.gelu(h.mean(1)) @ p["head"]


def attention_init(key, width):
    keys = jax.random.split(key, 5)
    std, heads = width**-0.5, width // 4
    return {
        "ids": normal(keys[0], 7, width),
        "places": 0.5 * normal(keys[1], 5, width),
        "blocks": {
            "qkv": std * normal(keys[2], 2, 3, width, heads, 4),
            "out": std * normal(keys[3], 2, heads, 4, width),
        },
        "head": std * normal(keys[4], width, 3),
    }


def gated(p, x):  # a GRU over positions
    def step(h, x):
        one, two = (jnp.split(each, 3, 1) for each in (x @ p["in"] + p["bias"], h @ p["state"]))
        z = jax.nn.sigmoid(one[0] + two[0])
        new = jnp.tanh(one[1] + jax.nn.sigmoid(one[2] + two[2]) * two[1])
        return (1 - z) * new + z * h, None

    start = jnp.zeros((len(x), p["state"].shape[0]))
    return jax.lax.scan(step, start, x.swapaxes(0, 1))[0] @ p["head"]


def gated_init(key, width):
    uniform, keys = (
        jax.nn.initializers.variance_scaling(1.0, "fan_in", "uniform"),
        jax.random.split(key, 3),
    )
    return {
        "in": uniform(keys[0], (3, 3 * width)),
        "bias": jnp.zeros(3 * width),
        "state": uniform(keys[1], (width, 3 * width)),
        "head": uniform(keys[2], (width, 2)),
    }


def pooled(p, x):
    def conv(h, w, groups=1):
        names = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            h, w, (1, 1), "SAME", dimension_numbers=names, feature_group_count=groups
        )

    h = jax.nn.relu(conv(x, p["a"]))
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    h = h + conv(h, p["depth"], h.shape[-1])
    h = jax.nn.silu(conv(h, p["b"]))
    return h.mean((1, 2)) @ p["out"]


def pooled_init(key, width):
    one, two = jax.random.split(jax.random.fold_in(key, 9))
    more = {"depth": normal(one, 3, 3, 1, width) / 3, "out": normal(two, width, 2) / width**0.5}
    return image_init(key, width) | more


def mixture(p, x):  # of heads of which there is a fixed number, with a norm over the batch
    heads = jax.vmap(lambda p: jax.nn.relu(x @ p["up"]) @ p["down"])(p["heads"])
    h = heads.mean(0)
    return jnp.tanh((h - h.mean(0)) / jnp.sqrt(h.var(0) + 0.1)) @ p["head"]


def mixture_init(key, width):
    one, two, three = jax.random.split(key, 3)
    return {
        "heads": {
            "up": normal(one, 3, 5, width) / 5**0.5,
            "down": normal(two, 3, width, width) / width**0.5,
        },
        "head": normal(three, width) / width**0.5,
    }  # fmt: skip


IDS = RNG.integers(0, 7, (3, 4))
POPULATIONS = {
    "attention": (attention_init, attention, IDS),
    "gated": (gated_init, gated, TOKENS),
    "pooled": (pooled_init, pooled, IMAGES),
    "mixture": (mixture_init, lambda p, x: mixture(p, x)[:, None], RNG.normal(size=(8, 5))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POPULATIONS)
def test_draws_agree_with_populations(name):
    make, apply, x = POPULATIONS[name]
    net = lg.read(make, x, SMALL, apply=apply)
    (last,) = (w.map for w in net.weights if w.map.last)
    drawn = net.family.kernels(last, net.input("x", x), 64, range(64))[:2]
    found = net.kernel(x, width=64, method=FEW)
    for draws, name in zip(drawn, ("nngp", "ntk"), strict=True):
        error = np.hypot(stats.sem(draws), getattr(found, f"{name}_error"))
        assert np.max(abs(draws.mean(0) - getattr(found, name)) / error) < 4


def of_edges(h):  # sums over the edges of a graph
    sent, received = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 2])
    return jax.vmap(lambda h: jax.ops.segment_sum(h[sent], received, num_segments=4))(h)


def by_adjacency(h):
    adjacency = np.zeros((4, 4))
    np.add.at(adjacency, ([1, 2, 3, 0, 2], [0, 1, 2, 3, 0]), 1)
    return jnp.einsum("ts,bsn->btn", adjacency, h)


def kept(h):  # written position by position
    def step(t, made):
        return made.at[:, t].set(jnp.tanh(h[:, t]))

    return jax.lax.fori_loop(0, 4, step, jnp.zeros_like(h))


WRITTEN = {
    "tiles": (lambda h: jnp.tile(h, (1, 1, 2)), lambda h: jnp.concatenate([h, h], -1)),
    "edges": (of_edges, by_adjacency),
    "a position is set": (
        lambda h: h.at[:, 0].set(0.0), lambda h: h * np.array([0.0, 1, 1, 1])[:, None],
    ),
    "a position is multiplied": (
        lambda h: h.at[:, 1].multiply(2.0), lambda h: h * np.array([1.0, 2, 1, 1])[:, None],
    ),
    "a loop": (kept, jnp.tanh),
    "a slice": (
        lambda h: jax.lax.dynamic_update_slice(h, h[:, :2], (0, 2, 0)),
        lambda h: jnp.concatenate([h[:, :2], h[:, :2]], 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_values_that_are_copied_or_written_to_places_are_those_of_other_functions(name):
    def make(key, width):
        keys = jax.random.split(key, 3)
        return {
            "w": normal(keys[0], 3, width),
            "v": normal(keys[1], width * (1 + (name == "tiles")), width) / width**0.5,
            "head": normal(keys[2], width, 1) / width**0.5,
        }

    found = []
    for function in WRITTEN[name]:

        def apply(p, x, function=function):
            h = jax.nn.relu(function(jnp.maximum(x @ p["w"], x @ p["w"] / 2)) @ p["v"])
            return h.mean(1) @ p["head"]

        net = lg.read(make, TOKENS, SMALL, apply=apply)
        few = lg.reading.Population(neurons=64, replicates=2)
        found.append(net.kernel(TOKENS, method=few))
    np.testing.assert_allclose(found[0].nngp, found[1].nngp, rtol=1e-9)
    np.testing.assert_allclose(found[0].ntk, found[1].ntk, rtol=1e-9)


def test_parts_of_the_channels_that_are_written_are_refused():
    def apply(p, x):
        h = affine(p["first"], x)
        return h.at[:, 0].set(0.0) @ p["head"]

    with pytest.raises(NoRule, match=r"scatter\): it writes into a part of the channels"):
        lg.read(init, VECTORS, SMALL, apply=apply)


def test_samples_of_single_precision_are_compared_with_draws():
    def apply(p, x):  # convolutions take arguments of one precision
        h = jax.lax.conv_general_dilated(
            x, p["a"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.tanh(h).reshape(len(h), -1) @ p["head"]

    x = IMAGES[:, :2, :2].astype(np.float32)
    net = lg.read(image_init, x, SMALL, apply=apply)
    (last,) = (w.map for w in net.weights if w.map.last)
    nngp, ntk, _ = net.family.kernels(last, net.input("x", x), 8, range(2))
    assert nngp.shape == ntk.shape == (2, 2, 2)
    assert np.isfinite([nngp, ntk]).all()


@pytest.mark.slow
@pytest.mark.parametrize("break_it", [without_derivatives, without_biases])
def test_a_broken_population_disagrees_with_the_exact_reading(monkeypatch, break_it):
    make, apply, x = CASES["offset"]
    net = lg.read(make, x, SMALL, apply=apply)
    break_it(monkeypatch)
    assert largest_z(net.kernel(x, method=FEW), net.kernel(x)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["perceptron", "norms", "equinox"])
def test_draws_agree_with_the_reading(name):
    make, apply = {
        "perceptron": (init, perceptron),
        "norms": (init, residual(by_variance)),
        "equinox": (equinox_model, lambda model, x: jax.vmap(model)(x)),
    }[name]
    found = lg.read(make, VECTORS, SMALL, apply=apply).check(widths=(32, 64, 128), seeds=32)
    assert found.agrees, found


@pytest.mark.slow
def test_a_wrong_rule_is_found_by_draws(monkeypatch):
    def doubled(reader, call, one, two, **rest):
        value = right(reader, call, one, two, **rest)
        return reader.scaled(call, value, 1.2) if isinstance(value, Value) else value

    right = RULES["mul"]
    monkeypatch.setitem(RULES, "mul", doubled)
    net = lg.read(init, VECTORS, SMALL, apply=residual(by_variance))
    found = net.check(widths=(32, 64, 128), seeds=32)
    assert not found.agrees
    assert found.first == "up"
