"""PyTorch models in the styles that people write, each with inputs: builders of a module."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RNG = np.random.default_rng(4)
VECTORS, SEQUENCES, IMAGES, ROWS = (
    torch.tensor(RNG.normal(size=shape), dtype=torch.float32)
    for shape in ((3, 6), (2, 5, 8), (2, 3, 8, 8), (2, 4, 12))
)
TOKENS = torch.tensor(RNG.integers(0, 11, (2, 6)))


class GPT(nn.Module):
    """Rotated queries, keys and values in groups, gates, RMS norms, a tied read-out."""

    def __init__(self, n=16, heads=4, groups=2, length=6):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, n // heads
        self.words, self.norms = nn.Embedding(11, n), nn.ModuleList(nn.RMSNorm(n) for _ in range(3))
        self.q, self.kv = nn.Linear(n, n), nn.Linear(n, 2 * groups * self.size)
        self.out, self.up, self.down = nn.Linear(n, n), nn.Linear(n, 4 * n), nn.Linear(2 * n, n)
        rates = 1 / 100 ** (torch.arange(0, self.size, 2) / self.size)
        self.register_buffer("angles", torch.outer(torch.arange(length), rates))

    def rotated(self, z):
        one, two = z[..., ::2], z[..., 1::2]
        cos, sin = self.angles.cos(), self.angles.sin()
        return torch.stack([one * cos - two * sin, one * sin + two * cos], -1).flatten(-2)

    def forward(self, ids):
        h = self.words(ids)
        batch, length, n = h.shape
        u = self.norms[0](h)
        q = self.q(u).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(u).view(batch, length, 2 * self.groups, -1).transpose(1, 2).chunk(2, 1)
        k, v = (p.repeat_interleave(self.heads // self.groups, 1) for p in (self.rotated(k), v))
        a = F.scaled_dot_product_attention(self.rotated(q), k, v, is_causal=True)
        h = h + self.out(a.transpose(1, 2).reshape(batch, length, n))
        gate, up = self.up(self.norms[1](h)).chunk(2, -1)
        h = h + self.down(F.silu(gate) * up)
        return self.norms[2](h) @ self.words.weight.T


class ViT(nn.Module):
    """Patches, a token of the class, positions, encoder layers, a head on the class."""

    def __init__(self, n=16, layers=2):
        super().__init__()
        self.patches = nn.Conv2d(3, n, 4, 4)
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, n))
        self.places = nn.Parameter(0.5 * torch.randn(1, 5, n))
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(n, 4, 2 * n, 0.1, "gelu", batch_first=True, norm_first=True),
            layers, enable_nested_tensor=False,
        )  # fmt: skip
        self.head = nn.Linear(n, 3)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.places
        return self.head(self.blocks(h)[:, 0])


class Gated(nn.Module):
    """Gates of every kind, and activations without parameters."""

    def __init__(self, n=12):
        super().__init__()
        self.read_in, self.head = nn.Linear(6, 2 * n), nn.Linear(n, 2)
        self.prelu, self.bilinear = nn.PReLU(), nn.Bilinear(n, n, n)

    def forward(self, x):
        h = F.glu(self.read_in(x))
        kinds = (
            F.relu6, F.hardswish, F.hardsigmoid, F.mish, F.celu, F.selu, F.softsign, F.elu,
            F.leaky_relu, F.softplus, F.logsigmoid, F.tanhshrink, F.hardtanh, F.gelu,
        )  # fmt: skip
        h = self.prelu(h) + sum(kind(h) for kind in kinds) / len(kinds)
        h = self.bilinear(h, torch.erf(h)).clamp(-2, 3)
        return self.head(h.softmax(-1) * h.log_softmax(-1) + torch.atan2(h, 1 + h * h))


class Mixer(nn.Module):
    """Maps over tokens and over channels in turn."""

    def __init__(self, n=8, tokens=5):
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(tokens, 7), nn.GELU("tanh"), nn.Linear(7, tokens))
        self.channels = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
        self.one, self.two = nn.LayerNorm(n), nn.LayerNorm(n, bias=False)

    def forward(self, x):
        x = x + self.tokens(self.one(x).mT).mT
        return (x + self.channels(self.two(x))).mean(1)


class UNet(nn.Module):
    """Two resolutions, group norm, upsampling of two kinds, a skip by concatenation."""

    def __init__(self, n=8):
        super().__init__()
        self.first, self.low = nn.Conv2d(3, n, 3, padding=1), nn.Conv2d(n, 2 * n, 3, 2, 1)
        self.norm, self.up = nn.GroupNorm(2, n), nn.ConvTranspose2d(2 * n, n, 4, 2, 1)
        self.last = nn.Conv2d(4 * n, 1, 3, padding="same", padding_mode="circular")

    def forward(self, x):
        a = F.silu(self.norm(self.first(x)))
        b = F.relu(self.low(a), inplace=True)
        near = F.interpolate(b, scale_factor=2, mode="nearest")
        smooth = F.interpolate(b, size=a.shape[2:], mode="bilinear", align_corners=False)
        return self.last(torch.cat([a, self.up(b), near + smooth], 1))


class Experts(nn.Module):
    """The two best of four experts of each token, by dense products and a gather."""

    def __init__(self, n=8):
        super().__init__()
        self.router = nn.Linear(n, 4, bias=False)
        self.up = nn.Parameter(torch.randn(4, n, 2 * n) / n**0.5)
        self.down = nn.Parameter(torch.randn(4, 2 * n, n) / n**0.5)

    def forward(self, x):
        weights, best = self.router(x).softmax(-1).topk(2, -1)
        h = torch.relu(torch.einsum("btd,edf->btef", x, self.up))
        every = torch.einsum("btef,efd->bted", h, self.down)
        some = every.gather(2, best[..., None].expand(*best.shape, x.shape[-1]))
        full = torch.zeros_like(every[..., 0]).scatter(-1, best, weights)
        return (weights[..., None] * some).sum(2) + full.sum(-1, keepdim=True)


class Sparse(nn.Module):
    """Experts on the tokens that are sent to them, found by their values."""

    def __init__(self, n=8):
        super().__init__()
        self.router = nn.Linear(n, 3)
        self.experts = nn.ModuleList(nn.Linear(n, n) for _ in range(3))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        best, out = self.router(flat).argmax(-1), torch.zeros_like(flat)
        for place, expert in enumerate(self.experts):
            rows = torch.where(best == place)[0]
            out.index_add_(0, rows, expert(flat[rows]))
        return out.view_as(x)


class Mamba(nn.Module):
    """A causal depthwise convolution and a selective scan, step by step."""

    def __init__(self, n=8, state=3):
        super().__init__()
        self.state, self.both = state, nn.Linear(n, 2 * n)
        self.conv = nn.Conv1d(n, n, 3, padding=2, groups=n)
        self.select, self.out = nn.Linear(n, 1 + 2 * state), nn.Linear(n, n)
        self.rates = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(n, 1))
        self.skip = nn.Parameter(torch.ones(n))

    def forward(self, x):
        u, gate = self.both(x).chunk(2, -1)
        u = F.silu(self.conv(u.mT)[..., : x.shape[1]].mT)
        step, b, c = self.select(u).split([1, self.state, self.state], -1)
        step, a = F.softplus(step), -torch.exp(self.rates)
        h = u.new_zeros(len(x), u.shape[-1], self.state)
        outs = []
        for t in range(x.shape[1]):
            decay = torch.exp(step[:, t, :, None] * a)
            h = decay * h + (step[:, t] * u[:, t])[..., None] * b[:, t, None]
            outs.append((h * c[:, t, None]).sum(-1))
        return self.out((torch.stack(outs, 1) + self.skip * u) * F.silu(gate))


class Bags(nn.Module):
    """Sums, means and maxima of embeddings."""

    def __init__(self, n=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(11, n, mode=m) for m in ("sum", "mean", "max"))
        self.head = nn.Linear(n, 2)

    def forward(self, ids):
        return self.head(sum(torch.tanh(bag(ids)) for bag in self.bags))


class InPlace(nn.Module):
    """Writes into parts of tensors, through views of views, and into tensors made inside."""

    def __init__(self, n=8):
        super().__init__()
        self.map, self.scale = nn.Linear(n, n), nn.Parameter(torch.randn(n))

    def forward(self, x):
        h = self.map(x)
        view = h.transpose(1, 2)
        whole = torch.zeros(len(x), x.shape[1] + 1, x.shape[2])
        whole[:, 1:] = h
        whole[:, 0].add_(self.scale).mul_(2)
        view[:, ::2, 1] = 0.5
        h[..., 1] += 2 * h[..., 0]
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (h @ h.mT).masked_fill_(mask, -1e9).softmax(-1)
        whole[:, :-1] += scores @ view.mT
        return whole.relu_().unflatten(-1, (2, -1)).unbind(-2)[1], view.sum(1)


class Arithmetic(nn.Module):
    """Functions of arrays that models use here and there."""

    def __init__(self, n=6):
        super().__init__()
        self.map, self.v = nn.Linear(n, n), nn.Parameter(torch.randn(n))

    def forward(self, x):
        h = self.map(x)
        parts = [
            h.cumsum(-1), h.flip(-1), h.roll(2, -1), h.sort(-1).values, h.abs().sqrt(),
            h.sign() * h.pow(2), torch.where(h > 0, h, h.exp()), torch.maximum(h, self.v),
            F.pad(h, (1, 1), mode="replicate")[:, 1:-1], h / h.norm(dim=-1, keepdim=True),
            F.normalize(h), F.cosine_similarity(h, x)[:, None] * h, torch.lerp(h, x, 0.3),
            h.std(-1, keepdim=True) * h, h.var(0) + h, torch.addcmul(h, x, self.v), h.floor(),
            torch.outer(h.mean(1), self.v), h.amax(-1, keepdim=True) - h.amin(1, keepdim=True) + h,
            h.argmax(-1, keepdim=True) + h, torch.cdist(h, x).sum(-1, keepdim=True) + h,
            F.one_hot(h.argmax(-1), 6) * h, torch.logsumexp(h, -1, keepdim=True) * h, h.tril(),
            h.prod(-1, keepdim=True) + h, torch.tensordot(h, self.map.weight, ([1], [0])), -h,
            h.unfold(1, 2, 2).sum(-1).repeat(1, 2), torch.kron(h, h)[::3, ::6], h.reciprocal(),
            torch.diagonal(h[:, None] * h[..., None], dim1=1, dim2=2), h.round(), h % 2, h.sin(),
            torch.full_like(h, 2.0) ** h, h.index_select(1, torch.tensor([5, 4, 3, 2, 1, 0])),
            h.trunc() + h.frac(), torch.linspace(0, 1, 6) * h, h.expand(2, -1, -1).mean(0),
            torch.clamp_min(h, 0.1).log(), torch.rsqrt(1 + h * h), (h > 0).float() * h, h.log1p(),
            h.logit(1e-2), torch.special.expit(h), torch.meshgrid(h[0], h[1], indexing="ij")[0][:3],
            torch.stack(torch.broadcast_tensors(h, self.v)).sum(0),
        ]  # fmt: skip
        return torch.stack([torch.nan_to_num(part) for part in parts])


def recurrent(kind, **options):
    class Recurrent(nn.Module):
        def __init__(self, n=7):
            super().__init__()
            self.layer = kind(8, n, 2, batch_first=True, **options)

        def forward(self, x):
            return self.layer(x)[0]

    return Recurrent


def convolutional(n=8):
    return nn.Sequential(
        nn.Conv2d(3, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), nn.Conv2d(n, n, (3, 1), dilation=(2, 1), padding="same", groups=2),
        nn.InstanceNorm2d(n, affine=True), nn.ELU(), nn.AvgPool2d(2, 1), nn.Dropout2d(0.3),
        nn.LocalResponseNorm(3), nn.PixelShuffle(2), nn.AdaptiveAvgPool2d((3, 2)), nn.Flatten(),
        nn.Linear(n // 4 * 6, 2),
    )  # fmt: skip


def pooled(n=8):
    return nn.Sequential(
        nn.Conv1d(4, n, 3, padding=1), nn.MaxPool1d(2), nn.Softplus(), nn.Conv1d(n, n, 2),
        nn.AvgPool1d(3, 2, 1, count_include_pad=False), nn.LPPool1d(2, 2),
        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(n, 2),
    )  # fmt: skip


class Attention(nn.Module):
    """PyTorch's own attention with a mask of keys and weights that are returned."""

    def __init__(self, n=8):
        super().__init__()
        self.layer = nn.MultiheadAttention(n, 2, batch_first=True, kdim=n, vdim=n)
        self.decoder = nn.TransformerDecoderLayer(n, 2, 16, batch_first=True)

    def forward(self, x):
        hidden = torch.zeros(x.shape[:2], dtype=torch.bool)
        hidden[:, -1] = True
        out, weights = self.layer(x, x, x, key_padding_mask=hidden)
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return {"out": self.decoder(out, x, tgt_mask=causal), "weights": weights}


