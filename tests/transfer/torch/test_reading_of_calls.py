"""Calls that are recorded: caches, first calls, parts that a call leaves out."""

import pytest
import torch
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.torch import scale

BASE, TARGET = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width),
        )  # fmt: skip

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Embeds tokens; a tower for images is called if there are any."""

    def __init__(self, width, depth, tower=False):
        super().__init__()
        self.wte, self.head = nn.Embedding(11, width), nn.Linear(width, 11)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        if tower:
            self.patches = nn.Linear(3, width)
            self.tower = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, input_ids, pixels=None):
        h = self.wte(input_ids)
        if pixels is not None:
            image = self.patches(pixels)
            for block in self.tower:
                image = block(image)
            h = h + image.mean(1, keepdim=True)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class Cached(Model):
    def forward(self, input_ids, pixels=None, use_cache=True):
        if use_cache:
            raise ValueError("no attention")
        return super().forward(input_ids)


class Settled(Model):
    """Takes another path from its second call on."""

    def forward(self, input_ids, pixels=None):
        if getattr(self, "settled", False):
            return super().forward(input_ids)
        self.settled = True
        return super().forward(input_ids * 1)


class Restless(Model):
    """Takes another path at every call."""

    def forward(self, input_ids, pixels=None):
        self.calls = getattr(self, "calls", 0) + 1
        found = super().forward(input_ids[:, :1] if self.calls % 3 else input_ids)
        return found if self.calls % 3 else found.exp().log()


class Summary(nn.Module):
    """Two sums on a summary in each layer, of which the first layer's first is no signal."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.head = nn.Linear(3, width), nn.Linear(width, 2)
        self.summary = nn.Parameter(torch.randn(width))
        self.on_tokens, self.of_tokens, self.on_summary = (
            nn.ModuleList(nn.Linear(width, width) for _ in range(depth)) for _ in range(3)
        )

    def forward(self, x):
        x, g = self.inp(x), self.summary.expand(len(x), 1, -1)
        for a, b, c in zip(self.on_tokens, self.of_tokens, self.on_summary, strict=True):
            g = g + b(torch.tanh(x.mean(1, keepdim=True)))
            g = g + c(torch.tanh(g))
            x = x + a(torch.tanh(x + g))
        return self.head(torch.tanh(x))


@pytest.mark.parametrize("model", [Cached, Settled])
def test_calls_without_a_cache_and_after_the_first_one(model):
    found = scale(model, BASE, TARGET, scheme="complete_p")
    assert found.depth_ratio == 4
    assert found["blocks.7.down.weight"].folded == ("branch × l⁻¹",)


def test_forward_passes_that_never_settle_are_refused():
    with pytest.raises(InvalidInput, match="other operations when it is called again"):
        scale(Restless, BASE, TARGET, scheme="complete_p")


@pytest.mark.slow
def test_blocks_that_the_call_leaves_out_are_noted():
    def make(width, depth):
        return Model(width, depth, tower=True)

    found = scale(make, BASE, TARGET, scheme="complete_p")
    (note,) = [note for note in found.notes if "no part" in note]
    assert note.startswith("tower.0.norm.weight and 11 more")
    assert found["tower.7.down.weight"].folded == ()
    # Without a recorded sum over axes, a matrix's role follows from its shape.
    assert found["tower.7.down.weight"].role == "hidden"
    both = {"input_ids": torch.randint(11, (2, 5)), "pixels": torch.randn(2, 4, 3)}
    found = scale(make, BASE, TARGET, scheme="complete_p", example=both)
    assert found["tower.7.down.weight"].folded == ("branch × l⁻¹",)
    assert not any("no part" in note for note in found.notes)


@pytest.mark.slow
def test_streams_that_begin_inside_a_layer():
    found = scale(Summary, BASE, TARGET, scheme="complete_p", example=torch.randn(2, 5, 3))
    assert found.depth_ratio == 4
