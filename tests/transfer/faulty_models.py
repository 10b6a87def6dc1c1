"""Ordinary models that plans are wrong for, with their inputs and what is wrong first."""

import torch
from tests.transfer.verified_models import IDS, PAIR, ROWS, SETS
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


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


class Spline(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.c = nn.Parameter(0.1 * torch.randn(out, into, 5))

    def forward(self, x):
        basis = torch.exp(-4 * (torch.tanh(x).unsqueeze(-1) - torch.linspace(-1, 1, 5)) ** 2)
        return torch.einsum("bik,oik->bo", basis, self.c)


def splines(width):
    return nn.Sequential(Spline(8, width), Spline(width, width), Spline(width, 3))


class InBatch(nn.Module):
    """Two towers whose outputs are compared with all of the batch."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b = tower(width), tower(width)

    def forward(self, x, y):
        return self.a(x) @ self.b(y).T


class Factorisation(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.u, self.v = nn.Embedding(32, width), nn.Embedding(32, width)

    def forward(self, i, j):
        return (self.u(i) * self.v(j)).sum(-1)


class Prototypes(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.h, self.c = tower(width), nn.Parameter(torch.randn(5, width))

    def forward(self, x):
        return -(self.h(x)[:, None] - self.c).square().sum(-1)


class GraphAutoencoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.h = nn.Linear(8, width), nn.Linear(width, width)

    def forward(self, x):
        z = self.h(torch.relu(self.i(x)))
        return z @ z.T


class DeepFM(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.e, self.w = nn.Embedding(32, width), nn.Embedding(32, 1)
        self.m = nn.Sequential(nn.Linear(12 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ids):
        v = self.e(ids)
        pairs = (v.sum(1) ** 2 - (v**2).sum(1)).sum(-1) / 2
        return self.w(ids).sum((1, 2)) + pairs + self.m(v.flatten(1)).squeeze(-1)


class OuterProductMean(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.a, self.b = nn.Linear(6, width), *(nn.Linear(width, width // 4) for _ in "ab")
        self.p, self.o = nn.Linear((width // 4) ** 2, width), nn.Linear(width, 3)

    def forward(self, x):
        h = torch.relu(self.i(x))
        pairs = torch.einsum("bsi,bsj->bij", self.a(h), self.b(h)) / x.shape[1]
        return self.o(torch.relu(self.p(pairs.flatten(1))))


class BilinearReadOut(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(8, width), nn.Linear(8, width)
        self.w = nn.Bilinear(width, width, 3)

    def forward(self, x):
        return self.w(torch.tanh(self.a(x)), torch.tanh(self.b(x)))


def normed_read_out(width):
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        weight_norm(nn.Linear(width, 3)),
    )  # fmt: skip


def spectral(width):
    return nn.Sequential(
        spectral_norm(nn.Linear(8, width)), nn.ReLU(), spectral_norm(nn.Linear(width, width)),
        nn.ReLU(), spectral_norm(nn.Linear(width, 3)),
    )  # fmt: skip


class CrossNetwork(nn.Module):
    """x₀ (w·x) + x: few numbers decide, so that four networks of each size do not tell."""

    def __init__(self, width):
        super().__init__()
        self.e, self.o = nn.Embedding(32, width), nn.Linear(width, 1)
        self.w = nn.ParameterList(torch.randn(width) * width**-0.5 for _ in range(2))

    def forward(self, ids):
        first = x = self.e(ids).mean(1)
        for w in self.w:
            x = first * (x @ w).unsqueeze(1) + x
        return self.o(x)


class Tutorial(nn.Module):
    """PyTorch's language model: post-norm blocks behind an embedding times √d."""

    def __init__(self, width):
        super().__init__()
        self.e, self.width = nn.Embedding(32, width), width
        nn.init.normal_(self.e.weight, std=width**-0.5)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.t = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.o = nn.Linear(width, 32)

    def forward(self, ids):
        return self.o(self.t(self.e(ids) * self.width**0.5))


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
    "in batch": (InBatch, PAIR, "start", ""),
    "factorisation": (Factorisation, (IDS[:, 0], IDS[:, 1]), "output", ""),
    "prototypes": (Prototypes, PAIR[:1], "start", ""),
    "graph autoencoder": (GraphAutoencoder, (ROWS,), "start", ""),
    "deep factorisation": (DeepFM, (IDS,), "start", ""),
    "outer product mean": (OuterProductMean, (SETS,), "start", "output of p"),
    "bilinear read-out": (BilinearReadOut, (ROWS,), "output", "a.weight"),
    "weight norm of the read-out": (normed_read_out, (ROWS,), "output", ""),
    "cross network": (CrossNetwork, (IDS,), "output", ""),
    "tutorial": (Tutorial, (IDS,), "start", "input of t.layers.0.self_attn"),
    "splines": (splines, (ROWS,), "start", "output of 1"),
}
