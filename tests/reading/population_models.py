"""PyTorch models of ordinary kinds whose operations have no exact kernels, and some that have."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from tests.reading.models import IMAGES, ROWS, TOKENS, VECTORS, normal
from torch import nn

RNG = np.random.default_rng(8)
BATCH, WORDS = RNG.normal(size=(8, 5)), RNG.integers(0, 7, (2, 4))
PADDING = int(WORDS[1, -1])  # a token that is padding
PAIRS = RNG.normal(size=(3, 2, 5))


def max_pooling(n):
    net = nn.Sequential(
        nn.Conv2d(3, n, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(n, 2 * n, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1),
        nn.Flatten(), nn.Linear(2 * n, 3),
    )  # fmt: skip
    normal(net, 2.0)
    return net


class Basic(nn.Module):
    """A block of torchvision's: in-place relu of a sum, batch norm in evaluation mode, stride."""

    def __init__(self, n, m, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.bn2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.relu, self.down = nn.ReLU(inplace=True), None
        if stride > 1:
            self.down = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


def res_net(n):
    net = nn.Sequential(
        nn.Conv2d(3, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), Basic(n, n, 1), Basic(n, 2 * n, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * n, 4),
    )  # fmt: skip
    for part in net.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    return net


class Encoder(nn.Module):
    """Softmax attention of heads that grow in number, positions, pre-norm."""

    def __init__(self, n):
        super().__init__()
        self.embed, self.positions = nn.Linear(3, n), nn.Parameter(torch.zeros(1, 4, n))
        nn.init.trunc_normal_(self.positions, std=0.5)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                n, n // 4, 2 * n, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(n), nn.Linear(n, 2)

    def forward(self, x):
        h = self.embed(x) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])


class Causal(nn.Module):
    """Word and position tables, fused projections, causal attention, a head behind the last."""

    def __init__(self, n):
        super().__init__()
        self.n, self.words, self.places = n, nn.Embedding(7, n), nn.Embedding(4, n)
        self.qkv, self.out = nn.Linear(n, 3 * n), nn.Linear(n, n)
        self.up, self.down = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.one, self.two, self.last = nn.LayerNorm(n), nn.LayerNorm(n), nn.LayerNorm(n)
        self.head = nn.Linear(n, 5, bias=False)

    def forward(self, ids):
        batch, length = ids.shape
        h = self.words(ids) + self.places(torch.arange(length))
        parts = self.qkv(self.one(h)).split(self.n, dim=2)
        q, k, v = (p.view(batch, length, self.n // 4, 4).transpose(1, 2) for p in parts)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(a.transpose(1, 2).reshape(batch, length, self.n))
        h = h + self.down(F.gelu(self.up(self.two(h)), approximate="tanh"))
        return self.head(self.last(h))[:, -1]


class ByHandAttention(nn.Module):
    """Attention in plain matrix products."""

    def __init__(self, n):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(3, n, bias=False) for _ in range(3))
        self.head = nn.Linear(n, 1)
        normal(self, 2.0)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, 2)).transpose(1, 2) for p in (self.q, self.k, self.v))
        w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(2), dim=-1)
        h = (w @ v).transpose(1, 2).flatten(2)
        return self.head(torch.tanh(h).mean(dim=1)).squeeze(-1)


def batch_statistics(n):
    net = nn.Sequential(
        nn.Linear(5, n, bias=False), nn.BatchNorm1d(n, track_running_stats=False), nn.ReLU(),
        nn.Linear(n, n, bias=False), nn.BatchNorm1d(n, track_running_stats=False), nn.ReLU(),
        nn.Linear(n, 2),
    )  # fmt: skip
    normal(net, 1.0, 0.5)
    return net


class ConvNeXt(nn.Module):
    """A depthwise convolution, a norm of channels, and a scale of each channel."""

    def __init__(self, n):
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, n, 2, 2), nn.Conv2d(n, n, 3, 1, 1, groups=n)
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.scale, self.head = nn.Parameter(0.5 * torch.ones(n)), nn.Linear(n, 2)

    def forward(self, x):
        h = self.stem(x)
        u = self.norm(self.depthwise(h).permute(0, 2, 3, 1))
        u = self.scale * self.down(F.gelu(self.up(u)))
        h = h + u.permute(0, 3, 1, 2)
        return self.head(h.mean((-2, -1)))


