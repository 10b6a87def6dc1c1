"""Plans in JAX are verified by the same statistic as those of PyTorch."""

import copy
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largen.errors import InvalidInput, WrongPlan
from largen.transfer import Constants, Hints, plan_from_json, verifying
from largen.transfer.jax import JaxPlan, effects, scale

SIZES = {"width": 32}, {"width": 256}
X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
SETS = np.random.default_rng(1).normal(size=(4, 6, 8)).astype("float32")
IDS = np.random.default_rng(2).integers(0, 20, (8, 6))


def gauss(key, **shapes):
    """Matrices that are applied as x @ W, with entries of variance 1/fan-in."""
    keys = jax.random.split(key, len(shapes))
    pairs = zip(shapes.items(), keys, strict=True)
    return {name: jax.random.normal(k, s) / s[0] ** 0.5 for (name, s), k in pairs}


def mlp(key, width):
    return {
        **gauss(key, i=(8, width), h=(width, width), o=(width, 3)),
        "b": jnp.zeros(width), "c": jnp.zeros(3),
    }  # fmt: skip


def of_mlp(p, x):
    h = jax.nn.relu(x @ p["i"])
    return jax.nn.relu(h @ p["h"] + p["b"]) @ p["o"] + p["c"]


def towers(key, width):
    return gauss(key, a=(8, width), b=(width, width), c=(8, width), d=(width, width))


def of_towers(p, x):
    one, other = jax.nn.relu(x @ p["a"]) @ p["b"], jax.nn.relu(x[::-1] @ p["c"]) @ p["d"]
    return (one * other).sum(-1)


def attends(key, width):
    return gauss(
        key, i=(8, width), q=(width, width), k=(width, width), v=(width, width), o=(width, 3)
    )


def of_attends(p, x):
    h = x @ p["i"]
    logits = (h @ p["q"]) @ (h @ p["k"]).mT / p["q"].shape[-1] ** 0.5
    logits = jnp.where(np.tril(np.ones((6, 6), bool)), logits, -jnp.inf)
    return (h + jax.nn.softmax(logits) @ (h @ p["v"])) @ p["o"]


def transformer(key, width, depth=2):
    keys = jax.random.split(key, depth + 1)
    ends = {"wte": 0.5 * jax.random.normal(keys[0], (20, width)), "gain": jnp.ones(width)}
    shapes = dict.fromkeys("qkvo", (width, width)) | {
        "u": (width, 4 * width),
        "d": (4 * width, width),
    }
    blocks = [{**gauss(k, **shapes), "gain": jnp.ones(width)} for k in keys[1:]]
    stacked = jax.tree.map(lambda *own: jnp.stack(own), *blocks)
    return {**ends, "blocks": stacked, **gauss(key, out=(width, 20))}


def of_transformer(p, ids):
    def norm(h):
        return h / jnp.sqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-6)

    def block(h, b):
        x = b["gain"] * norm(h)
        q, k, v = ((x @ b[n]).reshape(*ids.shape, 4, -1) for n in "qkv")
        h = h + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(h.shape) @ b["o"]
        return h + jax.nn.gelu(norm(h) @ b["u"]) @ b["d"], None

    h, _ = jax.lax.scan(block, p["wte"][ids], p["blocks"])
    return (p["gain"] * norm(h)) @ p["out"]


def makes_a_matrix(key, width):
    return gauss(key, i=(8, width), w=(8, width * width), o=(width, 3))


def of_makes_a_matrix(p, x):
    made = (x @ p["w"]).reshape(len(x), -1, p["i"].shape[-1])
    return jnp.einsum("bij,bj->bi", made, x @ p["i"]) @ p["o"]


ATTENTION = {"hints": Hints(attention={"q": 8})}
HEADS = {"hints": Hints(attention={"blocks.q": 8})}
RIGHT = {
    "mlp": (mlp, of_mlp, X, {}),
    "attention": (attends, of_attends, SETS, ATTENTION),
    "transformer": (transformer, of_transformer, IDS, HEADS),
}
FAULTS = {
    "towers": (towers, of_towers, X, {}, ("output", ""), 1.0),
    "attention": (attends, of_attends, SETS, {"hints": Hints(attention={})}, ("logits", "k"), 0.5),
    "made matrix": (makes_a_matrix, of_makes_a_matrix, X, {}, ("start", "input of o"), 0.5),
}  # fmt: skip


