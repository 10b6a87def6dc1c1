"""Parameters as flax and Haiku make them: kernels of several axes, variables, paths as names."""

from collections.abc import Mapping
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largen.errors import InvalidInput
from largen.transfer import Hints
from largen.transfer.jax import scale
from largen.transfer.jax.trees import named_leaves, weights_of

BASE = {"width": 8, "heads": 2, "head": 4, "depth": 1}


def drawn(key, *shape, fan_in):
    """Return initial values; all draws are of one size, which is compiled once."""
    return jax.random.normal(key, (4096,))[: prod(shape)].reshape(shape) / fan_in**0.5


def attention(key, width, heads, head, bias=True):
    """``nn.MultiHeadDotProductAttention``'s parameters."""
    keys, found = jax.random.split(key, 4), {}
    for k, name in zip(keys, ("query", "key", "value"), strict=False):
        found[name] = {"kernel": drawn(k, width, heads, head, fan_in=width)}
        found[name] |= {"bias": jnp.zeros((heads, head))} if bias else {}
    found["out"] = {"kernel": drawn(keys[3], heads, head, width, fan_in=heads * head)}
    found["out"] |= {"bias": jnp.zeros(width)} if bias else {}
    return found


def block(key, width, heads, head, **options):
    return {
        "LayerNorm_0": {"scale": jnp.ones(width), "bias": jnp.zeros(width)},
        "attn": attention(key, width, heads, head, **options),
        "Conv_0": {"kernel": jnp.zeros((3, width, width))},
    }


def linen(key, width, heads, head, depth, **options):
    keys = jax.random.split(key, depth + 2)
    blocks = {f"Block_{i}": block(keys[i], width, heads, head, **options) for i in range(depth)}
    read_out = {"kernel": drawn(keys[-1], width, 3, 5, fan_in=width), "bias": jnp.zeros((3, 5))}
    return {"Embed_0": {"embedding": drawn(keys[-2], 11, width, fan_in=1)}, **blocks,
            "DenseGeneral_0": read_out}  # fmt: skip


def as_matrices(key, heads, head, **others):
    """The same model with all kernels of attention and of the read-out as matrices."""
    tree = linen(key, heads=heads, head=head, **others)

    def flat(path, leaf):
        if "attn" in path or "DenseGeneral_0" in path:
            into = heads * head if "out" in path else None
            if path[-1] == "kernel":
                return leaf.reshape(into or leaf.shape[0], -1)
            return leaf.reshape(-1)
        return leaf

    return jax.tree_util.tree_map_with_path(lambda p, x: flat([k.key for k in p], x), tree)


def planned(init, target, **options):
    return scale(init, BASE, {**BASE, **target}, layout="in_out", scheme="mup", **options)


TARGETS = {
    "more heads": {"width": 32, "heads": 8},
    "larger heads": {"width": 32, "head": 16},
    "both": {"width": 32, "heads": 4, "head": 8},
}


@pytest.mark.parametrize(
    ("target", "bias"), [("larger heads", True), ("both", True), ("both", False)]
)
def test_kernels_of_several_axes_are_the_matrices_that_they_stand_for(target, bias):
    """Independent route: plan for the reshaped tree, where nothing is in question."""
    found = planned(partial(linen, bias=bias), TARGETS[target])
    hints = Hints(attention={"*.attn.query": TARGETS[target].get("head", 4) / 4})
    expected = planned(partial(as_matrices, bias=bias), TARGETS[target], hints=hints)
    roles = {w.name: w.role for w in found.weights}
    assert roles["Block_0.attn.query.kernel"] == roles["Block_0.attn.out.kernel"] == "hidden"
    assert roles["DenseGeneral_0.kernel"] == "output"
    assert roles == {w.name: w.role for w in expected.weights}
    for weight in found.weights:
        other = expected[weight.name]
        numbers = ("n", "init", "init_std", "lr", "weight_decay", "eps", "fold")
        assert {k: getattr(weight, k) for k in numbers} == pytest.approx(
            {k: getattr(other, k) for k in numbers}
        ), weight.name
    assert found.width_ratio == 4.0


def test_queries_of_flax_are_known():
    plan = planned(linen, TARGETS["larger heads"])
    assert plan["Block_0.attn.query.kernel"].folded == ("attention × n⁻¹ᐟ²",)
    assert plan["Block_0.attn.query.bias"].fold == 0.5
    assert not planned(linen, TARGETS["more heads"])["Block_0.attn.query.kernel"].folded

    def normalised(key, width, heads, head, depth):
        tree = linen(key, width, heads, head, depth)
        for i in range(depth):
            norms = {name: {"scale": jnp.ones(head)} for name in ("query_ln", "key_ln")}
            tree[f"Block_{i}"]["attn"] |= norms
        return tree

    plan = planned(normalised, TARGETS["larger heads"])
    assert plan["Block_0.attn.query_ln.scale"].fold == 0.5
    assert plan["Block_0.attn.query.kernel"].fold == 1.0


