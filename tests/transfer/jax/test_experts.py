"""Mixtures of experts as pytrees: the plans, and the training, of PyTorch's mixtures.

Arrays that stack the experts' weights, also over blocks, are compared with lists of experts, in
which no axis is in question.
"""

from functools import partial
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.transfer import mixtures

from largen.errors import InvalidInput
from largen.transfer import Hints
from largen.transfer import jax as in_jax
from largen.transfer import torch as in_torch
from largen.transfer.jax.trees import map_named, weights_of
from largen.transfer.torch.optimizers import OPTIMIZERS

BASE = {"width": 8, "experts": 4, "size": 8, "depth": 1}
TARGET = {"width": 16, "experts": 6, "size": 16, "depth": 2}
KINDS = {"list": mixtures.Mixture, "arrays": mixtures.Fused}
NUMBERS = ("n", "init", "init_std", "lr", "weight_decay", "eps", "fold")


def drawn(key, *shape, fan_in):
    """Return initial values of size (fan-in)^(−½); all draws are of one size, compiled once."""
    return jax.random.normal(key, (2048,))[: prod(shape)].reshape(shape) / fan_in**0.5


def linear(key, fan_in, fan_out, bias=True):
    own = {"weight": drawn(key, fan_out, fan_in, fan_in=fan_in)}
    return own | ({"bias": drawn(key, fan_out, fan_in=fan_in)} if bias else {})


def init(key, width, experts, size, depth, kind):
    """Parameters of :class:`tests.transfer.mixtures.Net`, under its names."""

    def mixture(key):
        keys = jax.random.split(key, experts + 3)
        gate = {"gate": linear(keys[0], width, experts, bias=False)}
        if kind == "arrays":
            return gate | {
                "up": drawn(keys[1], experts, size, width, fan_in=width),
                "down": drawn(keys[2], experts, width, size, fan_in=size),
            }
        sides = {"up": (width, size), "down": (size, width)}
        return gate | {
            "experts": [
                {part: linear(k, *both, bias=False) for part, both in sides.items()}
                for k in keys[3:]
            ]
        }

    keys = jax.random.split(key, depth + 2)
    return {
        "inp": linear(keys[0], 16, width),
        "blocks": [mixture(k) for k in keys[2:]],
        "out": linear(keys[1], width, 4),
    }


