"""A residual MLP without normalisation or biases."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ResidualMLP(nn.Module):
    """h¹ = W⁰x, h^(l+1) = h^l + W^l φ(h^l), f = w·φ(h^L), φ = relu.

    Equation 1 of Bordelon et al., Depthwise hyperparameter transfer in residual networks, in the
    standard parameterization of their Table 1: branches of scale 1, and weights of standard
    deviation fan_in^(−½).

    Parameters
    ----------
    width
        N.
    depth
        The number of residual blocks.
    inputs, outputs
        The input dimension D, and the number of outputs.
    readout_std
        The read-out's standard deviation in units of N^(−½); with 0 all outputs start at 0.

    Examples
    --------
    >>> ResidualMLP(32, 4, inputs=8, outputs=3)(torch.ones(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, width: int, depth: int, inputs: int = 64, outputs: int = 10, readout_std: float = 1.0
    ):
        super().__init__()
        self.read_in = gaussian_linear(inputs, width)
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(depth))
        self.read_out = gaussian_linear(width, outputs, readout_std)

    def forward(self, x: Any) -> Any:
        """Return outputs ``(sample, output)`` of inputs ``(sample, input)``."""
        h = self.read_in(x)
        for block in self.blocks:
            h = block(h)
        return self.read_out(torch.relu(h))


class ResidualBlock(nn.Module):
    """h ↦ h + W φ(h)."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = gaussian_linear(width, width)

    def forward(self, h: Any) -> Any:
        """Return the features after the block, of the same shape."""
        return h + self.linear(torch.relu(h))


def gaussian_linear(fan_in: int, fan_out: int, std: float = 1.0) -> nn.Linear:
    """Return a linear layer without bias, with weights N(0, std²/fan_in)."""
    layer = nn.Linear(fan_in, fan_out, bias=False)
    nn.init.normal_(layer.weight, std=std * fan_in**-0.5)
    return layer