def test_kernels_that_cannot_be_told_are_refused():
    def general(key, width, heads, head, depth):
        return {"first": {"kernel": jnp.ones((5, width))},
                "mixed": {"kernel": jnp.ones((width, heads, head))}}  # fmt: skip

    with pytest.raises(InvalidInput, match=r"layout: the weight mixed.kernel has 3 axes"):
        planned(general, TARGETS["more heads"])


class Variable:
    """As flax nnx has it: a node around one array, with that array's attributes."""

    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "value"), name)


class State(Mapping):
    """As flax nnx has it: a mapping whose inner dictionaries are states, too."""

    def __init__(self, inner):
        self.inner = inner

    def __getitem__(self, name):
        found = self.inner[name]
        return State(found) if isinstance(found, dict) else found

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


def of_value(variable):
    return ((jax.tree_util.GetAttrKey("value"), variable.value),), None


def of_state(state):
    names = sorted(state.inner)
    return tuple((jax.tree_util.DictKey(n), state.inner[n]) for n in names), tuple(names)


jax.tree_util.register_pytree_with_keys(Variable, of_value, lambda _, held: Variable(*held))
jax.tree_util.register_pytree_with_keys(
    State, of_state, lambda names, held: State(dict(zip(names, held, strict=True)))
)


def nnx(key, **sizes):
    return State(jax.tree.map(Variable, linen(key, **sizes)))


@pytest.mark.slow
def test_a_state_of_nnx_gets_the_plan_of_its_dictionaries():
    plan, expected = (planned(make, TARGETS["both"], optimizer="muon") for make in (nnx, linen))
    assert plan.weights == expected.weights
    state, tree = plan.init(0), expected.init(0)
    assert isinstance(state, State)
    assert isinstance(state["Embed_0"]["embedding"], Variable)
    for other, leaf in zip(jax.tree.leaves(state), jax.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(other, leaf)
    moved = []
    for own, start in ((plan, state), (expected, tree)):
        optimizer = optax.chain(own.clip_by_global_norm(1.0), own.optax(lr=0.1))
        gradients = jax.tree.map(jnp.ones_like, start)
        moved.append(optimizer.update(gradients, optimizer.init(start), start)[0])
    assert isinstance(moved[0], State)
    for other, leaf in zip(*map(jax.tree.leaves, moved), strict=True):
        np.testing.assert_array_equal(other, leaf)


def test_names_are_in_the_order_of_the_leaves():
    tree = {
        "b": [jnp.ones(1), jnp.arange(2)],
        "a/~/x": {"w": jnp.ones(3)},
        "c": Variable(jnp.ones(4)),
    }
    found = named_leaves(tree)
    assert [name for name, _ in found] == ["a.~.x.w", "b.0", "b.1", "c"]
    assert all(a is b for (_, a), b in zip(found, jax.tree.leaves(tree), strict=True))
    assert [*weights_of(tree)] == ["a.~.x.w", "b.0", "c"]


def test_weights_of_sixteen_bits_are_weights():
    tree = {"w": jnp.ones((2, 2), jnp.bfloat16), "key": jax.random.key(0)}
    assert [*weights_of(tree)] == ["w"]


def haiku(key, width, depth):
    tree = {"net/embed": {"embeddings": jnp.ones((11, width))}}
    for i in range(depth):
        name = "net/block" if i == 0 else f"net/block_{i}"
        draw = jax.random.fold_in(key, i)
        tree[f"{name}/mha/query"] = {
            "w": drawn(draw, width, width, fan_in=width),
            "b": jnp.zeros(width),
        }
        tree[f"{name}/conv2_d"] = {"w": jnp.zeros((3, 3, width, width))}
        tree[name] = {"gain": jnp.ones(width)}
    return {**tree, "net/linear": {"w": drawn(key, width, 3, fan_in=width), "b": jnp.zeros(3)}}


@pytest.mark.parametrize("depth", [1, 2])
def test_paths_as_names_and_blocks_as_haiku_counts_them(depth):
    base, target = {"width": 8, "depth": depth}, {"width": 32, "depth": 4 * depth}
    plan = scale(haiku, base, target, layout="in_out", hints=Hints(branches=["net.block*.conv2_d"]))
    assert plan.depth_ratio == 4.0
    roles = {w.name: w.role for w in plan.weights}
    assert roles["net.block_3.mha.query.w"] == roles["net.block.conv2_d.w"] == "hidden"
    assert roles["net.linear.w"] == "output"
    assert roles["net.block_1.gain"] == "norm"
    assert plan["net.block.conv2_d.w"].folded == ("branch × l⁻¹ᐟ²",)
    assert plan["net.block.mha.query.w"].in_branch
    plan.optax(lr=0.1).init(plan.init(0))
