"""Layers of PyTorch's own, and ways in which users write residual blocks."""

from functools import partial

import pytest
import torch
from tests.transfer.torch_models import Attention, Block, Captioner, MLPBlock
from torch import nn
from torch.nn import functional as F

from largen.errors import InvalidInput, WrongPlan
from largen.transfer import Hints
from largen.transfer.torch import Residual, scale
from largen.transfer.torch.multipliers import (
    ScaleFirstThird,
    ScaleKey,
    ScaleOutput,
    ScaleParts,
)
from largen.transfer.torch.recording import record
from largen.transfer.torch.streams import residual_sums
from largen.transfer.torch.trial import randomize

BASE, TARGET = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}


def encoder(norm_first):
    def make(width, depth):
        layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=norm_first
        )
        return nn.Sequential(
            nn.Linear(3, width),
            nn.TransformerEncoder(layer, depth, enable_nested_tensor=False),
            nn.Linear(width, 2),
        )

    return make


@pytest.mark.slow
def test_torchs_own_transformer():
    with pytest.warns(WrongPlan, match=r"copies of 1\.layers\.\*.* start with equal values"):
        plan = scale(encoder(True), BASE, TARGET)
    assert plan["1.layers.7.self_attn.in_proj_weight"].role == "attention"
    assert plan["1.layers.7.self_attn.out_proj.weight"].folded == ("branch × l⁻¹ᐟ²",)
    assert plan["1.layers.7.linear2.bias"].folded == ("branch × l⁻¹ᐟ²",)
    assert plan["1.layers.7.norm1.weight"].in_branch
    assert {(m.where, m.factor) for m in plan.multipliers} == {("key", 0.5)}
    model = plan.build(seed=0)
    x = torch.randn(2, 5, 3)
    training = model(x)
    # Inference takes a fused path, which must not go past the multipliers.
    with torch.no_grad():
        assert torch.allclose(model.eval()(x), training, atol=1e-5)
    post = scale(encoder(False), BASE, TARGET)
    assert all(record.passed for record in post.verified), post
    assert not post["1.layers.7.norm1.weight"].in_branch
    assert post["1.layers.7.norm1.weight"].lr == 1 / 4  # four times as many norms on the trunk
    assert "post-norm" in post.notes[0]


@pytest.mark.parametrize("bias", [True, False])
def test_the_key_scales_the_logits(bias):
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True)
    if bias:
        nn.init.normal_(plain.in_proj_bias)
    scaled = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True)
    scaled.load_state_dict(plain.state_dict())
    with torch.no_grad():  # logits are multiplied if the queries' weight and bias are
        plain.in_proj_weight[:8] *= 3.0
        if bias:
            plain.in_proj_bias[:8] *= 3.0
    scaled.register_forward_pre_hook(ScaleKey(3.0), with_kwargs=True)
    x = torch.randn(2, 5, 8)
    expected = plain(x, x, x, need_weights=False)[0]
    assert torch.allclose(scaled(x, x, x, need_weights=False)[0], expected, atol=1e-6)
    assert torch.allclose(scaled(query=x, key=x, value=x)[0], expected, atol=1e-6)


def test_fused_queries_keys_and_values():
    torch.manual_seed(0)
    fused, separate = Attention(8, 2, fused=True), Attention(8, 2, fused=False)
    with torch.no_grad():
        fused.qkv.bias.zero_()
        separate.proj.load_state_dict(fused.proj.state_dict())
        for target, source in zip((separate.q, separate.k, separate.v),
                                  fused.qkv.weight.chunk(3), strict=True):  # fmt: skip
            target.weight.copy_(source)
    fused.qkv.register_forward_hook(ScaleFirstThird(3.0))
    separate.q.register_forward_hook(ScaleOutput(3.0))
    x = torch.randn(2, 5, 8)
    assert torch.allclose(fused(x), separate(x), atol=1e-6)


@pytest.mark.parametrize("hook", [ScaleFirstThird(3.0), ScaleParts(3.0, 0.5, 4)])
def test_channels_of_images_are_not_on_their_last_axis(hook):
    torch.manual_seed(0)
    pixels, rows = nn.Conv2d(8, 24, 1), nn.Linear(8, 24)
    with torch.no_grad():
        rows.weight.copy_(pixels.weight.flatten(1))
        rows.bias.copy_(pixels.bias)
    for module in (pixels, rows):
        module.register_forward_hook(hook)
    x = torch.randn(2, 8, 6, 12)
    assert torch.allclose(pixels(x).movedim(1, -1), rows(x.movedim(1, -1)), atol=1e-6)


