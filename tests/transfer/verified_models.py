"""Models that plans are right for, with their inputs."""

import torch
from torch import nn
from torch.nn import functional as F


def gauss(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


ROWS, SETS, IMAGES = gauss(16, 8), gauss(4, 12, 6), gauss(8, 3, 16, 16)
PAIR = ROWS[:, :6], ROWS[:, :6].flip(0)
IDS = torch.randint(0, 32, (8, 12), generator=torch.Generator().manual_seed(0))


def mlp(width):
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    )


class Block(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.causal, self.n1, self.n2 = causal, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.u, self.d = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.qkv(self.n1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in parts)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return x + self.d(F.gelu(self.u(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, width, depth=2, tied=False):
        super().__init__()
        self.e, self.p = nn.Embedding(32, width), nn.Embedding(16, width)
        self.b = nn.Sequential(*[Block(width, True) for _ in range(depth)])
        self.n, self.o = nn.LayerNorm(width), nn.Linear(width, 32, bias=False)
        if tied:
            self.o.weight = self.e.weight
            nn.init.normal_(self.e.weight, std=0.02)

    def forward(self, ids):
        return self.o(self.n(self.b(self.e(ids) + self.p(torch.arange(ids.shape[1])))))


class ViT(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.s, self.p = nn.Conv2d(3, width, 4, 4), nn.Parameter(0.02 * torch.randn(16, width))
        self.b = nn.Sequential(*[Block(width, False) for _ in range(2)])
        self.n, self.o = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        return self.o(self.n(self.b(self.s(x).flatten(2).mT + self.p)).mean(1))


class ConvBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.f(x))


def resnet(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        ConvBlock(width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip


def cnn(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


class ResidualMLP(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.i, self.o = nn.Linear(8, width), nn.Linear(width, 3)
        self.b = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(depth)
        )  # fmt: skip

    def forward(self, x):
        x = self.i(x)
        for block in self.b:
            x = x + block(x)
        return self.o(x)


class Recurrent(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        self.r, self.o = kind(6, width, batch_first=True), nn.Linear(width, 3)

    def forward(self, x):
        return self.o(self.r(x)[0])


def encoder(width):
    layer = nn.TransformerEncoderLayer(
        width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
    )
    return nn.Sequential(
        nn.Linear(6, width), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.LayerNorm(width), nn.Linear(width, 3),
    )  # fmt: skip


class Modulated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.g = nn.Linear(8, width), nn.Linear(8, 2 * width)
        self.h, self.o = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x):
        gain, shift = self.g(x).chunk(2, -1)
        return self.o(torch.relu(self.h(torch.relu(self.i(x)) * (1 + gain) + shift)))


class Graph(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.a, self.o = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 3)
        edges = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) < 0.3
        self.register_buffer("edges", edges.float() / 5)

    def forward(self, x):
        return self.o(torch.relu(self.a(self.edges @ torch.relu(self.i(x)))))


class LearnedQueries(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.o = nn.Linear(6, width), nn.Linear(width, 3)
        self.queries = nn.Parameter(torch.randn(5, width))
        self.x = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        q, k = self.queries.expand(len(x), -1, -1), self.i(x)
        return self.o(q + self.x(q, k, k, need_weights=False)[0])


class Latents(nn.Module):
    """Attention to normalised latents, whose weights are needed."""

    def __init__(self, width):
        super().__init__()
        self.i, self.n, self.o = nn.Linear(6, width), nn.LayerNorm(width), nn.Linear(width, 3)
        self.latents = nn.Parameter(torch.randn(5, 1, width))
        self.x = nn.MultiheadAttention(width, 4)

    def forward(self, x):
        k, q = self.i(x).transpose(0, 1), self.n(self.latents).repeat(1, len(x), 1)
        return self.o(self.x(q, k, k)[0].mean(0))


class Pooled(nn.Module):
    """Pooling by attention with a learned query."""

    def __init__(self, width):
        super().__init__()
        self.i, self.k, self.v = nn.Linear(6, width), *(nn.Linear(width, width) for _ in "kv")
        self.q, self.o = nn.Parameter(torch.randn(1, width)), nn.Linear(width, 3)

    def forward(self, x):
        h, q = self.i(x), self.q.expand(len(x), -1, -1)
        return self.o(F.scaled_dot_product_attention(q, self.k(h), self.v(h)).squeeze(1))


RIGHT = {
    "mlp": (mlp, (ROWS,)),
    "gpt": (GPT, (IDS,)),
    "tied gpt": (lambda width: GPT(width, tied=True), (IDS,)),
    "vit": (ViT, (IMAGES,)),
    "resnet": (resnet, (IMAGES,)),
    "cnn": (cnn, (IMAGES,)),
    "residual mlp": (ResidualMLP, (ROWS,)),
    "lstm": (lambda width: Recurrent(width, nn.LSTM), (SETS,)),
    "gru": (lambda width: Recurrent(width, nn.GRU), (SETS,)),
    "encoder": (encoder, (SETS,)),
    "modulated": (Modulated, (ROWS,)),
    "graph": (Graph, (ROWS,)),
    "learned queries": (LearnedQueries, (SETS,)),
    "latents": (Latents, (SETS,)),
    "pooled": (Pooled, (SETS,)),
}
