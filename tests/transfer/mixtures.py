"""Mixtures of experts as users write them, in lists and in arrays."""

import torch
from torch import nn
from torch.nn import functional as F

ACTIVE = 2  # one expert of two is active


class Expert(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.up = nn.Linear(width, size, bias=False)
        self.down = nn.Linear(size, width, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Router(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.active, self.held = experts // ACTIVE, None
        self.gate = nn.Linear(width, experts, bias=False)

    def weights(self, x):
        """Weights that are zero but for the active experts, and sum to one."""
        logits = self.gate(x)
        places = logits.topk(self.active, -1).indices if self.held is None else self.held
        own = torch.zeros_like(logits)
        return own.scatter(-1, places, logits.gather(-1, places).softmax(-1))


class Mixture(Router):
    """A list of experts."""

    def __init__(self, width, experts, size):
        super().__init__(width, experts)
        self.experts = nn.ModuleList(Expert(width, size) for _ in range(experts))

    def forward(self, x):
        each = torch.stack([expert(x) for expert in self.experts], -2)
        return torch.einsum("be,bei->bi", self.weights(x), each)


class Fused(Router):
    """All experts in two arrays."""

    def __init__(self, width, experts, size):
        super().__init__(width, experts)
        self.up = nn.Parameter(torch.randn(experts, size, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, size) * size**-0.5)

    def forward(self, x):
        hidden = torch.relu(torch.einsum("bi,eji->bej", x, self.up))
        return torch.einsum("be,bej,eij->bi", self.weights(x), hidden, self.down)


class Net(nn.Module):
    def __init__(self, width=32, experts=4, size=32, depth=1, kind=Mixture):
        super().__init__()
        self.inp = nn.Linear(16, width)
        self.blocks = nn.ModuleList(kind(width, experts, size) for _ in range(depth))
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(F.rms_norm(x, x.shape[-1:]))
        return self.out(F.rms_norm(x, x.shape[-1:]))
