"""One plan, two frameworks: the same table, and the same losses step by step."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.covering import covering
from tests.transfer.torch_models import SmallNet
from torch import nn

from largen.errors import InvalidInput
from largen.transfer import Budget, Hints
from largen.transfer import jax as in_jax
from largen.transfer import torch as in_torch
from largen.transfer.schemes import SCHEMES
from largen.transfer.torch.optimizers import OPTIMIZERS
from largen.transfer.updates import UPDATES

BASE, TARGET = {"width": 8, "depth": 2}, {"width": 16, "depth": 4}
STEPS = 20
QUICK = [("depth_mup", "sgd"), ("depth_mup", "adamw"), ("complete_p", "rmsprop")]
QUICK += [("mup", "adamax"), ("mup", "nadam"), ("mup", "adagrad")]
RATES = {"sgd": 0.05, "momentum": 0.01, "rmsprop": 1e-3}


def init(key, width, depth):
    """SmallNet's parameters, under its names and with PyTorch's initial distribution."""

    def linear(key, fan_in, fan_out):
        keys, bound = jax.random.split(key), fan_in**-0.5
        draw = partial(jax.random.uniform, minval=-bound, maxval=bound)
        return {"weight": draw(keys[0], (fan_out, fan_in)), "bias": draw(keys[1], (fan_out,))}

    keys = iter(jax.random.split(key, 2 * depth + 2))
    return {
        "inp": linear(next(keys), 5, width),
        "blocks": [
            {"fc1": linear(next(keys), width, width), "fc2": linear(next(keys), width, width)}
            for _ in range(depth)
        ],
        "out": linear(next(keys), width, 3),
    }


def forward(parameters, x):
    def linear(p, x):
        return x @ p["weight"].T + p["bias"]

    h = jnp.tanh(linear(parameters["inp"], x))
    for block in parameters["blocks"]:
        h = h + linear(block["fc2"], jax.nn.relu(linear(block["fc1"], h)))
    return linear(parameters["out"], h)


def plans(scheme, optimizer):
    options = {"scheme": scheme, "optimizer": optimizer}
    tree = in_jax.scale(
        init, BASE, TARGET, layout="out_in", hints=Hints(branches=["blocks.*.fc2"]), **options
    )
    return in_torch.scale(SmallNet, BASE, TARGET, **options), tree


def kind_in(case):
    """The scheme, and what its rules depend on: the kind of the update."""
    return case[0], UPDATES[case[1]].kind


def optimizer_of(case):
    """The optimizer, with any scheme but the one that leaves all rates as they are."""
    return case[1] if case[0] != "standard" else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "optimizer"), covering(product(SCHEMES, UPDATES), kind_in, optimizer_of)
)
def test_the_tables_are_equal(scheme, optimizer):
    module, tree = plans(scheme, optimizer)
    assert module.weights == tuple(sorted(tree.weights, key=lambda w: order(module, w)))
    assert module.depth_ratio == tree.depth_ratio


def order(plan, weight):
    return [w.name for w in plan.weights].index(weight.name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "optimizer"),
    QUICK + [case for case in covering(product(SCHEMES, OPTIMIZERS), kind_in, optimizer_of)
             if case not in QUICK],
)  # fmt: skip
def test_the_losses_are_equal(scheme, optimizer):
    module, tree = plans(scheme, optimizer)
    model = module.build(seed=0)
    x, y = data()
    settings = {"lr": RATES.get(optimizer, 3e-3), "weight_decay": 0.1}
    start = as_tree(model)
    expected = torch_losses(
        model, [OPTIMIZERS[optimizer](module.param_groups(model, **settings))], x, y
    )
    got = jax_losses(start, tree.optax(**settings), x, y)
    assert abs(expected[-1] / expected[0] - 1) > 1e-2
    np.testing.assert_allclose(got, expected, rtol=1e-5)


class Rectangular(nn.Module):
    """A wide matrix and a tall one, whose steps Muon multiplies by a power of their sides."""

    def __init__(self, width):
        super().__init__()
        self.inp, self.out = nn.Linear(5, width), nn.Linear(width, 3)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.out(self.down(torch.relu(self.up(self.inp(x)))))


def rectangular(key, width):
    def linear(fan_in, fan_out):
        draw = partial(jax.random.uniform, key, minval=-(fan_in**-0.5), maxval=fan_in**-0.5)
        return {"weight": draw((fan_out, fan_in)), "bias": draw((fan_out,))}

    sides = {"inp": (5, width), "out": (width, 3)}
    sides |= {"up": (width, 4 * width), "down": (4 * width, width)}
    return {name: linear(*both) for name, both in sides.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precise", "tolerance", "matched"),
    [(True, 1e-5, False), (False, 1e-3, False), (True, 1e-5, True)],
)
def test_muon(precise, tolerance, matched, monkeypatch):
    """PyTorch iterates in bfloat16, which is all that makes a difference."""
    if precise:
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    sizes = {"width": 8}, {"width": 16}
    options = {"scheme": "mup", "optimizer": "muon"}
    module = in_torch.scale(Rectangular, *sizes, **options)
    tree = in_jax.scale(rectangular, *sizes, layout="out_in", **options)
    assert {w.name: w.lr for w in module.weights} == {w.name: w.lr for w in tree.weights}
    model, settings, (x, y) = module.build(seed=0), {"lr": 0.01, "weight_decay": 0.1}, data()
    start: dict = {}
    for name, p in model.named_parameters():
        layer, _, leaf = name.partition(".")
        start.setdefault(layer, {})[leaf] = jnp.asarray(p.detach().numpy())

    def apply(p, x):
        linear = lambda q, x: x @ q["weight"].T + q["bias"]  # noqa: E731
        h = linear(p["down"], jax.nn.relu(linear(p["up"], linear(p["inp"], x))))
        return linear(p["out"], h)

    own = {"adjust_lr_fn": "match_rms_adamw"} if matched else {}
    groups = [module.param_groups(model, **settings, **own, moved_by=m) for m in ("muon", "adamw")]
    both = [torch.optim.Muon(groups[0]), torch.optim.AdamW(groups[1])]
    expected = torch_losses(model, both, x, y)
    own = {"consistent_rms": 0.2} if matched else {}
    found = jax_losses(start, tree.optax(**settings, **own), x, y, apply)
    np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lion", "signsgd"])
def test_optimizers_that_only_optax_has(optimizer):
    tree = plans("depth_mup", optimizer)[1]
    losses = jax_losses(tree.init(0), tree.optax(lr=1e-3, weight_decay=0.1), *data())
    assert losses[-1] < 0.95 * losses[0]


def data():
    generator = np.random.default_rng(0)
    return generator.normal(size=(16, 5)), generator.normal(size=(16, 3))


def as_tree(model):
    """The model's weights as a pytree of our own function's structure."""
    state = {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}
    template = jax.eval_shape(lambda: init(jax.random.key(0), **TARGET))
    return jax.tree_util.tree_map_with_path(
        lambda path, _: state[".".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in path)],
        template,
    )


def torch_losses(model, optimizers, x, y):
    x, y = (torch.tensor(a, dtype=torch.float32) for a in (x, y))
    losses = []
    for _ in range(STEPS):
        loss = (model(x) - y).square().mean()
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def jax_losses(parameters, moved, x, y, apply=forward):
    x, y = (jnp.asarray(a, dtype=jnp.float32) for a in (x, y))

    def step(carry, _):
        parameters, state = carry
        loss, gradient = jax.value_and_grad(lambda p: jnp.square(apply(p, x) - y).mean())(
            parameters
        )
        updates, state = moved.update(gradient, state, parameters)
        return (jax.tree.map(jnp.add, parameters, updates), state), loss

    run = jax.jit(lambda p, s: jax.lax.scan(step, (p, s), length=STEPS)[1])
    return run(parameters, moved.init(parameters))


@pytest.mark.slow
def test_both_have_the_rules_of_batch_size_and_horizon():
    options = {"optimizer": "adamw", "scheme": "mup"}
    length = {"budget": Budget(batch=4, samples=16)}  # rates, decay and ε × ½; 1 − β × ¼
    module = in_torch.scale(SmallNet, BASE, TARGET, **options, **length)
    plain = in_jax.scale(init, BASE, TARGET, layout="out_in", **options)
    plan = in_jax.scale(init, BASE, TARGET, layout="out_in", **options, **length)
    assert plan.horizon == module.horizon
    assert str(plan.horizon) in str(plan)
    ours = plan.optax(lr=0.1, weight_decay=0.3, eps=1e-3, b1=0.9, b2=0.95)
    same = plain.optax(lr=0.05, weight_decay=0.15, eps=5e-4, b1=0.975, b2=0.9875)
    parameters = plain.init(0)
    states = [optimizer.init(parameters) for optimizer in (ours, same)]
    for step in range(3):
        gradients = jax.tree.map(lambda p, step=step: jnp.sin(7 * p + step), parameters)
        moved = []
        for i, optimizer in enumerate((ours, same)):
            update, states[i] = optimizer.update(gradients, states[i], parameters)
            moved.append(jax.tree.leaves(update))
        for own, other in zip(*moved, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["layers", "blocks"])
def test_a_depth_that_is_passed_as_a_width_is_known_by_the_weights_it_adds(key):
    sizes = ({"width": 8, key: 2}, {"width": 16, key: 4})

    def tree(rng, width, **more):
        return init(rng, width, more[key])

    def module(width, **more):
        return SmallNet(width, more[key])

    message = (
        rf"^base: {key} = 4 in place of 2 adds the weights \['blocks.2.fc1.*, as a depth does, .* "
        rf"pass hints=Hints\(depth='{key}'\)"
    )
    options = {"scheme": "mup", "hints": Hints(depth=key)}
    for scale, make, more in (
        (in_torch.scale, module, {"verify": False}),
        (in_jax.scale, tree, {"layout": "out_in"}),
    ):
        with pytest.raises(InvalidInput, match=message):
            scale(make, *sizes, scheme="mup", **more)
        assert scale(make, *sizes, **options, **more).depth_ratio == 2