class GatedUnit(nn.Module):
    """Halves of one map, one of which is the gate of the other."""

    def __init__(self, n):
        super().__init__()
        self.read_in, self.both, self.head = (
            nn.Linear(5, n),
            nn.Linear(n, 4 * n),
            nn.Linear(2 * n, 2),
        )
        normal(self, 1.5, 0.2)

    def forward(self, x):
        h = torch.tanh(self.read_in(x))
        a, b = self.both(h).chunk(2, dim=-1)
        return self.head(a * torch.sigmoid(b))


class GRU(nn.Module):
    """A gated recurrent network over steps, with its own gates."""

    def __init__(self, n):
        super().__init__()
        self.n, self.x, self.h = n, nn.Linear(3, 3 * n), nn.Linear(n, 3 * n)
        self.head = nn.Linear(n, 2)
        normal(self, 1.5, 0.2)

    def forward(self, x):
        h = torch.zeros(len(x), self.n, dtype=x.dtype)
        for step in range(x.shape[1]):
            a, b = self.x(x[:, step]).chunk(3, -1), self.h(h).chunk(3, -1)
            reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            h = (1 - update) * torch.tanh(a[2] + reset * b[2]) + update * h
        return self.head(h)


class Siamese(nn.Module):
    """Two inputs of one encoder, compared by their distance and product."""

    def __init__(self, n):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, n), nn.ReLU(), nn.Linear(n, n))
        self.mix, self.head = nn.Linear(2 * n, n), nn.Linear(n, 1)
        normal(self, 1.5, 0.2)

    def forward(self, x):
        a, b = self.encoder(x[:, 0]), self.encoder(x[:, 1])
        return self.head(torch.relu(self.mix(torch.cat([(a - b).abs(), a * b], -1))))


class Excited(nn.Module):
    """Channels that are weighted by a function of their means."""

    def __init__(self, n):
        super().__init__()
        self.conv, self.out = nn.Conv1d(2, n, 3, padding=1), nn.Conv1d(n, n, 3, padding=1)
        self.down, self.up, self.head = nn.Linear(n, n // 2), nn.Linear(n // 2, n), nn.Linear(n, 2)
        normal(self, 2.0, 0.2)

    def forward(self, x):
        h = torch.relu(self.conv(x))
        gate = torch.sigmoid(self.up(torch.relu(self.down(h.mean(-1)))))
        return self.head(torch.amax(self.out(h * gate[..., None]), dim=2))


class Points(nn.Module):
    """A maximum over points, and batches that are joined to them again."""

    def __init__(self, n):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(3, n), nn.GroupNorm(2, n), nn.Linear(2 * n, n)
        self.head = nn.Linear(n, 2)
        normal(self, 2.0, 0.2)

    def forward(self, x):
        h = F.silu(self.norm(self.one(x).transpose(1, 2)).transpose(1, 2))
        top = h.max(dim=1, keepdim=True).values
        return self.head(self.two(torch.cat([h, top.expand_as(h)], -1)).max(1)[0])


class Hourglass(nn.Module):
    """Max pooling, a transposed convolution and a concatenation."""

    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, n, 3, padding=1), nn.Conv1d(n, 2 * n, 3, padding=1)
        self.up, self.c = nn.ConvTranspose1d(2 * n, n, 2, 2), nn.Conv1d(2 * n, n, 3, padding=1)
        self.head = nn.Linear(6 * n, 2)
        normal(self, 2.0, 0.2)
        nn.init.normal_(self.up.weight, 0, (1 / (2 * n)) ** 0.5)

    def forward(self, x):
        a = torch.relu(self.a(x))
        b = self.up(torch.relu(self.b(F.max_pool1d(a, 2))))
        return self.head(torch.relu(self.c(torch.cat([a, b], 1))).flatten(1))


