"""Models that plans were wrong for, or whose repairs called themselves verified and were wrong.

Each has what is to come of it: a plan that is right, a plan that a repair makes right, or a refusal
with what was measured.
"""

import warnings

import torch
from tests.transfer.verified_models import IDS, ROWS, SETS
from torch import nn
from torch.nn import functional as F
from torch.nn import utils
from torch.nn.utils import parametrizations


def normed(width, norm=parametrizations.weight_norm, all_layers=True):
    """An MLP whose weights, or those of the read-out, are read through a norm."""
    hidden = norm if all_layers else lambda layer: layer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the older way
        return nn.Sequential(
            hidden(nn.Linear(8, width)), nn.ReLU(), hidden(nn.Linear(width, width)), nn.ReLU(),
            norm(nn.Linear(width, 3)),
        )  # fmt: skip


def ways(old, new, **options):
    """The two ways in which PyTorch has a norm of weights."""
    return {
        "by a hook": (lambda width: normed(width, old, **options), (ROWS,)),
        "by a parametrization": (lambda width: normed(width, new, **options), (ROWS,)),
    }


WEIGHT = ways(utils.weight_norm, parametrizations.weight_norm)
READ_OUT = ways(utils.weight_norm, parametrizations.weight_norm, all_layers=False)
SPECTRAL = ways(utils.spectral_norm, parametrizations.spectral_norm)


class DeepFM(nn.Module):
    """A factorisation machine beside a perceptron, which read the same embeddings."""

    def __init__(self, width):
        super().__init__()
        self.e, self.w = nn.Embedding(32, width), nn.Embedding(32, 1)
        self.m = nn.Sequential(nn.Linear(12 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def pairs(self, v):
        return (v.sum(1) ** 2 - (v**2).sum(1)).sum(-1) / 2

    def forward(self, ids):
        v = self.e(ids)
        return self.w(ids).sum((1, 2)) + self.pairs(v) + self.m(v.flatten(1)).squeeze(-1)


class Saturated(DeepFM):
    """One in which more than layers read the embeddings, so that no weight has the factor."""

    def forward(self, ids):
        v = self.e(ids)
        return self.pairs(v) + self.m(torch.tanh(v).flatten(1)).squeeze(-1)


class Chebyshev(nn.Module):
    def __init__(self, into, out, degree=4):
        super().__init__()
        self.degree = degree
        self.c = nn.Parameter(torch.randn(into, out, degree + 1) / (into * (degree + 1)))

    def forward(self, x):
        x = torch.tanh(x)
        powers = [torch.ones_like(x), x]
        for _ in range(2, self.degree + 1):
            powers.append(2 * x * powers[-1] - powers[-2])
        return torch.einsum("bid,iod->bo", torch.stack(powers, -1), self.c)


def chebyshev(width):
    return nn.Sequential(Chebyshev(8, width), Chebyshev(width, width), Chebyshev(width, 3))


def scalar(width, outputs=1):
    return nn.Sequential(
        nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, outputs),
    )  # fmt: skip


class Hamiltonian(nn.Module):
    """The flow of an energy: its gradient is the forward pass."""

    def __init__(self, width):
        super().__init__()
        self.h = scalar(width)

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(self.h(x).sum(), x, create_graph=True)
        q, p = slope.chunk(2, -1)
        return torch.cat([p, -q], -1)


class Forces(nn.Module):
    """Forces, with a graph in training only."""

    def __init__(self, width):
        super().__init__()
        self.h = scalar(width)

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            energy = self.h(x).sum()
            return -torch.autograd.grad(energy, x, create_graph=self.training)[0]


class TiedAutoencoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.e, self.b = nn.Linear(8, width), nn.Parameter(torch.ones(8))

    def forward(self, x):
        return F.linear(torch.relu(self.e(x)), self.e.weight.T, self.b)


class DeepAutoencoder(nn.Module):
    """Two tied layers of parameters alone."""

    def __init__(self, width):
        super().__init__()
        self.a = nn.Parameter(torch.randn(width, 8) * 8**-0.5)
        self.b = nn.Parameter(torch.randn(width, width) * width**-0.5)

    def forward(self, x):
        h = torch.tanh(torch.tanh(x @ self.a.T) @ self.b.T)
        return torch.tanh(h @ self.b) @ self.a


class Memory(nn.Module):
    """softmax(h·Mᵀ/√d)·M, with entries of M of order one, or rows of length one."""

    def __init__(self, width, rows=1.0):
        super().__init__()
        self.i, self.o = nn.Linear(8, width), nn.Linear(width, 3)
        self.m = nn.Parameter(torch.randn(16, width) * (1.0 if rows == 1.0 else width**-0.5))

    def read(self, h):
        return (h @ self.m.T / h.shape[-1] ** 0.5).softmax(-1) @ self.m

    def forward(self, x):
        return self.o(self.read(self.i(x)))


class ResidualMemory(Memory):
    def forward(self, x):
        h = self.i(x)
        return self.o(h + self.read(h))


class GatedAttention(nn.Module):
    """A gated attention unit, whose logits are squares of sums over a growing axis."""

    def __init__(self, width):
        super().__init__()
        self.n, self.z = nn.LayerNorm(width), nn.Linear(width, width // 2)
        self.uv, self.o = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.g = nn.Parameter(torch.ones(2, width // 2))

    def forward(self, x):
        h = self.n(x)
        u, v = F.silu(self.uv(h)).chunk(2, -1)
        q, k = (F.silu(self.z(h)) * gain for gain in self.g)
        return x + self.o(u * (torch.relu(q @ k.mT / q.shape[-2]) ** 2 @ v))


class GatedAttentions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i, self.o = nn.Linear(6, width), nn.Linear(width, 3)
        self.b = nn.Sequential(*[GatedAttention(width) for _ in range(2)])

    def forward(self, x):
        return self.o(self.b(self.i(x)).mean(1))


class CrossNetwork(nn.Module):
    """x₀ (w·x) + x: the sums w·x move by n^½ in what the output shows, and by n in themselves."""

    def __init__(self, width):
        super().__init__()
        self.e, self.o = nn.Embedding(32, width), nn.Linear(width, 1)
        self.w = nn.ParameterList(torch.randn(width) * width**-0.5 for _ in range(2))

    def forward(self, ids):
        first = x = self.e(ids).mean(1)
        for w in self.w:
            x = first * (x @ w).unsqueeze(1) + x
        return self.o(x)


MADE_RIGHT = {
    **{f"weight norm {way}": case for way, case in WEIGHT.items()},
    **{f"weight norm of the read-out {way}": case for way, case in READ_OUT.items()},
    **{f"spectral norm {way}": case for way, case in SPECTRAL.items()},
    "deep factorisation": (DeepFM, (IDS,)),
    "chebyshev": (chebyshev, (ROWS,)),
    "hamiltonian": (Hamiltonian, (ROWS[:, :4],)),
    "forces": (Forces, (ROWS[:, :4],)),
    "tied autoencoder": (TiedAutoencoder, (ROWS,)),
    "deep autoencoder": (DeepAutoencoder, (ROWS,)),
}
REPAIRED = {"memory of unit rows": (lambda width: Memory(width, rows=0.0), (ROWS,))}
REFUSED = {
    "memory": (Memory, (ROWS,)),
    "residual memory": (ResidualMemory, (ROWS,)),
    "gated attention": (GatedAttentions, (SETS,)),
    "saturated factorisation": (Saturated, (IDS,)),
    "cross network": (CrossNetwork, (IDS,)),
}
