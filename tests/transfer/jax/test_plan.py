"""Plans for pytrees: dicts, stacked blocks, equinox modules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largen.errors import InvalidInput
from largen.transfer import Hints, warmup_cosine
from largen.transfer.jax import JaxPlan, scale
from largen.transfer.jax.trees import weights_of

# Sizes that occur anyway while a plan is made: fewer compilations.
BASE, TARGET = {"width": 16, "depth": 2}, {"width": 32, "depth": 4}

KEY = jax.random.key(3, impl="unsafe_rbg")  # compiles quickly


def normal(key, *shape, std=1.0):
    return std * jax.random.normal(key, shape)


def stacked(key, width, depth):
    """A transformer-like tree as flax writes it: in × out, blocks stacked for a scan."""
    keys = jax.random.split(key, 6)
    return {
        "wte": {"embedding": normal(keys[0], 11, width, std=0.02)},
        "wpe": normal(keys[1], 8, width, std=0.02),
        "blocks": {
            "norm": {"scale": jnp.ones((depth, width))},
            "query": {"kernel": normal(keys[2], depth, width, width, std=width**-0.5)},
            "fc1": {"kernel": normal(keys[3], depth, width, 4 * width, std=width**-0.5)},
            "fc2": {"kernel": normal(keys[4], depth, 4 * width, width, std=(4 * width) ** -0.5)},
        },
        "head": {"kernel": normal(keys[5], width, 11, std=width**-0.5), "bias": jnp.zeros(11)},
        "steps": jnp.zeros((), jnp.int32),
    }


@pytest.fixture(scope="module")
def plan():
    return scale(
        stacked,
        BASE,
        TARGET,
        layout="in_out",
        hints=Hints(branches=["blocks.fc2"], attention={"blocks.query": 2.0}),
    )


def test_the_table_of_stacked_blocks(plan):
    n = l = 2.0
    assert plan.depth_ratio == l
    assert {w.name: w.role for w in plan.weights} == {
        "wte.embedding": "embedding",
        "wpe": "positional",
        "blocks.norm.scale": "norm",
        "blocks.query.kernel": "hidden",
        "blocks.fc1.kernel": "hidden",
        "blocks.fc2.kernel": "hidden",
        "head.kernel": "output",
        "head.bias": "scalar",
    }
    assert plan["blocks.fc1.kernel"].lr == pytest.approx(1 / n / l**0.5)
    assert plan["blocks.fc2.kernel"].folded == ("branch × l⁻¹ᐟ²",)
    assert plan["blocks.query.kernel"].folded == ("attention × n⁻¹ᐟ²",)
    assert plan["blocks.query.kernel"].init == pytest.approx(0.5**0.5)
    assert plan["head.kernel"].init == pytest.approx(0.5**0.5)
    assert plan["wpe"].lr == 1.0


def test_matrices_in_the_layers_of_embeddings_are_no_tables():
    import equinox as eqx

    def init(key, width):
        keys = jax.random.split(key, 6)
        return {
            "embed": normal(keys[0], 11, width),
            "time_embed": {"w1": normal(keys[1], 8, width), "w2": normal(keys[2], width, width)},
            "unembed": normal(keys[3], width, 11),
            "transposed": {"unembed": normal(keys[4], 11, width)},
            "embed_out": eqx.nn.Linear(width, 11, key=keys[5]),
        }

    plan = scale(init, {"width": 16}, {"width": 32}, scheme="mup", layout="in_out")
    assert {w.name: w.role for w in plan.weights if w.role != "scalar"} == {
        "embed": "embedding",
        "time_embed.w1": "embedding",
        "time_embed.w2": "hidden",
        "unembed": "output",
        "transposed.unembed": "output",
        "embed_out.weight": "output",
    }


def test_stacks_of_equinoxs_layers_have_the_settings_of_single_ones():
    import equinox as eqx

    def layers(key, width):
        return {
            "norm": eqx.nn.LayerNorm(width),
            "up": eqx.nn.Linear(width, 2 * width, key=key),
            "conv": eqx.nn.Conv2d(width, width, 3, key=key),
            "cell": eqx.nn.GRUCell(4, width, key=key),
        }

    def stacked(key, width):  # of a number that is no key of the shapes
        return eqx.filter_vmap(lambda key: layers(key, width))(jax.random.split(key, 2))

    one, two = (
        scale(init, {"width": 16}, {"width": 32}, scheme="mup") for init in (layers, stacked)
    )
    for weight in one.weights:
        found = two[weight.name]
        assert (found.role, found.lr, found.init) == (weight.role, weight.lr, weight.init)
    assert one["up.weight"].role == one["conv.weight"].role == "hidden"


def test_a_vector_that_reads_out_is_told_by_its_role():
    def init(key, width):
        return {"w": normal(key, 5, width), "c": jnp.ones(width) / width}

    sizes = {"width": 16}, {"width": 64}
    found = scale(init, *sizes, scheme="mup", layout="in_out")
    assert "hints=Hints(roles={name: 'output'})" in found.notes[0]
    told = scale(init, *sizes, scheme="mup", layout="in_out", hints=Hints(roles={"c": "output"}))
    assert told["c"].lr == 0.25
    assert not told.notes


def test_initialisation_scales_the_users_own(plan):
    key = KEY
    built, own = plan.init(key), stacked(key, **TARGET)
    factors = {w.name: w.init for w in plan.weights}
    for name, leaf in weights_of(built).items():
        np.testing.assert_allclose(leaf, factors[name] * weights_of(own)[name], rtol=1e-6)
    assert built["steps"].dtype == jnp.int32
    assert all(w.init == 1 for w in scale(stacked, BASE, BASE, layout="in_out").weights)


def test_rates_reach_every_leaf(plan):
    # One step of Adam with an enormous gradient moves each weight by its rate.
    parameters = plan.init(KEY)
    moved = plan.optax(lr=1.0, weight_decay=0.0, schedule=warmup_cosine(10, warmup=2))
    gradients = jax.tree.map(lambda x: jnp.ones_like(x, jnp.float32), parameters)
    updates, _ = jax.jit(moved.update)(gradients, moved.init(parameters), parameters)
    for name, leaf in weights_of(updates).items():
        if name != "steps":
            np.testing.assert_allclose(leaf, -0.5 * plan[name].lr, rtol=1e-5)


def test_schedules_of_absolute_rates_are_refused(plan):
    absolute = optax.cosine_decay_schedule(1e-3, 100)
    with pytest.raises(InvalidInput, match="lr: wanted a number, got a schedule"):
        plan.optax(lr=absolute)
    with pytest.raises(InvalidInput, match="absolute rates"):
        plan.optax(lr=1e-3, schedule=absolute)
    plan.optax(lr=1.0, schedule=absolute)
    for steps, warmup in ((10, 9), (50_000, 0), (200_000, 20_000)):
        plan.optax(lr=1e-3, schedule=warmup_cosine(steps, warmup=warmup))


def test_clipping_counts_gradients_as_in_the_forward_pass(plan):
    weights = {w.name: w for w in plan.weights}
    gradients = {name: np.full(w.shape, 1e-2, dtype=np.float32) for name, w in weights.items()}
    tree = {"wpe": gradients["wpe"]}
    for name, gradient in gradients.items():
        if name != "wpe":
            *path, leaf = name.split(".")
            node = tree
            for part in path:
                node = node.setdefault(part, {})
            node[leaf] = gradient
    norm = np.sqrt(sum(np.sum((g * weights[n].fold) ** 2) for n, g in gradients.items()))
    assert norm > 0.1
    clip = plan.clip_by_global_norm(0.1)
    clipped, _ = clip.update(tree, clip.init(tree))
    np.testing.assert_allclose(clipped["wpe"], 1e-2 * 0.1 / norm, rtol=1e-4)
    loose = plan.clip_by_global_norm(1e3)
    np.testing.assert_array_equal(loose.update(tree, loose.init(tree))[0]["wpe"], gradients["wpe"])


@pytest.mark.slow
def test_equinox_modules():
    class Block(eqx.Module):
        norm: eqx.nn.LayerNorm
        fc1: eqx.nn.Linear
        fc2: eqx.nn.Linear

        def __init__(self, width, key):
            keys = jax.random.split(key)
            self.norm = eqx.nn.LayerNorm(width)
            self.fc1 = eqx.nn.Linear(width, 2 * width, key=keys[0])
            self.fc2 = eqx.nn.Linear(2 * width, width, key=keys[1])

        def __call__(self, x):
            return x + self.fc2(jax.nn.relu(self.fc1(self.norm(x))))

    class Net(eqx.Module):
        stem: eqx.nn.Conv1d
        blocks: list
        activation: object
        head: eqx.nn.Linear

        def __init__(self, key, width, depth):
            keys = jax.random.split(key, depth + 2)
            self.stem = eqx.nn.Conv1d(1, width, 3, key=keys[0])
            self.blocks = [Block(width, key) for key in keys[2:]]
            self.activation = jax.nn.relu
            self.head = eqx.nn.Linear(width, 3, key=keys[1])

        def __call__(self, x):
            h = self.activation(self.stem(x[None])).mean(axis=1)
            for block in self.blocks:
                h = block(h)
            return self.head(h)

    plan = scale(
        lambda key, width, depth: Net(key, width, depth),
        BASE,
        TARGET,
        hints=Hints(branches="blocks.*.fc2"),
    )
    roles = {w.name: w.role for w in plan.weights}
    assert roles["stem.weight"] == "input"
    assert roles["blocks.3.norm.weight"] == "norm"
    assert roles["blocks.3.fc1.weight"] == "hidden"
    assert roles["head.weight"] == "output"
    assert plan["blocks.3.fc2.bias"].folded == ("branch × l⁻¹ᐟ²",)
    net = plan.init(KEY)
    trained, fixed = eqx.partition(net, eqx.is_inexact_array)
    moved = plan.optax(lr=1e-2)
    x = jnp.linspace(-1, 1, 9)

    @jax.jit
    def step(trained, state):
        def loss(p):
            return jnp.square(eqx.combine(p, fixed)(x) - 1.0).mean()

        value, gradient = jax.value_and_grad(loss)(trained)
        updates, state = moved.update(gradient, state, trained)
        return eqx.apply_updates(trained, updates), state, value

    state = moved.init(trained)
    losses = []
    for _ in range(5):
        trained, state, value = step(trained, state)
        losses.append(float(value))
    assert losses[-1] < losses[0]


def test_the_distribution_of_a_single_entry_is_measured():
    def init(key, width):
        keys = jax.random.split(key)
        return {"inp": normal(keys[0], 3, width), "gate": normal(keys[1], 1, std=width**-0.5)}

    plan = scale(init, {"width": 4}, {"width": 64}, scheme="mup", layout="in_out")
    assert (plan["gate"].init, plan["gate"].init_std) == (4.0, 1.0)


def test_equinoxs_attention_is_known():
    class Net(eqx.Module):
        stem: eqx.nn.Linear
        attention: eqx.nn.MultiheadAttention

        def __init__(self, key, width):
            keys = jax.random.split(key)
            self.stem = eqx.nn.Linear(3, width, key=keys[0])
            self.attention = eqx.nn.MultiheadAttention(
                2, width, qk_size=width, use_query_bias=True, key=keys[1]
            )

    plan = scale(Net, {"width": 16}, {"width": 64}, scheme="mup")
    folded = {w.name: w.folded for w in plan.weights if w.folded}
    queries = "attention.query_proj"
    assert folded == dict.fromkeys((f"{queries}.weight", f"{queries}.bias"), ("attention × n⁻¹ᐟ²",))
    left = scale(Net, {"width": 16}, {"width": 64}, scheme="mup", hints=Hints(attention={}))
    assert not any(w.folded for w in left.weights)


def test_what_is_called_queries_is_noted():
    def noted(scheme="depth_mup", **hints):
        told = Hints(branches=["blocks.fc2"], **hints)
        plan = scale(stacked, BASE, TARGET, layout="in_out", scheme=scheme, hints=told)
        return [note for note in plan.notes if "queries of attention" in note]

    (note,) = noted()
    assert note.startswith("blocks.query.kernel may make")
    assert "h^(-1/2)" in note
    assert noted(attention={"blocks.query": 2.0}) == noted(attention={}) == []
    assert noted(scheme="standard") == []


def test_tied_embeddings_name_their_factor():
    def tied(key, width):
        return {"wte": normal(key, 11, width)}

    plan = scale(tied, {"width": 8}, {"width": 32}, scheme="mup", tied=["wte"])
    assert plan.factor("wte") == 0.25
    assert plan["wte"].lr == 1.0
    with pytest.raises(InvalidInput, match="was not named in tied"):
        plan.factor("wpe")


def test_json(plan):
    again = JaxPlan.from_json(plan.to_json(), stacked)
    assert again == plan
    np.testing.assert_array_equal(again.init(KEY)["wpe"], plan.init(KEY)["wpe"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scale(stacked, BASE, TARGET, scheme="mup"), "layout: the weight head.kernel"),
        (lambda: scale(stacked, BASE, TARGET, layout="in_out"), "branches: .* end in"),
        (lambda: scale(stacked, BASE, TARGET, layout="x"), "layout: 'x'"),
        (lambda: scale(stacked, {"w": 2}, {"w": 4}), "could not be called"),
        (
            lambda: scale(
                lambda key, width: {"w": normal(key, width, 2 * width)},
                {"width": 8},
                {"width": 16},
                scheme="mup",
                optimizer="muon",
            ),
            "layout: Muon's step",
        ),
        (lambda: scale(stacked, BASE, TARGET, optimizer="Adafactor"), "no rule for adafactor"),
        (
            lambda: scale(stacked, BASE, TARGET, scheme="mup", layout="in_out").check(
                stacked(KEY, **BASE)
            ),
            "not the plan's target's",
        ),
    ],
)
def test_doors(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
