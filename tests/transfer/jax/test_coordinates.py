"""The coordinate check in JAX: its numbers are those of the check in PyTorch."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.transfer.torch_models import SmallNet

from largen.errors import InvalidInput
from largen.transfer import Hints, initial
from largen.transfer import jax as in_jax
from largen.transfer import torch as in_torch

BASE = {"width": 8, "depth": 2}
DRAW = np.random.default_rng(0)
BATCHES = [tuple(DRAW.normal(size=(16, n)).astype("float32") for n in (5, 3)) for _ in range(2)]


@pytest.fixture(autouse=True)
def moments_of_its_own():
    """The first draw below is SmallNet's, and under a trace there is no other."""
    initial._MEASURED.clear()
    yield
    initial._MEASURED.clear()


def init(key, width, depth):
    """SmallNet's own initial weights, where the key is known; shapes do not depend on it."""
    try:
        seed = int(jax.random.key_data(key)[-1])
    except jax.errors.ConcretizationTypeError:
        seed = 0
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        state = {n: p.detach().numpy() for n, p in SmallNet(width, depth).named_parameters()}
    part = lambda path: {k: jnp.asarray(state[f"{path}.{k}"]) for k in ("weight", "bias")}  # noqa: E731
    blocks = [{f: part(f"blocks.{i}.{f}") for f in ("fc1", "fc2")} for i in range(depth)]
    return {"inp": part("inp"), "blocks": blocks, "out": part("out")}


def activations(parameters, batch):
    linear = lambda p, x: x @ p["weight"].T + p["bias"]  # noqa: E731
    found = {"inp": linear(parameters["inp"], batch[0])}
    h = jnp.tanh(found["inp"])
    for i, block in enumerate(parameters["blocks"]):
        inner = found[f"blocks.{i}.fc1"] = linear(block["fc1"], h)
        added = found[f"blocks.{i}.fc2"] = linear(block["fc2"], jax.nn.relu(inner))
        h = found[f"blocks.{i}"] = h + added
    found["out"] = linear(parameters["out"], h)
    return found


def loss(parameters, batch):
    return jnp.square(activations(parameters, batch)["out"] - batch[1]).mean()


def torch_loss(model, batch):
    x, y = map(torch.as_tensor, batch)
    return (model(x) - y).square().mean()


OPTIONS = {"scheme": "depth_mup", "optimizer": "adamw", "lr": 3e-3, "seeds": 2, "steps": 2}
in_jax_check = partial(
    in_jax.coordinate_check, init, BASE, layout="out_in", hints=Hints(branches=["blocks.*.fc2"])
)


@pytest.mark.slow
@pytest.mark.parametrize("along", ["width", "depth"])
def test_the_numbers_are_those_of_pytorch(along):
    sizes = {"width": (8, 16), "depth": (2, 4)}[along]
    targets = [{**BASE, along: size} for size in sizes]
    expected = in_torch.coordinate_check(SmallNet, BASE, targets, BATCHES, torch_loss, **OPTIONS)
    found = in_jax_check(targets, BATCHES, loss, activations, **OPTIONS)
    assert found.along == expected.along == along
    assert found.title == expected.title
    assert found.tolerance == expected.tolerance
    np.testing.assert_array_equal(found.ratios, expected.ratios)
    assert set(found.layers) <= set(expected.layers)
    assert {"inp", "blocks.1", "blocks.1.fc1", "blocks.1.fc2", "out"} <= set(found.layers)
    for i, layer in enumerate(found.layers):
        j = expected.layers.index(layer)
        for name in ("start", "size", "change"):
            ours, theirs = getattr(found, name)[..., i], getattr(expected, name)[..., j]
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, err_msg=f"{name} of {layer}")
        assert found[layer].judged == expected[layer].judged


def test_doors():
    targets = [{**BASE, "width": n} for n in (8, 16)]
    with pytest.raises(InvalidInput, match="width only, or in depth only"):
        in_jax_check(targets[:1], BATCHES, loss, activations, **OPTIONS)
    with pytest.raises(InvalidInput, match="batches: is empty"):
        in_jax_check(targets, [], loss, activations, **OPTIONS)
    with pytest.raises(InvalidInput, match="activations: wanted a dict"):
        in_jax_check(targets, BATCHES, loss, lambda p, batch: batch[0], **OPTIONS)
