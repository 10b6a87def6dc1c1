"""Trunks with gains, stages in one sequence, blocks outside the repetition, and what is cached."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.torch import scale
from tools.audit.quiet import Quiet

BASE, TARGET = {"width": 8, "depth": 2}, {"width": 8, "depth": 4}


def perceptron(width):
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))


class Gained(nn.Module):
    """g ⊙ (x + b) + f(x), as in Zaya; with a state-space layer's y + D ⊙ u inside f."""

    def __init__(self, width):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.norm, self.mlp = nn.LayerNorm(width), perceptron(width)
        self.skip, self.out = nn.Parameter(torch.ones(width)), nn.Linear(width, width)

    def forward(self, x):
        u = torch.tanh(self.norm(x))
        return self.out(torch.tanh(self.mlp(u) + self.skip * u)) + (x + self.shift) * self.gain


@pytest.mark.slow
def test_the_trunk_may_have_a_gain_and_a_bias():
    def make(width, depth):
        blocks = [Gained(width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 2))

    found = scale(make, BASE, TARGET, scheme="complete_p")
    assert found.depth_ratio == 2
    # The sum inside the block is no residual sum.
    folded = {w.name.partition(".")[2] for w in found.weights if "branch × l⁻¹" in w.folded}
    assert folded == {"out.weight", "out.bias"}


