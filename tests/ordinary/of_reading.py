"""PyTorch models as they are: the same network as in layers of largen has the same kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.ordinary.networks import Network
from tests.ordinary.registry import call
from tests.ordinary.settings import DOUBLE, Setting, near, sizes, symmetric
from torch import nn

import largen as lg

PHI = {
    "linear": torch.clone,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": torch.abs,
    "erf": torch.erf,
}
FEW = lg.reading.Population(neurons=256, replicates=4)


class Steps(nn.Module):
    def __init__(self, steps: tuple, inputs: int, width: int):
        super().__init__()
        self.steps, maps, before = steps, [], inputs
        last = max(place for place, step in enumerate(steps) if step[0] == "dense")
        for place, step in enumerate(steps):
            if step[0] == "dense":
                after = 2 if place == last else width
                each = nn.Linear(before, after, bias=step[2] > 0)
                nn.init.normal_(each.weight, 0, step[1] / before**0.5)
                if step[2]:
                    nn.init.normal_(each.bias, 0, step[2])
                maps.append(each)
                before = after
        self.maps = nn.ModuleList(maps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = iter(self.maps)
        for step in self.steps:
            x = next(maps)(x) if step[0] == "dense" else PHI[step[1]](x)
        return x


def written(network: Network) -> bool:
    """Whether a network is one of dense maps and functions that PyTorch has, two or more maps."""
    steps = network.steps or ()
    known = all(s[0] == "dense" or (s[0] == "phi" and s[1] in PHI) for s in steps)
    return known and network.plain and [s[0] for s in steps].count("dense") > 1


@call("read", takes=written)
def models(s: Setting) -> object:
    def make(width: int) -> Any:
        return Steps(s.network.steps or (), s.plain.shape[1], width)

    net = lg.read(make, s.x)
    found = net.kernel(s.x)
    for name, K, want in zip(("nngp", "ntk"), found, s.kernels, strict=True):
        symmetric(name, K, s.tolerance)
        near(name, K, want, max(DOUBLE, s.tolerance), sizes(want))
    drawn = net.kernel(s.x, method=FEW)
    for name, want in zip(("nngp", "ntk")[: 2 - s.rare_slopes], s.kernels, strict=False):
        K, error = getattr(drawn, name), getattr(drawn, f"{name}_error")
        assert np.all(error >= 0), f"{name}: an error below 0"
        near(f"{name} by populations", K, want, 1.0, sizes(want))
    return found