def planned(init, apply, example, optimizer="adam", sizes=SIZES, scheme="mup", **options):
    options = {"layout": "in_out", "verify": (apply, example), **options}
    return scale(init, *sizes, scheme=scheme, optimizer=optimizer, **options)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_plans_give_no_alarm(name, optimizer):
    init, apply, example, options = RIGHT[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", WrongPlan)
        (record,) = planned(init, apply, example, optimizer, **options).verified
    assert record.passed
    assert record.ratios == (1, 2, 4)
    assert ("logits" in {e.kind for e in record.effects}) == (name != "mlp")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen_and_named(name):
    init, apply, example, options, where, slope = FAULTS[name]
    with pytest.warns(WrongPlan, match=r"^wrong in width \(base × 1, 2, 4"):
        plan = planned(init, apply, example, **options)
    culprit = plan.verified[0].culprit
    assert culprit is not None
    assert (culprit.kind, culprit.where) == where
    assert culprit.slope == pytest.approx(slope, abs=0.25)
    assert plan_from_json(plan.to_json()).verified == plan.verified


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_repaired(name):
    init, apply, example, options, _, _ = FAULTS[name]
    with pytest.warns(WrongPlan, match=r"plan.repaired\(\) corrects what it can\.$"):
        plan = planned(init, apply, example, **options)
    repaired = plan.repaired()
    assert repaired.verified[0].passed
    assert any(note.startswith("measured in width: ") for note in repaired.notes)
    assert repaired.repaired() is repaired
    assert copy.deepcopy(repaired).factor() == repaired.factor()
    with pytest.raises(InvalidInput, match="read from text"):
        JaxPlan.from_json(plan.to_json(), init).repaired()


def change_by_training(name, width, repaired):
    """Return how much three steps of Adam change the output at a width, by the plan for it."""
    init, apply, example, options, _, _ = FAULTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongPlan)
        plan = planned(init, apply, example, sizes=({"width": 32}, {"width": width}), **options)
    plan = plan.repaired() if repaired else plan
    optimizer = plan.optax(lr=1e-3)

    def outputs(p):
        return plan.factor() * apply(p, example)

    def loss(p):
        return jnp.square(outputs(p) - 1).mean()

    def change(seed):
        p = before = plan.init(seed)
        state = optimizer.init(p)
        for _ in range(3):
            updates, state = optimizer.update(jax.grad(loss)(p), state, p)
            p = optax.apply_updates(p, updates)
        return float(jnp.abs(outputs(p) - outputs(before)).mean())

    return np.mean([change(seed) for seed in range(4)])


@pytest.mark.slow
def test_repaired_plans_train_alike_beyond_the_sizes_measured():
    for repaired, slope in ((False, 1.0), (True, 0.0)):
        some, more = (change_by_training("towers", width, repaired) for width in (64, 512))
        assert abs(np.log2(more / some) / 3 - slope) < 0.2


def tied(key, width):
    keys = jax.random.split(key, 2)
    table, w = (jax.random.normal(k, (n, width)) for k, n in zip(keys, (8, width), strict=True))
    return {"e": table, "w": w / width**0.5}


def of_tied(factor):
    def apply(p, ids):
        h = jnp.tanh(p["e"][ids].mean(1) @ p["w"])
        return factor(h.shape[1]) * h @ p["e"].T

    return apply


TIED = {"tied": ["e"]}
TOKENS = np.random.default_rng(3).integers(0, 8, (12, 3))