def forward(parameters, x):
    """The outputs of :class:`tests.transfer.mixtures.Net` with experts in arrays."""

    def affine(p, x):
        return x @ p["weight"].T + p["bias"]

    def normed(x):
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + jnp.finfo(x.dtype).eps)

    x = affine(parameters["inp"], x)
    for block in parameters["blocks"]:
        h = normed(x)
        logits = h @ block["gate"]["weight"].T
        least = jax.lax.top_k(logits, logits.shape[-1] // mixtures.ACTIVE)[0][..., -1:]
        weights = jax.nn.softmax(jnp.where(logits >= least, logits, -jnp.inf))
        hidden = jax.nn.relu(jnp.einsum("bi,eji->bej", h, block["up"]))
        x = x + jnp.einsum("be,bej,eij->bi", weights, hidden, block["down"])
    return affine(parameters["out"], normed(x))


def plans(kind, scheme, optimizer):
    options = {"scheme": scheme, "optimizer": optimizer}
    net = partial(mixtures.Net, kind=KINDS[kind])
    tree = in_jax.scale(
        partial(init, kind=kind),
        BASE,
        TARGET,
        layout="out_in",
        hints=Hints(branches=None if scheme == "mup" else ["blocks.*.down"]),
        **options,
    )
    return in_torch.scale(net, BASE, TARGET, **options), tree


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "scheme", "optimizer"),
    [("arrays", "mup", "sgd"), ("list", "mup", "adamw"), ("arrays", "complete_p", "muon")],
)
def test_the_tables_are_those_of_pytorch(kind, scheme, optimizer):
    module, tree = plans(kind, scheme, optimizer)
    assert {w.name: w for w in tree.weights} == {w.name: w for w in module.weights}
    assert tree.depth_ratio == module.depth_ratio == 2.0
    assert set(tree.notes) == {n for n in module.notes if "number of experts grows" in n}
    assert len(tree.notes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_losses_are_those_of_pytorch(optimizer):
    module, tree = plans("arrays", "depth_mup", optimizer)
    model = module.build(seed=0)
    state = {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}
    shapes = jax.eval_shape(lambda: tree.make_parameters(jax.random.key(0), **TARGET))
    parameters = map_named(lambda name, _: state[name], shapes)
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=(16, n)).astype("float32") for n in (16, 4))
    settings = {"lr": {"sgd": 0.05, "adam": 3e-3}[optimizer], "weight_decay": 0.1}
    moved = OPTIMIZERS[optimizer](module.param_groups(model, **settings))
    ours, wanted, found = tree.optax(**settings), [], []
    memory = ours.init(parameters)
    value = jax.jit(jax.value_and_grad(lambda p: jnp.square(forward(p, x) - y).mean()))
    update = jax.jit(ours.update)
    for _ in range(6):
        moved.zero_grad()
        loss = (model(torch.tensor(x)) - torch.tensor(y)).square().mean()
        loss.backward()
        moved.step()
        wanted.append(loss.item())
        own, gradient = value(parameters)
        step, memory = update(gradient, memory, parameters)
        parameters = jax.tree.map(jnp.add, parameters, step)
        found.append(float(own))
    assert abs(wanted[-1] / wanted[0] - 1) > 1e-2
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def as_in_flax(key, width, experts, size, depth, stacked, first=0):
    """x @ W with biases; weights of experts, and blocks, in arrays if ``stacked``.

    ``first`` is the axis of the blocks beside that of the experts.
    """
    keys = iter(jax.random.split(key, 64))

    def kernel(fan_in, fan_out):
        return {"kernel": drawn(next(keys), fan_in, fan_out, fan_in=fan_in),
                "bias": jnp.zeros(fan_out)}  # fmt: skip

    def expert():
        return {"wi": kernel(width, size), "wo": kernel(size, width), "scale": jnp.ones(width)}

    def block(axis):
        own = [expert() for _ in range(experts)]
        mixture = jax.tree.map(lambda *x: jnp.stack(x, axis), *own) if stacked else own
        return {"router": kernel(width, experts), "experts": mixture}

    def blocks():
        own = [block(0) for _ in range(depth)]
        if not stacked:
            return own
        both = jax.tree.map(lambda *x: jnp.stack(x, first), *(b["experts"] for b in own))
        return {
            "router": jax.tree.map(lambda *x: jnp.stack(x), *(b["router"] for b in own)),
            "experts": both,
        }

    embedding = drawn(next(keys), 11, width, fan_in=1)
    return {"wte": {"embedding": embedding}, "blocks": blocks(), "head": kernel(width, 11)}


@pytest.mark.parametrize("target", [TARGET, {**TARGET, "experts": 4}], ids=["more", "as many"])
@pytest.mark.parametrize("first", [0, 1])
def test_stacks_of_experts_and_blocks_are_lists_of_them(first, target):
    def planned(stacked):
        names = ["blocks.experts.wo" if stacked else "blocks.*.experts.*.wo"]
        make = partial(as_in_flax, stacked=stacked, first=first)
        return in_jax.scale(
            make, BASE, target, layout="in_out", scheme="complete_p", hints=Hints(branches=names)
        )

    arrays, lists = planned(True), planned(False)
    assert arrays.depth_ratio == lists.depth_ratio == 2.0
    for weight in lists.weights:
        name = weight.name.replace("blocks.1.", "blocks.").replace("experts.3.", "experts.")
        if name in {w.name for w in arrays.weights}:
            own = arrays[name]
            assert (own.role, own.in_branch) == (weight.role, weight.in_branch), name
            assert {k: getattr(own, k) for k in NUMBERS} == pytest.approx(
                {k: getattr(weight, k) for k in NUMBERS}
            ), name
    assert arrays["blocks.router.kernel"].role == "router"
    assert arrays["blocks.experts.wi.bias"].role == "bias"
    assert arrays["blocks.experts.scale"].role == "norm"
    assert arrays["blocks.experts.wi.kernel"].role == "hidden"