class Plain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(width), perceptron(width)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class TwoStages(nn.Module):
    """Two sequences of blocks; the first ends in a projection and one more block."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(3, width), nn.Linear(width, 2)
        blocks = [[Plain(width) for _ in range(depth)] for _ in range(2)]
        self.first = nn.Sequential(*blocks[0], nn.Linear(width, width), Plain(width))
        self.second = nn.Sequential(*blocks[1])

    def forward(self, x):
        h = self.inp(x)
        both = torch.tanh(self.first(h)) * torch.tanh(self.second(torch.tanh(h)))
        return self.out(both)


@pytest.mark.slow
def test_blocks_that_the_depth_does_not_repeat():
    found = scale(TwoStages, BASE, TARGET, scheme="complete_p")
    assert found.depth_ratio == 2
    for name in ("first.3", "second.3"):
        assert found[f"{name}.mlp.2.weight"].folded == ("branch × l⁻¹",)
    assert found["first.5.mlp.2.weight"].folded == ()


@pytest.mark.slow
def test_stages_in_one_sequence():
    def make(width, depth):
        sizes = (3, width, 2 * width, 3 * width)
        stages = (
            (nn.Linear(before, size), *(Plain(size) for _ in range(depth)))
            for before, size in pairwise(sizes)
        )
        return nn.Sequential(
            *(block for stage in stages for block in stage), nn.Linear(sizes[-1], 2)
        )

    found = scale(make, BASE, TARGET, scheme="complete_p")
    assert found.depth_ratio == 2
    branches = (w for w in found.weights if "branch × l⁻¹" in w.folded)
    blocks = {w.name.partition(".")[0] for w in branches}
    assert blocks == {str(i) for i in range(15) if i % 5}


class Keeps(nn.Module):
    """Keeps its biases of attention in evaluation mode, as LeViT does."""

    def __init__(self, width):
        super().__init__()
        self.inp, self.out, self.kept = nn.Linear(3, width), nn.Linear(width, 2), None
        self.biases = nn.Parameter(torch.zeros(width, 5))

    def train(self, mode=True):
        self.kept = None if mode else self.kept
        return super().train(mode)

    def forward(self, x):
        if self.training:
            own = self.biases[:, :3].sum(-1)
        else:
            self.kept = self.biases[:, :3].sum(-1) if self.kept is None else self.kept
            own = self.kept
        return self.out(torch.tanh(self.inp(x) + own))


def test_what_a_model_keeps_in_evaluation_mode_is_computed_anew():
    found = scale(Keeps, {"width": 16}, {"width": 64}, scheme="mup")
    assert found["biases"].role == "norm"
    quiet = Quiet(Keeps, None)
    model = quiet(width=8)
    for _ in range(2):  # the second graph has its own biases
        quiet.loss(model, 0).backward()


class ReadOutInTwoParts(nn.Module):
    """Reads out by a concatenation of weights, as MobileBERT does."""

    def __init__(self, width):
        super().__init__()
        self.wte, self.up, self.norm = nn.Embedding(11, 4), nn.Linear(4, width), nn.LayerNorm(width)
        self.rest = nn.Linear(11, width - 4, bias=False)

    def forward(self, input_ids):
        h = self.norm(torch.tanh(self.up(self.wte(input_ids))))
        return h @ torch.cat([self.wte.weight.mT, self.rest.weight])


def test_read_outs_by_a_concatenation_of_weights():
    found = scale(ReadOutInTwoParts, {"width": 16}, {"width": 64}, scheme="mup", optimizer="adam")
    (kept,) = found.multipliers
    assert (kept.module, kept.kind, kept.where, kept.power) == ("norm", "output", "output", "n⁻¹")
    assert kept.factor == 12 / 60  # the ratio of the part that grows
    assert found["rest.weight"].role == "input"
    assert found.notes == ()


class ConditionsItself(nn.Module):
    """Feeds its own outputs back half of the way, as Conformers trained by CTC may do."""

    def __init__(self, width):
        super().__init__()
        self.inp, self.out, self.back = (
            nn.Linear(3, width),
            nn.Linear(width, 5),
            nn.Linear(5, width),
        )
        self.squeeze, self.hidden = nn.Linear(width, 4), nn.Linear(4, width)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = h + self.back(torch.tanh(self.out(h)))
        return self.out(h + self.hidden(torch.tanh(self.squeeze(h))))


def test_a_read_out_that_is_used_inside_is_a_read_out():
    found = scale(ConditionsItself, {"width": 16}, {"width": 64}, scheme="mup")
    assert found["out.weight"].role == "output"
    assert found["squeeze.weight"].role == "shared"


class TwoReadOuts(nn.Module):
    """One weight in two modules, both of which read out."""

    def __init__(self, width):
        super().__init__()
        self.inp, self.hidden = nn.Linear(3, width), nn.Linear(width, width)
        self.early, self.late = nn.Linear(width, 5), nn.Linear(width, 5)
        self.late.weight = self.early.weight

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        return torch.tanh(self.early(h)) + self.late(torch.tanh(self.hidden(h)))


def test_a_weight_that_reads_out_in_two_modules():
    sizes = {"width": 16}, {"width": 64}
    found = scale(TwoReadOuts, *sizes, scheme="mup", multipliers="forward")
    kept = {m.module: m.factor for m in found.multipliers}
    assert kept == {"early": 0.25, "late": 0.25}


class WithARowOfItsOwn(nn.Embedding):
    """Embeddings times √d, of which one row is another weight, as in T5Gemma 2."""

    def __init__(self, width):
        super().__init__(11, width)
        self.image = nn.Parameter(torch.zeros(width))

    def forward(self, input):
        h = super().forward(input) * self.embedding_dim**0.5
        h[input == 7] = self.image
        return h


class ReadsImages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wte, self.norm = WithARowOfItsOwn(width), nn.LayerNorm(width)
        self.hidden, self.out = nn.Linear(width, width), nn.Linear(width, 5)

    def forward(self, input_ids):
        return self.out(self.norm(torch.tanh(self.hidden(self.wte(input_ids)))))


def test_a_factor_does_not_multiply_rows_that_are_overwritten():
    found = scale(ReadsImages, {"width": 16}, {"width": 64}, scheme="mup", optimizer="adam")
    (kept,) = found.multipliers
    assert (kept.module, kept.where, kept.factor) == ("wte", "output", 0.5)
    # The factor at the module's output is made up for.
    assert (found["wte.image"].lr, found["wte.image"].folded) == (2.0, ("built × n¹ᐟ²",))


class SharedBlock(nn.Module):
    """One block that is applied again and again, with a norm behind its sum, as in ALBERT."""

    def __init__(self, depth):
        super().__init__()
        self.depth, self.inp, self.out = depth, nn.Linear(12, 32), nn.Linear(32, 3)
        self.block, self.norm = perceptron(32), nn.LayerNorm(32)

    def forward(self, x):
        h = self.inp(x)
        for _ in range(self.depth):
            h = self.norm(h + self.block(h))
        return self.out(h)


@pytest.mark.parametrize(("optimizer", "power"), [("adam", 1), ("sgd", 2), ("muon", 1)])
def test_updates_of_a_norm_that_all_blocks_share_add_up(optimizer, power):
    """Its l effects add up, and under gradient descent so do its l gradients."""
    found = scale(
        SharedBlock, {"depth": 2}, {"depth": 16}, scheme="depth_mup", optimizer=optimizer,
        example=torch.randn(8, 12),
    )  # fmt: skip
    assert found.verified[0].passed, str(found.verified[0])
    assert found["norm.weight"].lr == found["norm.bias"].lr == 8.0**-power
    assert found["out.bias"].lr == 1.0


class HalfOutside(nn.Module):
    """Residual sums of two kinds, one of a function of the model itself."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.head = nn.Linear(3, width), nn.Linear(width, 2)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlps = nn.ModuleList(perceptron(width) for _ in range(depth))

    def forward(self, x):
        h = self.inp(x)
        for layer, mlp in zip(self.layers, self.mlps, strict=True):
            h = h + torch.tanh(layer(h))
            h = h + mlp(h)
        return self.head(h)


def test_sums_on_one_stream_are_all_scaled_or_refused():
    with pytest.raises(InvalidInput, match=r"HalfOutside\) adds what its own .* \(tanh\)"):
        scale(HalfOutside, BASE, TARGET, scheme="depth_mup")
