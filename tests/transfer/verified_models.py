"""Models that plans are right for, and ordinary ones that they are wrong for, with their inputs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


def gauss(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


ROWS, SETS, IMAGES = gauss(16, 8), gauss(4, 12, 6), gauss(8, 3, 16, 16)
PAIR = ROWS[:, :6], ROWS[:, :6].flip(0)
IDS = torch.randint(0, 32, (8, 12), generator=torch.Generator().manual_seed(0))


def tower(width):
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width))


class Towers(nn.Module):
    def __init__(self, width, divided=False):
        super().__init__()
        self.a, self.b, self.by = tower(width), tower(width), width**0.5 if divided else 1.0

    def forward(self, x, y):
        return (self.a(x) * self.b(y)).sum(-1) / self.by


class Biaffine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(6, width), nn.Linear(6, width)
        self.u = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x, y):
        return ((torch.relu(self.a(x)) @ self.u) * torch.relu(self.b(y))).sum(-1)


class Bilinear(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.o = nn.Linear(8, width), nn.Linear(8, width), nn.Linear(width, 3)
        self.w = nn.Bilinear(width, width, width)

    def forward(self, x):
        return self.o(torch.tanh(self.w(torch.tanh(self.a(x)), torch.tanh(self.b(x)))))


class Hypernetwork(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.h = nn.Linear(8, width), nn.Linear(4, width * width)
        self.o, self.width = nn.Linear(width, 3), width

    def forward(self, x):
        matrix = self.h(x[:, :4]).view(-1, self.width, self.width) / self.width**0.5
        return self.o(torch.relu(matrix @ torch.relu(self.i(x)).unsqueeze(-1)).squeeze(-1))


def normed(width):
    return nn.Sequential(
        weight_norm(nn.Linear(8, width)), nn.ReLU(), weight_norm(nn.Linear(width, width)),
        nn.ReLU(), weight_norm(nn.Linear(width, 3)),
    )  # fmt: skip


class ScaledEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.e, self.h, self.o = (
            nn.Embedding(32, width),
            nn.Linear(width, width),
            nn.Linear(width, 32),
        )
        self.width = width
        nn.init.normal_(self.e.weight, std=width**-0.5)

    def forward(self, ids):
        return self.o(torch.relu(self.h(self.e(ids) * self.width**0.5)))


class LearnedQueries(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.o = nn.Linear(6, width), nn.Linear(width, 3)
        self.queries = nn.Parameter(torch.randn(5, width))
        self.x = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        q, k = self.queries.expand(len(x), -1, -1), self.i(x)
        return self.o(q + self.x(q, k, k, need_weights=False)[0])


class Spline(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.c = nn.Parameter(0.1 * torch.randn(out, into, 5))

    def forward(self, x):
        basis = torch.exp(-4 * (torch.tanh(x).unsqueeze(-1) - torch.linspace(-1, 1, 5)) ** 2)
        return torch.einsum("bik,oik->bo", basis, self.c)


def splines(width):
    return nn.Sequential(Spline(8, width), Spline(width, width), Spline(width, 3))


class Looped(nn.Module):
    """One block, applied again and again."""

    def __init__(self, depth, width=64):
        super().__init__()
        self.depth, self.i, self.o = depth, nn.Linear(8, width), nn.Linear(width, 3)
        self.n, self.u = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.d = nn.Linear(2 * width, width)

    def forward(self, x):
        x = self.i(x)
        for _ in range(self.depth):
            x = x + self.d(torch.relu(self.u(self.n(x))))
        return self.o(x)


# name → builder, example, what is wrong first: the kind of effect, and a part of its place.
FAULTS = {
    "towers": (Towers, PAIR, "output", ""),
    "divided towers": (lambda width: Towers(width, True), PAIR, "output", ""),
    "biaffine": (Biaffine, PAIR, "output", ""),
    "bilinear": (Bilinear, (ROWS,), "start", "output of w"),
    "hypernetwork": (Hypernetwork, (ROWS,), "start", "output of h"),
    "weight norm": (normed, (ROWS,), "output", ""),
    "scaled embedding": (ScaledEmbedding, (IDS,), "start", "input of h"),
    "learned queries": (LearnedQueries, (SETS,), "logits", "x"),
    "splines": (splines, (ROWS,), "start", "output of 1"),
}


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
}