def test_logits_of_a_tied_read_out_have_the_plans_factor():
    plan = planned(tied, None, TOKENS, verify=False, **TIED)
    parameters = plan.init(0)
    found, expected = (
        effects.Measurement(of_tied(factor), parameters, TOKENS, True, known)(parameters, plan)
        for factor, known in ((lambda n: 1.0, {"e": 0.25}), (lambda n: 0.25, {}))
    )
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_factor_of_a_tied_read_out_is_verified_once(optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error", WrongPlan)
        plan = planned(tied, of_tied(lambda n: 1.0), TOKENS, optimizer, **TIED)
        own = planned(tied, of_tied(lambda n: 16 / n), TOKENS, optimizer, **TIED)
    assert plan.verified[0].passed
    assert own.verified[0].passed
    assert not any("do not multiply again" in note for note in plan.notes)
    assert any("do not multiply again by plan.factor('e')" in note for note in own.notes)
    with pytest.warns(WrongPlan, match="fades"):
        planned(tied, of_tied(lambda n: (16 / n) ** 2), TOKENS, optimizer, **TIED)


def network(init, apply, example, optimizer="adam", **options):
    plan = planned(init, apply, example, optimizer, verify=False, **options)
    parameters = plan.init(0)
    measure = effects.Measurement(apply, parameters, example, optimizer != "sgd")
    return plan, parameters, measure(parameters, plan), measure.layout


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
def test_effects_are_those_of_an_update(optimizer):
    """A small step along the optimizer's first update, and the change of the output, in float64."""
    with jax.enable_x64(True):
        plan, p, found, _ = network(mlp, of_mlp, X.astype(float), optimizer)
        g = np.asarray(jax.random.normal(jax.random.key(effects.ON_OUTPUT), (16, 3), float))

        def s(p):
            return (of_mlp(p, X.astype(float)) * g).mean()

        slopes = jax.grad(s)(p)
        for name in p:
            slope, kind = slopes[name], plan[name].moved_by
            step = slope if kind == "sgd" else jnp.sign(slope)
            if kind == "muon":
                into, out = slope.shape
                step = slope / jnp.sqrt(jnp.square(slope).sum()) * max(1, out / into) ** 0.5
            tiny = 1e-6 * plan[name].lr
            change = s({**p, name: p[name] + tiny * step}) - s(p)
            assert found["output", "", name] == pytest.approx(float(change) / 1e-6, rel=1e-4)


@pytest.mark.slow
def test_own_tensors_and_logits_against_formulas():
    plan, p, found, layout = network(attends, of_attends, SETS, constants=Constants(output=2))
    h = SETS @ np.asarray(p["i"])
    width = h.shape[-1]

    def direction(seed, shape):
        return np.asarray(jax.random.normal(jax.random.key(seed), shape, "float32")) / np.prod(
            shape
        )

    g = direction(effects.ON_TENSOR, h.shape)
    for name, into in (("i", SETS), ("q", h), ("v", h)):
        own = abs(np.einsum("bti,bto->io", into, g)).sum() * plan[name].lr
        assert found["tensor", "", name] == pytest.approx(own, rel=1e-4)
    assert ("tensor", "", "o") not in found
    assert layout.last == {"o"}
    # The logits q·k/√n, masked above the diagonal.
    g = np.tril(direction(effects.ON_LOGITS, (4, 6, 6))) / width**0.5
    slope = np.einsum("bti,bts,bso->io", h, g, h @ np.asarray(p["k"]))
    assert found["logits", "k#0", "q"] == pytest.approx(abs(slope).sum() * plan["q"].lr, rel=1e-3)
    assert {name for kind, _, name in found if kind == "logits"} == {"i", "q", "k"}


@pytest.mark.slow
def test_depth():
    def init(key, width, depth):
        keys = jax.random.split(key, depth + 1)
        blocks = [gauss(k, u=(width, width), d=(width, width)) for k in keys[1:]]
        return {**gauss(keys[0], i=(8, width), o=(width, 3)), "blocks": blocks}

    def apply(p, x):
        h = x @ p["i"]
        for b in p["blocks"]:
            h = h + jax.nn.relu(h @ b["u"]) @ b["d"]
        return h @ p["o"]

    sizes = {"width": 32, "depth": 2}, {"width": 32, "depth": 8}
    hints = Hints(branches=["blocks.*.d"])
    (record,) = planned(init, apply, X, sizes=sizes, scheme="complete_p", hints=hints).verified
    assert (record.along, record.passed) == ("depth", True)

    def two_sums(p, x):
        h = x @ p["i"]
        for b in p["blocks"]:
            h = h + jax.nn.relu(h) @ b["u"]
            h = h + jax.nn.relu(h) @ b["d"]
        return h @ p["o"]

    with pytest.warns(WrongPlan, match="wrong in depth"):  # the other branch is not named
        planned(init, two_sums, X, sizes=sizes, scheme="complete_p", hints=hints)


@pytest.mark.slow
def test_equinox_modules_and_loops():

    def init(key, width):
        return eqx.nn.MLP(8, 3, width, 2, key=key)

    (record,) = planned(init, lambda m, x: jax.vmap(m)(x), X).verified
    assert record.passed

    def stacked(key, width):
        blocks = jax.random.normal(key, (2, width, width)) / width**0.5
        return {**gauss(key, i=(8, width), o=(width, 3)), "blocks": blocks}

    def looped(p, x):
        h, _ = jax.lax.scan(lambda h, w: (h + jnp.tanh(h @ w), None), x @ p["i"], p["blocks"])
        return h @ p["o"]

    *_, found, _ = network(stacked, looped, X, hints=Hints(roles={"blocks": "hidden"}))
    assert ("output", "", "blocks") in found


@pytest.mark.slow
def test_what_is_not_verified_says_why(monkeypatch):
    options = {"layout": "in_out", "scheme": "mup"}
    assert "pass verify=(apply, inputs)" in str(scale(mlp, *SIZES, **options))
    assert scale(mlp, *SIZES, **options, verify=False).verified == ()
    assert scale(mlp, SIZES[0], SIZES[0], **options).verified == ()

    def reason(apply=of_mlp, example=X, **options):
        return planned(mlp, apply, example, **options).verified[0].reason

    assert "does not keep updates" in reason(scheme="standard")
    assert reason(lambda p, x: x @ p["h"]).startswith("the forward or backward pass failed: Type")
    assert "no weight acts on it" in reason(lambda p, x: x)
    monkeypatch.setattr(verifying, "MOST_WEIGHTS", 1000)
    assert "more than 1e+03" in reason()
    with pytest.raises(InvalidInput, match=r"verify\[0\]: wanted a function of"):
        reason(lambda p: p)