class Llama(nn.Module):
    """RMS norms by hand, rotated heads in groups, a mask, and gates."""

    def __init__(self, n):
        super().__init__()
        self.n, self.words, self.head = n, nn.Embedding(7, n), nn.Linear(n, 3, bias=False)
        self.q, self.out = nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False)
        self.k, self.v = nn.Linear(n, n // 2, bias=False), nn.Linear(n, n // 2, bias=False)
        self.gate, self.up = nn.Linear(n, 2 * n, bias=False), nn.Linear(n, 2 * n, bias=False)
        self.down = nn.Linear(2 * n, n, bias=False)
        self.gains = nn.ParameterList(torch.ones(n) for _ in range(3))
        angles = torch.arange(4.0)[:, None] / 10 ** torch.tensor([0.0, 1.0, 0.0, 1.0])
        self.register_buffer("angles", angles)

    def norm(self, place, x):
        return self.gains[place] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def rotated(self, z):
        one, two = z.chunk(2, dim=-1)
        return z * self.angles.cos() + torch.cat((-two, one), dim=-1) * self.angles.sin()

    def forward(self, ids):
        batch, length = ids.shape
        h = self.words(ids)
        u = self.norm(0, h)
        parts = (p(u).view(batch, length, -1, 4) for p in (self.q, self.k, self.v))
        q, k, v = (part.transpose(1, 2) for part in parts)
        k = self.rotated(k)[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape)
        v = v.repeat_interleave(2, dim=1)
        mask = torch.full((length, length), float("-inf")).triu(1)
        w = torch.softmax(self.rotated(q) @ k.transpose(2, 3) / 2 + mask, -1)
        h = h + self.out((w @ v).transpose(1, 2).reshape(batch, length, self.n))
        u = self.norm(1, h)
        h = h + self.down(F.silu(self.gate(u)) * self.up(u))
        return self.head(self.norm(2, h))[:, -1]


class Bert(nn.Module):
    """A table with a row of padding, which a mask hides, norms behind sums, a pooler of tanh."""

    def __init__(self, n):
        super().__init__()
        self.words, self.places = nn.Embedding(7, n, padding_idx=PADDING), nn.Embedding(4, n)
        self.layer = nn.TransformerEncoderLayer(n, n // 4, 2 * n, batch_first=True)
        self.norm, self.pooler, self.head = nn.LayerNorm(n), nn.Linear(n, n), nn.Linear(n, 2)

    def forward(self, ids):
        h = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        h = self.layer(h, src_key_padding_mask=ids == PADDING)
        return self.head(torch.tanh(self.pooler(h[:, 0])))


class Padded(nn.Module):
    """A row of padding among tokens that are averaged, and is not trained."""

    def __init__(self, n):
        super().__init__()
        self.words, self.hidden = nn.Embedding(7, n, padding_idx=PADDING), nn.Linear(n, n)
        self.head = nn.Linear(n, 2)

    def forward(self, ids):
        return self.head(torch.relu(self.hidden(self.words(ids))).mean(1))


class Layers(nn.Module):
    """Two of PyTorch's recurrent layers, and a cell on the last of them."""

    def __init__(self, n):
        super().__init__()
        self.layers, self.cell = nn.LSTM(3, n, 2, batch_first=True), nn.GRUCell(n, n)
        self.head = nn.Linear(n, 2)
        for name, p in self.named_parameters():
            nn.init.normal_(p, 0, 0.2 if "bias" in name else (2 / p.shape[1]) ** 0.5)

    def forward(self, x):
        out, (h, _) = self.layers(x)
        return self.head(self.cell(out[:, 1], h[-1]))


MODELS = {
    "max pooling": (max_pooling, IMAGES),
    "ResNet": (res_net, IMAGES),
    "encoder": (lambda n: Encoder(n), TOKENS),
    "causal": (lambda n: Causal(n), WORDS),
    "attention by hand": (lambda n: ByHandAttention(n), TOKENS),
    "batch statistics": (batch_statistics, BATCH),
    "ConvNeXt": (lambda n: ConvNeXt(n), IMAGES),
    "gated unit": (lambda n: GatedUnit(n), VECTORS),
    "GRU": (lambda n: GRU(n), TOKENS),
    "siamese": (lambda n: Siamese(n), PAIRS),
    "excited": (lambda n: Excited(n), ROWS),
    "points": (lambda n: Points(n), TOKENS),
    "hourglass": (lambda n: Hourglass(n), ROWS),
    "Llama": (lambda n: Llama(n), WORDS),
    "BERT": (lambda n: Bert(n), WORDS),
    "padding": (lambda n: Padded(n), WORDS),
    "recurrent layers": (lambda n: Layers(n), TOKENS),
}