class OwnScale(nn.Module):
    def __init__(self, width, heads=2, power=1.0):
        super().__init__()
        self.heads, self.scale = heads, (width / heads) ** -power
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.inp, self.out = nn.Linear(3, width), nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).mT for t in (self.q(h), self.k(h), h))
        logits = torch.einsum("bidh,bjdh->bhij", q, k) * self.scale
        return self.out(torch.einsum("bhij,bjdh->bidh", logits.softmax(-1), v).flatten(2))


@pytest.mark.slow
def test_a_models_own_scale_of_logits_is_respected():
    sizes = {"width": 16}, {"width": 64}
    assert scale(OwnScale, *sizes, scheme="mup")["q.weight"].folded == ()
    root = partial(OwnScale, power=0.5)
    assert scale(root, *sizes, scheme="mup")["q.weight"].folded == ("attention × n⁻¹ᐟ²",)
    named = scale(root, *sizes, scheme="mup", hints=Hints(attention={"k": 4.0}))
    assert named["k.weight"].folded == ("attention × n⁻¹ᐟ²",)
    assert scale(root, *sizes, scheme="mup", hints=Hints(attention={}))["q.weight"].folded == ()
    # More heads instead of larger ones: nothing to be done.
    heads = scale(
        lambda width, heads: Captioner(width, 1, heads=heads),
        {"width": 16, "heads": 2},
        {"width": 64, "heads": 8},
        scheme="mup",
    )
    assert heads["blocks.0.attn.q.weight"].folded == ()


class Basic(nn.Module):
    """A block as ResNets have it: in-place sum, activation behind it."""

    def __init__(self, width=8):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return F.relu(out)


class LayerScale(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.gamma * self.fc(self.norm(x))


class Gated(nn.Module):
    """Ends in an activation: the factor cannot be folded."""

    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        return self.body(x) + x


class Functional(Gated):
    def forward(self, x):
        return x + torch.tanh(self.body(x))


BLOCKS = [
    (Block(8, 2, True), {"attn.proj", "mlp.2"}, True),
    (MLPBlock(8), {"fc2"}, True),
    (Basic(), {"bn2"}, True),
    (LayerScale(), {""}, True),
    (Gated(), {"body"}, False),
    (Residual(nn.Sequential(nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.1))), {"branch.1"}, True),
    (nn.Sequential(Residual(nn.Linear(8, 8)), Residual(nn.Linear(8, 8))),
     {"0.branch", "1.branch"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("block", "ends", "affine"), BLOCKS, ids=lambda x: type(x).__name__)
def test_usual_shapes_of_blocks(block, ends, affine):
    x = torch.randn(2, 8, 8, 8) if isinstance(block, Basic) else torch.randn(2, 5, 8)
    sums = residual_sums(record(randomize(block), (x,), {}))
    found = {
        name.rpartition(".")[0]
        for own in sums
        for end in own.walk.ends.values()
        for name in end.weights
    }
    assert found == (ends if affine else set())
    assert all(own.walk.takes_a_factor == affine for own in sums)
    assert sums


def test_what_is_not_residual():
    for module in (nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8)):
        assert residual_sums(record(module, (torch.randn(2, 8),), {})) == []

    def net(width, depth):
        blocks = [Functional(width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 1))

    with pytest.raises(InvalidInput, match=r"\(Functional\) adds .*\(tanh\), which no weight"):
        scale(net, BASE, TARGET)


@pytest.mark.slow
def test_a_branch_that_ends_in_an_activation_is_multiplied():
    def net(width, depth):
        blocks = [Gated(width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 1))

    plan = scale(net, BASE, TARGET)
    assert {(m.module, m.where, m.factor) for m in plan.multipliers} == {
        (f"{i}.body.1", "output", 0.5) for i in range(1, 9)
    }
    model, plain = plan.build(seed=0), net(**TARGET)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 3)
    h = plain[0](x)
    for block in plain[1:-1]:
        h = h + 0.5 * block.body(h)
    assert torch.allclose(model(x), plain[-1](h), atol=1e-6)


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        keep = torch.rand(x.shape[0], *[1] * (x.ndim - 1)) >= self.rate
        return x * keep / (1 - self.rate) if self.training else x


