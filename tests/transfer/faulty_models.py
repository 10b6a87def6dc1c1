"""Ordinary models that plans are wrong for, with their inputs and what is wrong first."""

import torch
from tests.transfer.read_models import tower
from tests.transfer.verified_models import IDS, PAIR, ROWS
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


class Distance(nn.Module):
    """Distances of two towers, which grow as √n."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b = tower(width), tower(width)

    def forward(self, x, y):
        return (self.a(x) - self.b(y)).norm(dim=-1)


class UnitRows(nn.Module):
    """A read-out whose rows are normalised."""

    def __init__(self, width):
        super().__init__()
        self.h, self.o = tower(width), nn.Linear(width, 5, bias=False)

    def forward(self, x):
        return F.linear(torch.relu(self.h(x)), F.normalize(self.o.weight, dim=1))


class UnitFeatures(nn.Module):
    """Features of length 1, whose entries fade as n^(−½)."""

    def __init__(self, width):
        super().__init__()
        self.h, self.o = tower(width), nn.Linear(width, 3)

    def forward(self, x):
        return self.o(F.normalize(torch.relu(self.h(x)), dim=-1))


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


class DeepFM(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.e, self.w = nn.Embedding(32, width), nn.Embedding(32, 1)
        self.m = nn.Sequential(nn.Linear(12 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ids):
        v = self.e(ids)
        pairs = (v.sum(1) ** 2 - (v**2).sum(1)).sum(-1) / 2
        return self.w(ids).sum((1, 2)) + pairs + self.m(v.flatten(1)).squeeze(-1)


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


class Looped(nn.Module):
    """One block, applied again and again."""

    def __init__(self, depth, listed=False, width=64):
        super().__init__()
        self.depth, self.i, self.o = depth, nn.Linear(8, width), nn.Linear(width, 3)
        block = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        if listed:
            self.blocks = nn.ModuleList([block] * depth)
        else:
            self.block = block

    def forward(self, x):
        x = self.i(x)
        for i in range(self.depth):
            x = x + (self.blocks[i] if hasattr(self, "blocks") else self.block)(x)
        return self.o(x)


# name → builder, example, what is wrong first: the kind of effect, and a part of its place.
FAULTS = {
    "distance": (Distance, PAIR, "start", ""),
    "unit rows": (UnitRows, PAIR[:1], "output", ""),
    "unit features": (UnitFeatures, PAIR[:1], "output", ""),
    "hypernetwork": (Hypernetwork, (ROWS,), "start", "output of h"),
    "weight norm": (normed, (ROWS,), "output", ""),
    "deep factorisation": (DeepFM, (IDS,), "start", ""),
    "weight norm of the read-out": (normed_read_out, (ROWS,), "output", ""),
    "cross network": (CrossNetwork, (IDS,), "output", ""),
}
