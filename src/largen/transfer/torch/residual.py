"""An explicit residual connection, for models whose branches cannot be found otherwise."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    """``x + branch(x)``, which marks the branch that a plan scales by l^(−α).

    Parameters
    ----------
    branch
        Any module; it receives the further arguments of the call, too.

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
