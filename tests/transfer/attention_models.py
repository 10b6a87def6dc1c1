"""Attentions and memories whose scores no softmax reads, with heads that grow in size."""

import torch
from tests.transfer.verified_models import SETS
from torch import nn
from torch.nn import functional as F


def sigmoid(z, v):
    return torch.sigmoid(z - 2.0) @ v


def rectified(z, v):
    return torch.relu(z) / z.shape[-1] @ v


def by_hand(z, v):
    e = torch.exp(z - z.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


def sparsemax(z, v):
    """Entmax at α = 2: the nearest point of the simplex."""
    sorted_z = z.sort(-1, descending=True).values
    number = torch.arange(1, z.shape[-1] + 1)
    sums = sorted_z.cumsum(-1) - 1
    size = (number * sorted_z > sums).sum(-1, keepdim=True)
    return torch.relu(z - sums.gather(-1, size - 1) / size) @ v


def retention(z, v):
    t = torch.arange(z.shape[-1])
    distance = (t[:, None] - t[None]).float()
    y = torch.where(distance >= 0, z * 0.9**distance, 0.0) @ v
    return F.layer_norm(y, y.shape[-1:])  # the group norm of each head


class Scores(nn.Module):
    """Attention by a function of q·k/√d and v."""

    def __init__(self, width, weigh, heads=2):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.heads, self.weigh = heads, weigh

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        self.z = q @ k.mT / q.shape[-1] ** 0.5
        return self.o(self.weigh(self.z, v).transpose(1, 2).flatten(2))


class Linear(Scores):
    """Linear attention with the features elu + 1, normalised by hand."""

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        q, k = F.elu(q) + 1, F.elu(k) + 1
        self.z = q @ k.mT / q.shape[-1] ** 0.5
        y = self.weigh(q, k, v)
        return self.o(y.transpose(1, 2).flatten(2))


def in_pairs(q, k, v):
    z = q @ k.mT / q.shape[-1] ** 0.5
    return z / z.sum(-1, keepdim=True) @ v


def by_memory(q, k, v):
    y = q @ (k.mT @ v)
    return y / (q @ k.sum(-2).unsqueeze(-1) + 1e-6)


def by_einsum(q, k, v):
    memory = torch.einsum("bhtd,bhtm->bhdm", k, v)
    z = 1 / (torch.einsum("bhtd,bhd->bht", q, k.sum(2)) + 1e-6)
    return torch.einsum("bhtd,bhdm,bht->bhtm", q, memory, z)


class Unnormalised(Scores):
    """Linear attention without features and normalisation: q (kᵀ v)."""

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        self.z = q @ k.mT / q.shape[-1] ** 0.5
        y = q @ (k.mT @ v) / q.shape[-1] ** 0.5 / q.shape[-2]
        return self.o(y.transpose(1, 2).flatten(2))


class Memory(Scores):
    """The matrix memory of mLSTM, in parallel over the tokens."""

    def __init__(self, width, heads=2, steps=False):
        super().__init__(width, None, heads)
        self.i, self.f, self.steps = nn.Linear(width, heads), nn.Linear(width, heads), steps

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        i, f = self.i(x).transpose(1, 2), F.logsigmoid(self.f(x)).transpose(1, 2)
        self.z = q @ k.mT / q.shape[-1] ** 0.5
        run = self.run_steps if self.steps else self.run_parallel
        return self.o(run(q, k, v, i, f).transpose(1, 2).flatten(2))

    def run_parallel(self, q, k, v, i, f):
        total = f.cumsum(-1)
        gates = total.unsqueeze(-1) - total.unsqueeze(-2) + i.unsqueeze(-2)
        later = torch.ones(gates.shape[-2:], dtype=torch.bool).triu(1)
        gates = gates.masked_fill(later, -torch.inf)
        largest = gates.amax(-1, keepdim=True)
        c = q @ (k / k.shape[-1] ** 0.5).mT * torch.exp(gates - largest)
        return c / torch.maximum(c.sum(-1, keepdim=True).abs(), torch.exp(-largest)) @ v

    def run_steps(self, q, k, v, i, f):
        k = k / k.shape[-1] ** 0.5
        memory, sums, outputs = 0.0, 0.0, []
        for t in range(q.shape[2]):
            keep, add = f[:, :, t].exp(), i[:, :, t].exp()
            memory = keep[..., None, None] * memory + add[..., None, None] * (
                v[:, :, t, :, None] * k[:, :, t, None, :]
            )
            sums = keep[..., None] * sums + add[..., None] * k[:, :, t]
            read = (memory @ q[:, :, t, :, None]).squeeze(-1)
            size = (sums * q[:, :, t]).sum(-1, keepdim=True).abs().clamp(min=1.0)
            outputs.append(read / size)
        return torch.stack(outputs, 2)


class Model(nn.Module):
    """Two pre-norm blocks of an attention, and a perceptron."""

    def __init__(self, width, attention, depth=2):
        super().__init__()
        self.i, self.n, self.out = nn.Linear(6, width), nn.LayerNorm(width), nn.Linear(width, 3)
        self.a = nn.ModuleList(attention(width) for _ in range(depth))
        self.n1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x):
        x = self.i(x)
        for norm, a in zip(self.n1, self.a, strict=True):
            x = x + a(norm(x))
        return self.out(self.n(x).mean(1))


def of_scores(weigh):
    return lambda width: Model(width, lambda n: Scores(n, weigh))


ATTENTIONS = {
    "softmax": of_scores(lambda z, v: z.softmax(-1) @ v),
    "sigmoid": of_scores(sigmoid),
    "relu": of_scores(rectified),
    "by hand": of_scores(by_hand),
    "sparsemax": of_scores(sparsemax),
    "retention": of_scores(retention),
    "linear": lambda width: Model(width, lambda n: Linear(n, in_pairs)),
    "linear, memory": lambda width: Model(width, lambda n: Linear(n, by_memory)),
    "linear, einsum": lambda width: Model(width, lambda n: Linear(n, by_einsum)),
    "unnormalised": lambda width: Model(width, lambda n: Unnormalised(n, None)),
    "mlstm": lambda width: Model(width, Memory),
    "mlstm, steps": lambda width: Model(width, lambda n: Memory(n, steps=True)),
}
EXAMPLE = (SETS,)


class Differential(Scores):
    """Differential attention: λ is a number made of two vectors of growing size."""

    def __init__(self, width, heads=2):
        super().__init__(width, None, heads)
        self.lambda_q, self.lambda_k = (
            nn.Parameter(0.1 * torch.randn(width // heads)) for _ in range(2)
        )
        self.q2 = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v, q2 = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f in (self.q, self.k, self.v, self.q2)
        )
        one, other = ((c @ k.mT / c.shape[-1] ** 0.5).softmax(-1) for c in (q, q2))
        factor = torch.exp(torch.sum(self.lambda_q * self.lambda_k, dim=-1)) - 0.2
        return self.o(((one - factor * other) @ v).transpose(1, 2).flatten(2))


def differential(width):
    return Model(width, Differential)
