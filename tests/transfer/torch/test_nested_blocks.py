"""Blocks inside the branch of another sum: the depth's factor once, and copies judged apart."""

import warnings

import numpy as np
import pytest
import torch
from tests.transfer.verified_models import ROWS
from torch import nn

from largen.errors import WrongPlan
from largen.transfer import Hints
from largen.transfer.torch import scale

SIZES = {"depth": 2}, {"depth": 8}
SCHEMES = ("complete_p", "depth_mup")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.n, self.u = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.d, self.c = nn.Linear(2 * width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.c(self.d(torch.relu(self.u(self.n(x)))))


class Nested(nn.Module):
    """A block in a sum around it: h + g·(block(h) − h) and its kinds."""

    def __init__(self, depth, kind, width=64):
        super().__init__()
        self.kind, self.i, self.o = kind, nn.Linear(8, width), nn.Linear(width, 3)
        self.b = nn.ModuleList(Block(width) for _ in range(depth))
        if kind == "gated":
            self.g = nn.ParameterList(torch.ones(()) for _ in range(depth))
        elif kind == "channels":
            self.g = nn.ParameterList(torch.ones(width) for _ in range(depth))
        elif kind == "routed":
            self.g = nn.ModuleList(nn.Linear(width, 1) for _ in range(depth))

    def forward(self, x):
        h = self.i(x)
        for i, block in enumerate(self.b):
            if self.kind == "plain":
                h = block(h)
                continue
            gate = 0.8
            if self.kind == "routed":
                gate = torch.sigmoid(self.g[i](h))
            elif self.kind != "constant":
                gate = self.g[i]
            h = h + gate * (block(h) - h)
        return self.o(h)


def plan_of(kind, scheme, optimizer, sizes=SIZES, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongPlan)
        return scale(
            lambda depth: Nested(depth, kind), *sizes, scheme=scheme, optimizer=optimizer,
            example=(ROWS,), **options,
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["gated", "channels", "routed", "constant"])
def test_the_factor_of_the_depth_is_put_once(kind):
    plan = plan_of(kind, "complete_p", "adam", verify=False)
    assert plan.depth_ratio == 4
    ends = {w.name for w in plan.weights if w.folded}
    gates = {w.name for w in plan.weights if w.name.startswith("g")}
    inner = {f"b.{i}.c.{leaf}" for i in range(8) for leaf in ("weight", "bias")}
    assert ends == (gates if kind in ("gated", "channels") else inner)
    assert all(w.folded == ("branch × l⁻¹",) for w in plan.weights if w.folded)
    assert all(plan[name].in_branch for name in gates)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["gated", "channels", "routed", "constant"])
def test_copies_of_nested_blocks_change_the_output_alike_at_all_depths(kind, optimizer, scheme):
    assert plan_of(kind, scheme, optimizer).verified[0].passed
    rows = []
    for depth in (2, 4, 8, 16):
        plan = plan_of(kind, scheme, optimizer, ({"depth": 2}, {"depth": depth}), verify=False)
        rows.append(np.mean([_change_by_blocks(plan, optimizer, seed) for seed in range(3)]))
    assert abs(np.polyfit([1, 2, 3, 4], rows, 1)[0]) < 0.25


def _change_by_blocks(plan, optimizer, seed):
    """Return log₂ of the change of the output by one update of the blocks alone."""
    model = plan.build(seed=seed)
    y = torch.randn(len(ROWS), 3, generator=torch.Generator().manual_seed(1))
    small = {"sgd": (torch.optim.SGD, 1e-2), "adam": (torch.optim.Adam, 1e-4)}
    kind, lr = small[optimizer]
    own = kind(plan.param_groups(model, lr=lr))
    before = model(ROWS)
    (before - y).square().mean().backward()
    blocks = {id(p) for p in model.b.parameters()}
    for weight in model.parameters():
        if id(weight) not in blocks:
            weight.grad = None
    own.step()
    return float((model(ROWS) - before).square().mean().sqrt().log2())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_factor_that_is_put_twice_is_seen_in_the_copies_of_the_block(scheme):
    twice = Hints(branches=["b.*.c", "b.*.d"])
    (record,) = plan_of("plain", scheme, "sgd", hints=twice).verified
    fades = {e.where: e.slope for e in record.flags if e.flag == "fades"}
    assert fades["b.*"] < -0.5
    assert plan_of("plain", scheme, "sgd").verified[0].passed
