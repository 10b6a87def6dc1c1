"""Attention as users write it: whatever its parts are called, logits end up in q·k/d."""

import math
from fractions import Fraction
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from largen.errors import InvalidInput
from largen.transfer import Hints
from largen.transfer.shapes import shapes
from largen.transfer.torch import scale
from largen.transfer.torch.attention import built_power
from largen.transfer.torch.reading import Reading

SIZES = {"width": 16}, {"width": 64}


def heads(x):
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


def attend(q, k, v, factor=None):
    return F.scaled_dot_product_attention(q, k, v, scale=factor).transpose(1, 2).flatten(-2)


class Usual(nn.Module):
    num_heads = 2

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))

    def parts(self, x):
        return (heads(part(x)) for part in (self.q_proj, self.k_proj, self.v_proj))

    def forward(self, x):
        return attend(*self.parts(x))


class UnusualNames(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        return attend(*(heads(part(x)) for part in (self.one, self.two, self.three)))


class ScaleInTheCall(Usual):
    def forward(self, x):
        q, k, v = self.parts(x)
        return attend(q, k, v, 1 / q.shape[-1])


class ByHand(Usual):
    """As in GPT-2, with a mask."""

    def forward(self, x):
        q, k, v = self.parts(x)
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        weights = logits.masked_fill(future, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(-2)


class WithoutScale(nn.Module):
    """As in T5: biases of positions, no division."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.bias = nn.Parameter(torch.randn(32))
        nn.init.zeros_(self.q.weight)

    def forward(self, x):
        q, k, v = (heads(part(x)) for part in (self.q, self.k, self.v))
        logits = torch.einsum("b h i d, b h j d -> b h i j", q, k) + self.bias[: x.shape[1]]
        return (F.softmax(logits, dim=-1) @ v).transpose(1, 2).flatten(-2)


class DividedBefore(Usual):
    """The attribute is a divisor, of the queries."""

    def __init__(self, width):
        super().__init__(width)
        self.scale, self.softmax = float(width // 2), nn.Softmax(dim=-1)

    def forward(self, x):
        q, k, v = self.parts(x)
        weights = self.softmax(torch.matmul(q / self.scale, k.mT))
        return (weights @ v).transpose(1, 2).flatten(-2)


class UnusedScale(Usual):
    scale = 1.0


class NormalisedQueries(Usual):
    def __init__(self, width):
        super().__init__(width)
        self.q_norm, self.k_norm = nn.RMSNorm(width // 2), nn.RMSNorm(width // 2)

    def forward(self, x):
        q, k, v = self.parts(x)
        return attend(self.q_norm(q), self.k_norm(k), v)


class OneHead(Usual):
    num_heads = None

    def forward(self, x):
        return F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))


class KeysAndValues(nn.Module):
    """Doubling what makes keys and values would double the values, too."""

    def __init__(self, width):
        super().__init__()
        self.a_kv, self.b = nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x):
        k, v = self.a_kv(x).chunk(2, -1)
        return attend(heads(self.b(x)), heads(k), heads(v))


class Inner(nn.Module):
    def forward(self, q, k, v):
        return attend(q, k, v)


class InAPartOfItsOwn(UnusualNames):
    def __init__(self, width):
        super().__init__(width)
        self.inner = Inner()

    def forward(self, x):
        return self.inner(*(heads(part(x)) for part in (self.one, self.two, self.three)))


class OfImages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f, self.g, self.h = (nn.Conv2d(width, width, 1) for _ in range(3))

    def forward(self, x):
        f, g, h = (part(x).flatten(2) for part in (self.f, self.g, self.h))
        weights = (torch.einsum("bci,bcj->bij", f, g) / f.shape[1] ** 0.5).softmax(-1)
        return torch.einsum("bij,bcj->bci", weights, h).reshape(x.shape)


class TransposedLayer(nn.Module):
    """The linear layer of GPT-2: a matrix that is multiplied from the right."""

    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(fan_in, fan_out) / fan_in**0.5)

    def forward(self, x):
        return x @ self.weight


class Fused(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.all_three = TransposedLayer(width, 3 * width)

    def forward(self, x):
        return attend(*(heads(part) for part in self.all_three(x).chunk(3, -1)))


class FusedWithIdentities(nn.Module):
    """As in timm: normalisations that may be there, the factor on the queries."""

    def __init__(self, width):
        super().__init__()
        self.scale = (width // 2) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()

    def forward(self, x):
        qkv = self.qkv(x).reshape(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = ((self.q_norm(q) * self.scale) @ self.k_norm(k).transpose(-2, -1)).softmax(dim=-1)
        return (weights @ v).transpose(1, 2).flatten(-2)


class Net(nn.Module):
    def __init__(self, kind, width):
        super().__init__()
        self.inp, self.attention, self.out = nn.Linear(3, width), kind(width), nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        if isinstance(self.attention, OfImages):
            h = self.attention(h.mT[..., None]).flatten(2).mT
        else:
            h = self.attention(h)
        return self.out(h)


def plan(kind, **options):
    return scale(lambda width: Net(kind, width), *SIZES, scheme="mup", **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "queries", "power"),
    [
        (Usual, "q_proj", "n⁻¹ᐟ²"),
        (UnusualNames, "one", "n⁻¹ᐟ²"),
        (ScaleInTheCall, None, None),
        (ByHand, "q_proj", "n⁻¹ᐟ²"),
        (WithoutScale, "q", "n⁻¹"),
        (DividedBefore, None, None),
        (UnusedScale, "q_proj", "n⁻¹ᐟ²"),
        (NormalisedQueries, "q_norm", "n⁻¹ᐟ²"),
        (OneHead, "q_proj", "n⁻¹ᐟ²"),
        (KeysAndValues, "b", "n⁻¹ᐟ²"),
        (InAPartOfItsOwn, "one", "n⁻¹ᐟ²"),
        (OfImages, "f", "n⁻¹ᐟ²"),
    ],
)
def test_what_multiplies_the_logits_is_found(kind, queries, power):
    found = plan(kind)
    folded = {w.name.rpartition(".")[0]: w.folded for w in found.weights if "attention" in w.name}
    folded = {path: words for path, words in folded.items() if words}
    wanted = {} if queries is None else {f"attention.{queries}": (f"attention × {power}",)}
    assert folded == wanted
    assert found.multipliers == found.notes == ()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [(Fused, "all_three"), (FusedWithIdentities, "qkv")])
def test_fused_queries_under_any_name(kind, name):
    (multiplier,) = plan(kind).multipliers
    assert (multiplier.module, multiplier.where) == (f"attention.{name}", "first third")
    assert multiplier.factor == 0.5


class RawQueries(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Parameter(torch.randn(width, width)) for _ in range(3))

    def forward(self, x):
        return attend(*(heads(x @ w) for w in (self.q, self.k, self.v)))


class HeadByHead(nn.Module):
    """The fused layer's output is cut into heads first, and each into three."""

    def __init__(self, width):
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)

    def forward(self, x):
        return attend(*heads(self.query_key_value(x)).chunk(3, -1))


class Twice(Usual):
    def forward(self, x):
        first = attend(*self.parts(x))
        return first + attend(*self.parts(first))


@pytest.mark.parametrize(
    ("kind", "weights"),
    [(RawQueries, {"attention.q"}), (Twice, {"attention.q_proj.weight", "attention.q_proj.bias"})],
)
def test_weights_of_no_layer_and_of_several_logits(kind, weights):
    found = plan(kind)
    assert {w.name for w in found.weights if "attention" in "".join(w.folded)} == weights
    assert found.multipliers == ()


class Shrinking(nn.Module):
    """More and more heads share a fixed number of features."""

    def __init__(self, width):
        super().__init__()
        self.heads, self.out = width // 8, nn.Linear(64, width)
        self.q, self.k, self.v = (nn.Linear(width, 64) for _ in range(3))

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.q, self.k, self.v))
        return self.out(attend(*(y.transpose(1, 2) for y in (q, k, v))))