class Controlled(nn.Module):
    """A number that is read in the forward pass, of weights or inputs."""

    def __init__(self, n=6):
        super().__init__()
        self.map, self.register = nn.Linear(n, n), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        h = self.map(x)
        return h * 2 if h.sum().item() > 0 else -h


class Fourier(nn.Module):
    """An operation without a form, the result of which nothing needs, and an unused layer."""

    def __init__(self, n=6):
        super().__init__()
        self.map, self.unused = nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, x):
        h = self.map(x)
        self.kept = torch.linalg.eigvals(h.T @ h)
        return math.sqrt(2) * torch.tanh(h)


MODELS = {
    "GPT": (GPT, TOKENS), "ViT": (ViT, IMAGES), "gated": (Gated, VECTORS),
    "mixer": (Mixer, SEQUENCES), "U-Net": (UNet, IMAGES), "experts": (Experts, SEQUENCES),
    "Mamba": (Mamba, SEQUENCES), "bags": (Bags, TOKENS), "in place": (InPlace, SEQUENCES),
    "arithmetic": (Arithmetic, VECTORS), "convolutional": (convolutional, IMAGES),
    "pooled": (pooled, ROWS), "attention": (Attention, SEQUENCES), "Fourier": (Fourier, VECTORS),
    "LSTM": (recurrent(nn.LSTM, bidirectional=True), SEQUENCES),
    "GRU": (recurrent(nn.GRU), SEQUENCES), "RNN": (recurrent(nn.RNN), SEQUENCES),
}  # fmt: skip
# Models whose values decide what is run: their trace is of one input.
READING = {"sparse": (Sparse, SEQUENCES), "controlled": (Controlled, VECTORS)}
