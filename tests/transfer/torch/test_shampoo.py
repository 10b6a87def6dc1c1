"""Shampoo orthogonalises the update of every weight, and its rule follows from that."""

import pytest
import torch
from tests.transfer.torch_models import SmallNet
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.jax import scale as scale_tree
from largen.transfer.torch import coordinate_check, scale

WIDTHS = (64, 128, 256)


class Shampoo(torch.optim.Optimizer):
    """Algorithms 1 and 2 of Gupta, Koren and Singer 2018, for matrices and vectors."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": 1e-3, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad if p.ndim > 1 else p.grad[:, None]
                state = self.state[p]
                state["left"] = state.get("left", 0.0) + g @ g.T
                state["right"] = state.get("right", 0.0) + g.T @ g
                if p.ndim > 1:
                    moved = power(state["left"], -1 / 4) @ g @ power(state["right"], -1 / 4)
                else:
                    moved = power(state["left"], -1 / 2) @ g
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * moved.reshape(p.shape))


def power(symmetric, exponent):
    """Return a power of a matrix on the span of what it has seen; zero beyond."""
    values, vectors = torch.linalg.eigh(symmetric)
    seen = values > 1e-5 * values.max()
    return (vectors[:, seen] * values[seen] ** exponent) @ vectors[:, seen].T


class Deep(nn.Module):
    """Embedding, two hidden layers with a norm, and a read-out."""

    def __init__(self, width):
        super().__init__()
        self.emb = nn.Embedding(16, width)
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 8)

    def forward(self, x):
        h = torch.relu(self.one(self.emb(x).mean(1)))
        return self.out(self.norm(h + torch.relu(self.two(h))))


def check(optimizer, make, lr):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(16, (24, 3), generator=generator)
    classes = torch.randint(8, (24,), generator=generator)
    return coordinate_check(
        Deep, {"width": 32}, [{"width": n} for n in WIDTHS], [(tokens, classes)],
        lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        scheme="mup", optimizer=optimizer, make_optimizer=make, lr=lr, steps=3, seeds=3,
    )  # fmt: skip


@pytest.mark.slow
def test_features_move_alike_at_all_widths():
    found = check("shampoo", Shampoo, 0.05)
    assert found.passed, str(found)
    # The rule of Adam is wrong by a half for the embedding and the read-out, and by one for others.
    for layer in ("emb", "one", "two", "out"):
        assert abs(found[layer].change) < 0.1, str(found)


def test_the_rule_of_adam_is_another():
    found = check("adamw", Shampoo, 0.01)
    assert not found.passed, str(found)
    assert found["two"].change < -0.3


def test_powers():
    sizes = {"width": 8, "depth": 2}, {"width": 32, "depth": 2}
    own, adam = (scale(SmallNet, *sizes, optimizer=name) for name in ("shampoo", "adamw"))
    sides = {"hidden": 2, "input": 1, "output": 1, "bias": 1}
    assert sides.keys() <= {weight.role for weight in own.weights}
    for weight, other in zip(own.weights, adam.weights, strict=True):
        if weight.role in sides:
            assert weight.lr == pytest.approx(other.lr * 4.0 ** (sides[weight.role] / 2))
        assert weight.init == other.init


def test_what_optax_lacks_is_refused():
    import jax

    def init(key, width):
        keys = jax.random.split(key)
        return [
            jax.random.normal(k, s) for k, s in zip(keys, [(4, width), (width, width)], strict=True)
        ]

    plan = scale_tree(init, {"width": 8}, {"width": 16}, optimizer="shampoo", layout="in_out")
    with pytest.raises(InvalidInput, match="optax has no shampoo"):
        plan.optax(lr=0.1)
    assert plan.settings(plan.weights[1], 0.1)["lr"] == pytest.approx(0.1)
