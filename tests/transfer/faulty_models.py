"""Ordinary models that plans are wrong for, with their inputs and what is wrong first."""

import torch
from tests.transfer.read_models import tower
from tests.transfer.verified_models import PAIR, ROWS
from torch import nn
from torch.nn import functional as F


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


class Convolved(nn.Module):
    """A graph convolution whose features have length 1."""

    def __init__(self, into, out):
        super().__init__()
        self.a, self.b = nn.Linear(into, out), nn.Linear(into, out, bias=False)

    def forward(self, x, edges):
        return F.normalize(torch.relu(self.a(x) + self.b(edges @ x)), dim=-1)


class GraphSAGE(nn.Module):
    """Two of them, with a read-out that has a bias."""

    def __init__(self, width):
        super().__init__()
        self.c = nn.ModuleList([Convolved(8, width), Convolved(width, width)])
        self.o = nn.Linear(width, 3)
        edges = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) < 0.3
        self.register_buffer("edges", edges / edges.sum(1, keepdim=True).clamp(min=1))

    def forward(self, x):
        for layer in self.c:
            x = layer(x, self.edges)
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
    "unit rows of graphs": (GraphSAGE, (ROWS,), "tensor", "c.1.a.weight"),
}
