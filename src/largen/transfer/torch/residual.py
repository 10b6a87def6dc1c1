"""A residual connection by name, for models whose branches cannot be found otherwise."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    """``x + branch(x)``: what a plan scales by l^(−α) is then beyond doubt.

    Parameters
    ----------
    branch
        Any module; further arguments of the call are passed on to it.

    Examples
    --------
    >>> block = Residual(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)))
    """

    def __init__(self, branch: nn.Module):
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the sum of the input and the branch's output."""
        return x + self.branch(x, *args, **kwargs)
