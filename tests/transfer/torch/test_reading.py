"""What forward passes say of models as people have them, in small."""

from functools import partial

import pytest
import torch
from tests.transfer.torch_models import Captioner
from torch import nn
from torch.nn import functional as F

from largen.errors import InvalidInput
from largen.transfer.torch import scale

BASE, TARGET = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}
VOCABULARY = 11


class Grouped(nn.Module):
    """Attention with normalised queries and one head of keys and values, however wide it is."""

    def __init__(self, width, head=8, normed=False):
        super().__init__()
        self.head = head
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, head, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(width, width, bias=False)
        self.q_norm, self.k_norm = (nn.RMSNorm(head) if normed else nn.Identity() for _ in range(2))

    def forward(self, x, bias=None):
        q, k, v = (
            p(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        k, v = (t.expand(q.shape) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """Stacked experts under a router."""

    def __init__(self, width, experts=3):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        hidden = torch.relu(torch.einsum("bti,eji->btej", x, self.up))
        return torch.einsum(
            "bte,btei->bti", weights, torch.einsum("btej,eij->btei", hidden, self.down)
        )


class GainFromOne(nn.Module):
    """Normalises, and multiplies by 1 + w."""

    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],)) * (1 + self.w)


class Block(nn.Module):
    def __init__(self, width, first, kind):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.post = GainFromOne(width) if kind == "gemma" else nn.Identity()
        head = width // 2 if kind == "normed" else 8
        self.attention = Grouped(width, head, kind == "normed")
        self.mlp = (
            Experts(width)
            if kind == "experts" and not first
            else nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        )
        if first and kind == "relative":
            self.positions = nn.Parameter(torch.zeros(13, 13))

    def forward(self, h, /, *, bias=None):
        bias = getattr(self, "positions", bias)
        h = h + self.attention(self.norm_1(h), bias)
        return h + self.post(self.mlp(self.norm_2(h))), bias


class Decoder(nn.Module):
    """Of one kind each: the read-out is the embedding's weight, by a function."""

    def __init__(self, width, depth, kind="", power=0.5):
        super().__init__()
        self.kind, self.factor = kind, width**power
        self.wte = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, i == 0, kind) for i in range(depth))
        self.norm = nn.LayerNorm(width)
        self.register_parameter("A_log", nn.Parameter(torch.zeros(width, 4)))

    def forward(self, input_ids=None, **others):
        h = self.wte(input_ids)
        h = h * self.factor if self.kind == "gemma" else h
        bias = None
        for block in self.blocks:
            h, bias = block(h, bias=bias)
        h = self.norm(h * torch.exp(-self.A_log).sum(-1))
        h = h / self.factor if self.kind == "divided" else h
        return {"logits": F.linear(h, self.wte.weight), "others": others}


def plan(kind="", scheme="complete_p", **options):
    def make(width, depth):
        return Decoder(width, depth, kind)

    return scale(make, BASE, TARGET, scheme=scheme, **options)


def folded(found, word):
    return {w.name.split(".", 2)[-1] for w in found.weights if word in "".join(w.folded)}


def multipliers(found, kind):
    return {
        (m.module.split(".", 2)[-1], m.where, m.power) for m in found.multipliers if m.kind == kind
    }


@pytest.mark.slow
def test_a_decoder_without_any_argument():
    found = plan()
    assert found.depth_ratio == 4
    assert folded(found, "branch × l⁻¹") == {
        "attention.o_proj.weight",
        "mlp.2.weight",
        "mlp.2.bias",
    }
    assert found["blocks.7.mlp.0.weight"].in_branch
    assert not found["norm.weight"].in_branch
    # A read-out by a function: its factor is on what is multiplied with the embedding.
    assert multipliers(found, "output") == {("norm", "output", "n⁻¹")}
    assert found["A_log"].role == "norm"


@pytest.mark.slow
def test_keys_and_values_of_a_fixed_number_of_heads():
    found = plan()
    shared = {w.name.split(".", 2)[-1] for w in found.weights if w.role == "shared"}
    assert shared == {"attention.k_proj.weight", "attention.v_proj.weight"}
    weight = found["blocks.0.attention.v_proj.weight"]
    assert (weight.init_std, weight.lr) == (0.5, 0.25)
    assert any("'shared'" in note for note in found.notes)


@pytest.mark.slow
def test_first_blocks_unlike_the_others():
    for kind in ("relative", "experts"):
        found = plan(kind)
        assert found.depth_ratio == 4
        assert found["blocks.0.mlp.2.weight"].folded == ("branch × l⁻¹",)
    assert plan("relative")["blocks.0.positions"].in_branch
    experts = plan("experts")
    # What is summed over experts with the router's weights is multiplied where it comes out.
    assert multipliers(experts, "branch") == {("mlp", "output", "l⁻¹")}
    assert (experts["blocks.7.mlp.down"].role, experts["blocks.7.mlp.down"].n) == ("hidden", 4)
    assert experts["blocks.7.mlp.gate.weight"].role == "router"


@pytest.mark.slow
def test_the_factor_is_behind_normalised_queries():
    found = plan("normed")
    assert folded(found, "attention × n⁻¹ᐟ²") == {"attention.q_norm.weight"}
    assert found["blocks.0.attention.q_proj.weight"].folded == ()


@pytest.mark.slow
def test_factors_of_the_users_own_and_gains_that_cannot_be_folded():
    found = plan("gemma")
    assert multipliers(found, "built") == {("wte", "output", "n⁻¹ᐟ²")}
    assert multipliers(found, "branch") == {("post", "output", "l⁻¹")}
    divided = plan("divided")
    (multiplier,) = (m for m in divided.multipliers if m.kind == "output")
    assert multiplier.power == "n⁻¹ᐟ²"


