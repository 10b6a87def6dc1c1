"""Layers of PyTorch's own, and ways in which users write residual blocks."""

import pytest
import torch
from tests.transfer.torch_models import Attention, Block, Captioner, MLPBlock
from torch import nn
from torch.nn import functional as F

from largen.errors import InvalidInput
from largen.transfer.torch import Residual, scale
from largen.transfer.torch.branches import NotResidual, residual_branches
from largen.transfer.torch.multipliers import ScaleFirstThird, ScaleKey, ScaleOutput

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


def test_torchs_own_transformer():
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
    assert not post["1.layers.7.norm1.weight"].in_branch
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


class OwnScale(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.scale = heads, heads / width  # 1/d_head already
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.inp, self.out = nn.Linear(3, width), nn.Linear(width, 1)


class NoHeads(OwnScale):
    def __init__(self, width):
        super().__init__(width)
        del self.heads


def test_a_models_own_scale_of_logits_is_respected():
    sizes = {"width": 16}, {"width": 64}
    assert scale(OwnScale, *sizes, scheme="mup")["q.weight"].folded == ()
    with pytest.raises(InvalidInput, match=r"attention={'q': ratio"):
        scale(NoHeads, *sizes, scheme="mup")
    named = scale(NoHeads, *sizes, scheme="mup", attention={"q": 4.0})
    assert named["q.weight"].folded == ("attention × n⁻¹ᐟ²",)
    assert scale(NoHeads, *sizes, scheme="mup", attention={})["q.weight"].folded == ()
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
    (LayerScale(), {"fc"}, True),
    (Gated(), {"body"}, False),
    (Residual(nn.Sequential(nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.1))), {"branch.1"}, True),
    (nn.Sequential(Residual(nn.Linear(8, 8)), Residual(nn.Linear(8, 8))),
     {"0.branch", "1.branch"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("block", "ends", "affine"), BLOCKS, ids=lambda x: type(x).__name__)
def test_usual_shapes_of_blocks(block, ends, affine):
    found = residual_branches(block)
    assert {branch.end for branch in found} == ends
    assert all(branch.affine == affine for branch in found)
    inside = set().union(*(branch.members for branch in found))
    for name, _ in block.named_parameters():
        assert any(name == m or name.startswith(f"{m}.") for m in inside), name


def test_what_is_not_residual():
    for module in (nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8)):
        with pytest.raises(NotResidual, match="adds nothing"):
            residual_branches(module)
    with pytest.raises(NotResidual, match=r"ends in .*tanh"):
        residual_branches(Functional())


def test_a_branch_that_ends_in_an_activation_is_multiplied():
    def net(width, depth):
        blocks = [Gated(width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 1))

    plan = scale(net, BASE, TARGET)
    assert {(m.module, m.where, m.factor) for m in plan.multipliers} == {
        (f"{i}.body", "output", 0.5) for i in range(1, 9)
    }
    model, plain = plan.build(seed=0), net(**TARGET)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 3)
    h = plain[0](x)
    for block in plain[1:-1]:
        h = h + 0.5 * block.body(h)
    assert torch.allclose(model(x), plain[-1](h), atol=1e-6)


def test_builders_that_look_at_values():
    def net(width, depth):
        rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
        blocks = [Residual(nn.Sequential(nn.Linear(width, width), nn.Dropout(r))) for r in rates]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 1))

    assert scale(net, BASE, TARGET)["8.branch.0.weight"].folded == ("branch × l⁻¹ᐟ²",)