def test_heads_that_shrink():
    # From 32 to 8 features: 8^(−½) of the model's own, and 8^(−1)·√32 under the scheme.
    plan = scale(Shrinking, *SIZES, scheme="mup")
    sides = [w.init for w in plan.weights if w.name in ("q.weight", "k.weight")]
    assert math.prod(sides) == pytest.approx(2.0)


@pytest.mark.slow
def test_queries_head_by_head():
    (multiplier,) = plan(HeadByHead).multipliers
    assert multiplier.where == "first 1/3 of each of 2 parts"
    model, plain = plan(HeadByHead).build(seed=0), Net(HeadByHead, 64)
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        fused = plain.attention.query_key_value
        fused.weight.view(2, 3, 32, 64)[:, 0] *= multiplier.factor
        fused.bias.view(2, 3, 32)[:, 0] *= multiplier.factor
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(model(x), plain(x))


class OneForBoth(nn.Module):
    """Queries are the keys, made by no layer."""

    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width))

    def forward(self, x):
        both = heads(x @ self.w)
        return attend(both, both, both)


@pytest.mark.slow
def test_what_cannot_be_multiplied_is_refused():
    with pytest.raises(InvalidInput, match=r"attention: of attention \(OneForBoth\), no part"):
        plan(OneForBoth)
    assert all(
        w.folded in ((), ("output × n⁻¹",))
        for w in plan(OneForBoth, hints=Hints(attention={})).weights
    )


