"""Ordinary models whose sums over the width are seen in the recorded forward pass alone."""

import torch
from tests.transfer.verified_models import IDS, IMAGES, PAIR, ROWS, SETS
from torch import nn
from torch.nn import functional as F


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


class Noisy(nn.Module):
    """A layer whose matrix is computed from two parameters."""

    def __init__(self, into, out):
        super().__init__()
        self.mu = nn.Parameter(torch.randn(out, into) * into**-0.5)
        self.sigma = nn.Parameter(torch.full((out, into), 0.5 * into**-0.5))
        self.register_buffer("noise", torch.randn(out, into))

    def forward(self, x):
        return F.linear(x, self.mu + self.sigma * self.noise)


def noisy(width):
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), Noisy(width, width), nn.ReLU(), Noisy(width, 3)
    )


class Mixture(nn.Module):
    """A mean of several models' outputs, with weights that a softmax makes."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3)) for _ in range(4)
        )

    def forward(self, x):
        made = torch.stack([expert(x) for expert in self.experts], 1)
        return torch.einsum("beo,be->bo", made, self.gate(x).softmax(-1))


def bottleneck(width):
    """A classifier with a layer of fixed size behind the features."""
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 3)
    )


class Coupling(nn.Module):
    """Affine couplings, a normalising flow, of two networks."""

    def __init__(self, width):
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 8)) for _ in range(2)
        )

    def forward(self, x):
        a, b = x.chunk(2, -1)
        for net in self.nets:
            scale, shift = net(a).chunk(2, -1)
            a, b = b * scale.tanh().exp() + shift, a
        return torch.cat([a, b], -1)


class Memory(nn.Module):
    """Attention to a fixed number of learned keys and values."""

    def __init__(self, width):
        super().__init__()
        self.i, self.o = nn.Linear(8, width), nn.Linear(width, 3)
        self.k, self.v = (nn.Parameter(torch.randn(10, width)) for _ in "kv")

    def forward(self, x):
        h = self.i(x)
        return self.o((h @ self.k.T / h.shape[-1] ** 0.5).softmax(-1) @ self.v + h)


class Perceiver(nn.Module):
    """Queries of normalised latents; keys and values from one layer."""

    def __init__(self, width):
        super().__init__()
        self.latents, self.n = nn.Parameter(torch.randn(4, width)), nn.LayerNorm(width)
        self.i, self.kv = nn.Linear(6, width), nn.Linear(width, 2 * width)
        self.q, self.p, self.o = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, 3),
        )

    def forward(self, x):
        latents = self.latents.expand(len(x), -1, -1)
        k, v = self.kv(self.i(x)).chunk(2, -1)
        a = F.scaled_dot_product_attention(self.q(self.n(latents)), k, v)
        return self.o((latents + self.p(a)).mean(1))


class TokenMixer(nn.Module):
    """Blocks whose matrices mix the tokens of every channel."""

    def __init__(self, width):
        super().__init__()
        self.s, self.n, self.o = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width), nn.Linear(width, 3)
        self.t = nn.Sequential(nn.Linear(16, width // 2), nn.GELU(), nn.Linear(width // 2, 16))

    def forward(self, x):
        h = self.s(x).flatten(2).mT
        return self.o((h + self.t(self.n(h).mT).mT).mean(1))


def grouped(width):
    """A bias in front of a normalisation, which has no effect."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1, groups=4),
        nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width, 3),
    )  # fmt: skip


class Growing(nn.Module):
    """A layer whose number of outputs grows less than its number of inputs."""

    def __init__(self, width):
        super().__init__()
        self.i, self.x = nn.Linear(8, width), nn.Linear(width, 8 + width // 8)
        self.d, self.o = nn.Linear(8 + width // 8, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.o(torch.relu(self.d(torch.relu(self.x(torch.relu(self.i(x)))))))


READ = {
    "towers": (Towers, PAIR),
    "divided towers": (lambda width: Towers(width, True), PAIR),
    "biaffine": (Biaffine, PAIR),
    "in batch": (InBatch, PAIR),
    "factorisation": (Factorisation, (IDS[:, 0], IDS[:, 1])),
    "prototypes": (Prototypes, PAIR[:1]),
    "graph autoencoder": (GraphAutoencoder, (ROWS,)),
    "bilinear": (Bilinear, (ROWS,)),
    "bilinear read-out": (BilinearReadOut, (ROWS,)),
    "outer product mean": (OuterProductMean, (SETS,)),
    "splines": (splines, (ROWS,)),
    "scaled embedding": (ScaledEmbedding, (IDS,)),
    "tutorial": (Tutorial, (IDS,)),
    "noisy": (noisy, (ROWS,)),
    "mixture": (Mixture, (ROWS,)),
    "bottleneck": (bottleneck, (ROWS,)),
    "coupling": (Coupling, (ROWS,)),
    "memory": (Memory, (ROWS,)),
    "perceiver": (Perceiver, (SETS,)),
    "token mixer": (TokenMixer, (IMAGES,)),
    "grouped": (grouped, (IMAGES,)),
    "growing": (Growing, (ROWS,)),
}
