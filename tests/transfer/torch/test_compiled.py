"""Multipliers and torch.compile, in any order: what was compiled for one is not run for another."""

import copy
import pickle

import pytest
import torch
from torch import nn

from largen.transfer.plan_entries import ForwardMultiplier
from largen.transfer.torch import scale
from largen.transfer.torch.compiled import original
from largen.transfer.torch.multipliers import attach

TOKENS = torch.arange(6)


class Tied(nn.Module):
    """A read-out that is the embedding: its factor cannot be folded into weights."""

    def __init__(self, width):
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(11, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.relu(self.hidden(self.embedding(tokens))))


class Attending(nn.Module):
    """PyTorch's own attention, whose keys are multiplied."""

    def __init__(self, width):
        super().__init__()
        self.read_in, self.read_out = nn.Linear(3, width), nn.Linear(width, 2)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        h = self.read_in(x)
        return self.read_out(h + self.attention(h, h, h)[0])


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def planned(base=8, make=Tied, **options):
    return scale(make, {"width": base}, {"width": 32}, scheme="mup", **options)


def agrees(model, inputs=TOKENS, backend="eager"):
    compiled = torch.compile(model, backend=backend)
    return torch.allclose(compiled(inputs), model(inputs))


def images():
    return torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))


CASES = {
    "tied": (Tied, {}, lambda: TOKENS),
    "keys": (Attending, {}, images),
    "forward": (Attending, {"multipliers": "forward"}, images),
}


@pytest.mark.parametrize("with_first", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_models_with_and_without_multipliers_in_both_orders(case, with_first):
    make, options, inputs = CASES[case]
    plan = planned(make=make, **options)
    models = [make(32), plan.build(seed=0)]
    x = inputs()
    assert plan.multipliers
    assert not torch.allclose(models[1](x), plan_free(models[1])(x))
    assert all(agrees(model, x) for model in (models[::-1] if with_first else models) * 2)


def plan_free(model):
    """Return the same weights without multipliers."""
    bare = copy.deepcopy(model)
    for module in bare.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            hooks.clear()
    return bare


@pytest.mark.slow
def test_multipliers_put_on_a_model_that_was_compiled():
    plan, model = planned(), Tied(32)
    compiled = torch.compile(model, backend="aot_eager")
    before = compiled(TOKENS)
    plan.attach(compiled)
    torch.testing.assert_close(compiled(TOKENS), before / 4)


def test_multipliers_of_other_numbers_and_places():
    places = [[("input", 0.5)], [("input", 0.5), ("output", 3.0)], [("input", 2.0)]]
    models = [Tied(32) for _ in places]
    for model, own in zip(models, places, strict=True):
        attach(model, [ForwardMultiplier("head", "output", at, m, "") for at, m in own])
    assert all(agrees(model) for model in models * 2)
    kinds = {type(model.head) for model in models}
    assert len(kinds) == 3
    assert {original(kind) for kind in kinds} == {nn.Linear}


def test_modules_with_multipliers_are_what_they_were():
    plan = planned()
    model = plan.build(seed=0)
    assert isinstance(model.head, nn.Linear)
    assert type(model.embedding) is nn.Embedding
    assert repr(model) == repr(Tied(32))
    assert set(model.state_dict()) == set(Tied(32).state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)):
        assert type(other.head) is type(model.head)
        assert other.head.weight is other.embedding.weight
        assert torch.equal(other(TOKENS), model(TOKENS))
        assert plan.attach(other) is other  # they are there already
        assert torch.equal(other(TOKENS), model(TOKENS))