@pytest.mark.slow
def test_layers_of_equinox_that_are_mapped_over_experts():
    def net(key, width, experts):
        keys = jax.random.split(key, 3)
        make = eqx.filter_vmap(lambda k: eqx.nn.Linear(width, 5, key=k))
        return {
            "router": eqx.nn.Linear(width, experts, key=keys[0]),
            "read": make(jax.random.split(keys[1], experts)),
            "inp": eqx.nn.Linear(3, width, key=keys[2]),
        }

    sizes = {"width": 8, "experts": 4}, {"width": 16, "experts": 16}
    plan = in_jax.scale(net, *sizes, scheme="mup", optimizer="sgd")
    roles = {"router.weight": "router", "router.bias": "scalar"}
    roles |= {"read.weight": "output", "read.bias": "scalar"}
    roles |= {"inp.weight": "input", "inp.bias": "bias"}
    assert {w.name: w.role for w in plan.weights} == roles
    # The base's fan-out of 5 is not the width: n is the ratio of the fan-in, and e = 4.
    assert plan["read.weight"].n == 2.0
    assert {w.name: w.lr for w in plan.weights if "inp" not in w.name} == dict.fromkeys(
        ("router.weight", "read.weight"), 2.0
    ) | dict.fromkeys(("router.bias", "read.bias"), 4.0)


def test_what_is_no_width_and_cannot_be_told():
    def net(key, width, experts, name):
        return {
            name: jnp.ones((experts, width)),
            "up": drawn(key, experts, 2 * width, width, fan_in=width),
        }

    def planned(name, more=8, **options):
        sizes = {"width": 8, "experts": 4}, {"width": 8, "experts": more}
        return in_jax.scale(partial(net, name=name), *sizes, scheme="mup", **options)

    with pytest.raises(InvalidInput, match=r"target\['experts'\]: wanted at least"):
        planned("router", more=2, layout="out_in")
    with pytest.raises(InvalidInput, match="roles: the weight choice has the number"):
        planned("choice", layout="out_in")
    named = planned("choice", layout="out_in", hints=Hints(roles={"choice": "router"}))
    assert named["choice"].lr == planned("router", layout="out_in")["router"].lr
    assert planned("choice", layout="in_out")["choice"].role == "bias"
    flat = in_jax.scale(
        lambda key, width, experts: {"up": jnp.ones((experts * width, width))},
        {"width": 8, "experts": 4}, {"width": 16, "experts": 8}, scheme="mup", layout="in_out",
    )  # fmt: skip
    assert flat["up"].role == "hidden"
    assert weights_of(named.init(0))["up"].shape == (8, 16, 8)


@pytest.mark.slow
def test_the_coordinate_check_in_the_number():
    def activations(p, batch):
        mixture = p["blocks"][-1]["experts"]
        h = jnp.ones(p["inp"]["bias"].shape)
        found = {
            f"blocks.1.experts.{i}.up": own["up"]["weight"] @ h for i, own in enumerate(mixture)
        }
        return found | {"mean": sum(found.values()) / len(mixture)}

    sizes = [{**BASE, "depth": 2, "experts": e} for e in (4, 8)]
    check = in_jax.coordinate_check(
        partial(init, kind="list"), {**BASE, "experts": 2}, sizes, [0],
        lambda p, batch: activations(p, batch)["mean"].sum(), activations,
        lr=0.01, optimizer="sgd", scheme="mup", layout="out_in", steps=1,
    )  # fmt: skip
    assert (check.along, list(check.ratios)) == ("experts", [2, 4])
    assert check.layers == ("blocks.0.experts.0.up", "blocks.0.experts.1.up", "mean")
    # One expert's gradient is 1/E of h, and its rate is e = E/2 times that of the base.
    np.testing.assert_allclose(check.change, 0.01 * BASE["width"] / 2, rtol=1e-4)