class NeedsMore(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp, self.attention = nn.Linear(3, width), Usual(width)

    def forward(self, x, angles, *, mask):
        return self.attention(self.inp(x) * angles.cos() + mask)


def test_what_cannot_be_called_needs_an_example():
    with pytest.raises(InvalidInput, match=r"example: the model could not be called: it was"):
        scale(NeedsMore, *SIZES, scheme="mup")

    class Called(NeedsMore):
        def forward(self, given):
            return super().forward(given["x"], given["angles"], mask=given["mask"])

    x = {"x": torch.randn(2, 5, 3), "angles": torch.zeros(5, 1), "mask": torch.zeros(5, 1)}
    for example in (({**x},), lambda width: ({**x},)):
        found = scale(Called, *SIZES, scheme="mup", example=example)
        assert found["attention.q_proj.weight"].folded == ("attention × n⁻¹ᐟ²",)
    named = scale(NeedsMore, *SIZES, scheme="mup", hints=Hints(attention={"attention.q_proj": 4.0}))
    assert named["attention.q_proj.weight"].folded == ("attention × n⁻¹ᐟ²",)
    assert "could not be called" in named.notes[0]


class Classifier(nn.Module):
    """A softmax, a product and a router, but no attention."""

    def __init__(self, width):
        super().__init__()
        self.gate, self.experts = nn.Linear(width, 5), nn.Parameter(torch.randn(5, width, width))

    def forward(self, x):
        weights = (self.gate(x) @ torch.eye(5)).softmax(-1)
        return torch.einsum("bte,eij,bti->btj", weights, self.experts, x)


@pytest.mark.slow
def test_other_softmaxes_are_left_alone():
    found = plan(Classifier, hints=Hints(roles={"attention.experts": "hidden"}))
    assert found.notes == found.multipliers == ()
    assert all("attention" not in "".join(w.folded) for w in found.weights)


def test_powers_are_measured():
    for kind, power in ((Usual, "-1/2"), (ScaleInTheCall, -1), (WithoutScale, 0)):
        read = Reading(partial(Net, kind), shapes(*SIZES, "depth"), None)
        assert built_power(read, read.logits[0]) == Fraction(power)
        # Two models of one size: by the number itself.
        read.__dict__["wide"] = read.base
        assert built_power(read, read.logits[0]) == Fraction(power)