class StochasticDepth(nn.Module):
    """Blocks with rates that rise with the depth, as vision transformers have them."""

    def __init__(self, width, rate):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)
        self.drop = DropPath(rate) if rate else nn.Identity()

    def forward(self, x):
        return x + self.drop(self.fc(self.norm(x)))


@pytest.mark.slow
def test_builders_that_look_at_values():
    def net(width, depth):
        rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
        blocks = [StochasticDepth(width, rate) for rate in rates]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 1))

    plan = scale(net, BASE, TARGET)
    assert plan.depth_ratio == 4
    # Dropped paths are multiplied by numbers, which pass a factor on.
    assert all(plan[f"{i}.fc.weight"].folded == ("branch × l⁻¹ᐟ²",) for i in range(1, 9))
    assert plan.multipliers == ()
    model = plan.build(seed=0).eval()
    x, h = torch.randn(4, 3), None
    for i, part in enumerate(model):
        h = part(x) if i == 0 else h
        if 0 < i < 9:
            branch = part.fc(part.norm(h))
            h = h + branch
    assert torch.allclose(model(x), model[9](h), atol=1e-6)


class RMS(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class RotaryBlock(nn.Module):
    """Grouped-query attention with rotations, a gated MLP, further arguments."""

    def __init__(self, width, heads):
        super().__init__()
        self.n_heads, self.head_dim = heads, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width // 2, bias=False)
        self.v_proj = nn.Linear(width, width // 2, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.attention_norm, self.ffn_norm = RMS(width), RMS(width)
        self.w1, self.w3 = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.w2 = nn.Linear(3 * width, width, bias=False)

    def attention(self, x, angles, mask):
        batch, length, _ = x.shape
        q, k, v = (
            proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (torch.cos(angles)[:length, None] * t for t in (q, k))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x, angles, mask=None):
        h = x + self.attention(self.attention_norm(x), angles, mask)
        n = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(n)) * self.w3(n))


class Decoder(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(7, width),
            "h": nn.ModuleList(RotaryBlock(width, 4) for _ in range(depth)),
            "ln_f": RMS(width),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, 7, bias=False)

    def forward(self, ids):
        own = self.transformer
        h = own["wte"](ids)
        angles = torch.linspace(0, 3, ids.shape[1])
        for block in own["h"]:
            h = block(h, angles)
        return self.lm_head(own["ln_f"](h))


@pytest.mark.slow
def test_a_decoder_as_language_models_have_it():
    plan = scale(Decoder, BASE, TARGET, optimizer="adamw")
    roles = {w.name.rpartition("h.7.")[2]: w.role for w in plan.weights}
    assert roles["attention_norm.weight"] == "norm"
    assert {roles[f"{name}.weight"] for name in ("k_proj", "w1", "w2", "w3")} == {"hidden"}
    assert roles["lm_head.weight"] == "output"
    block = "transformer.h.7"
    assert plan[f"{block}.q_proj.weight"].folded == ("attention × n⁻¹ᐟ²",)
    assert plan[f"{block}.o_proj.weight"].folded == ("branch × l⁻¹ᐟ²",)
    assert plan[f"{block}.w2.weight"].folded == ("branch × l⁻¹ᐟ²",)
    assert plan[f"{block}.w1.weight"].in_branch
    assert not plan["transformer.ln_f.weight"].in_branch
    assert plan.multipliers == ()


@pytest.mark.slow
def test_lengths_of_weight_normalisation_are_constants():
    # The rows of PyTorch's matrices have the length 1/√3 at any width, and scatter about it.
    def build(width):
        inner = nn.utils.parametrizations.weight_norm(nn.Linear(width, width))
        return nn.Sequential(nn.Linear(8, width), inner, nn.ReLU(), nn.Linear(width, 2))

    plan = scale(build, {"width": 64}, {"width": 512}, scheme="mup", optimizer="adam")
    built, own = plan.build(seed=0), build(512)
    lengths = [model[1].parametrizations.weight.original0.detach() for model in (built, own)]
    factor = lengths[0].mean() / lengths[1].mean()
    assert factor.item() == pytest.approx(1.0, rel=0.02)
    assert lengths[1].mean().item() == pytest.approx(3**-0.5, rel=0.02)