@pytest.mark.parametrize("kind", ["", "gemma", "divided", "normed", "experts", "relative"])
def test_base_models_are_left_as_they_are(kind):
    def make(width, depth):
        return Decoder(width, depth, kind)

    found = scale(make, BASE, BASE, scheme="complete_p")
    assert found.multipliers == ()
    assert all(w.init == w.lr == 1 for w in found.weights)


class Odd(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp, self.out, self.width = nn.Linear(3, width), nn.Linear(width, 2), width

    def forward(self, x):
        return self.out(torch.tanh(self.inp(x)) * self.width**0.5)


def test_factors_in_the_read_outs_input_are_made_up_for():
    found = scale(Odd, {"width": 16}, {"width": 64}, scheme="mup")
    assert found["out.weight"].folded == ("output × n⁻¹", "built × n⁻¹ᐟ²")


class Inside(Odd):
    def forward(self, x):
        h = torch.tanh(torch.tanh(self.inp(x)) * self.width**0.5)
        return self.out(h)


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.both = nn.Linear(3, 2 * width)

    def forward(self, x):
        return nn.functional.glu(self.both(x))


class AfterGates(Odd):
    """As Speech2Text, whose gated convolutions are multiplied by √d."""

    def __init__(self, width, shares=False):
        super().__init__(width)
        self.inp, self.next, self.shares = Gated(width), nn.Linear(width, width), shares

    def forward(self, x):
        gated = self.inp(x)
        h = torch.tanh(self.next(gated * self.width**0.5))
        return self.out(h + gated if self.shares else h)


def test_factors_of_what_a_module_makes_are_made_up_for():
    base, target = {"width": 16}, {"width": 64}
    found = scale(AfterGates, base, target, scheme="mup")
    assert multipliers(found, "built") == {("inp", "output", "n⁻¹ᐟ²")}
    assert next(m for m in found.multipliers if m.kind == "built").factor == 0.5
    with pytest.raises(InvalidInput, match="neither made by a module alone"):
        scale(partial(AfterGates, shares=True), base, target, scheme="mup")


def test_factors_that_nothing_takes_up_are_refused():
    with pytest.raises(InvalidInput, match=r"multiplies by a number that grows as width\^\(1/2\)"):
        scale(Inside, {"width": 16}, {"width": 64}, scheme="mup")


class OwnTable(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(11, width))

    def forward(self, ids):
        return nn.functional.embedding(ids, self.weight)


class TiedToItsOwnTable(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table, self.hidden = OwnTable(width), nn.Linear(width, width)
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, input_ids):
        return self.head(torch.tanh(self.hidden(self.table(input_ids))))


def test_tables_in_modules_of_the_users_own():
    example = {"input_ids": torch.arange(6).reshape(2, 3)}
    options = {"scheme": "mup", "optimizer": "adam", "example": example}
    found = scale(TiedToItsOwnTable, {"width": 16}, {"width": 64}, **options)
    assert (found["table.weight"].role, found["table.weight"].lr) == ("embedding", 1.0)
    assert multipliers(found, "output") == {("head", "input", "n⁻¹")}


class InTwoFactors(nn.Module):
    """Embeddings of low rank that read out as well."""

    def __init__(self, width):
        super().__init__()
        self.wte, self.up = nn.Embedding(11, 8), nn.Linear(8, width, bias=False)
        self.hidden, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, input_ids):
        h = self.norm(torch.tanh(self.hidden(self.up(self.wte(input_ids)))))
        return h @ self.up.weight @ self.wte.weight.mT


def test_read_outs_by_both_factors_of_an_embedding():
    found = scale(InTwoFactors, {"width": 16}, {"width": 64}, scheme="mup", optimizer="adam")
    assert found["up.weight"].role == "input"
    assert multipliers(found, "output") == {("norm", "output", "n⁻¹")}
    assert found.notes == ()


@pytest.mark.slow
def test_a_temperature_hides_no_read_out():
    plan = scale(
        partial(Captioner, tied=False), {"width": 16, "depth": 2}, {"width": 64, "depth": 2}
    )
    assert plan["head.weight"].role == "output"
    assert not any("read-out" in note for note in plan.notes)


class Mixing(nn.Module):
    """Mixes places and channels; one dropout for both."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout()
        self.places, self.channels = nn.Linear(5, 5), nn.Linear(width, width)

    def forward(self, x):
        x = x + self.drop(self.places(torch.tanh(self.norm(x)).transpose(1, 2)).transpose(1, 2))
        return x + self.drop(self.channels(torch.tanh(self.norm(x))))


@pytest.mark.slow
@pytest.mark.parametrize("multipliers", ["forward", "weights"])
def test_a_dropout_for_two_branches_takes_no_factor(multipliers):
    def make(width, depth):
        blocks = [Mixing(width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 2))

    found = scale(
        make, BASE, TARGET, scheme="complete_p", multipliers=multipliers,
        example=torch.randn(2, 5, 3),
    )  # fmt: skip
    kept = [m.module.partition(".")[2] for m in found.multipliers if m.kind == "branch"]
    in_weights = folded(found, "branch × l⁻¹")
    if multipliers == "forward":
        assert sorted(set(kept)) == ["channels", "places"]
        assert (len(kept), in_weights) == (16, set())
    else:
        assert {name.rpartition(".")[2] for name in in_weights} == {"weight", "bias"}
        assert sum("branch" in "".join(w.folded) for w in found.weights) == 32
