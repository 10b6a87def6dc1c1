"""The forward pass of a stack of replicas without ``torch.vmap``, where layers allow it.

A model whose only weights are those of linear layers can be called on activations with the
replicas' axis in front: matrices are multiplied stack by stack, and what acts on each unit alone
does not see the axis. Where that is so, it saves ``vmap``'s cost of every operation. Whether it is
so is not read off the code but tried out, on random weights against ``vmap``.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

# Outputs differ by rounding, or else by much more than this part of their size.
ROUNDING = 1e-3


class StackedModel:
    """A model whose linear layers have a weight for each replica.

    Parameters
    ----------
    model
        Copied. Its parameters must all be weights and biases of ``nn.Linear``, and it must have
        no buffers: see :func:`stackable`.
    """

    def __init__(self, model: nn.Module):
        self.values: dict[str, Tensor] = {}
        self.model = deepcopy(model)
        for path, module in self.model.named_modules():
            if type(module) is nn.Linear:
                self._patch(module, f"{path}." if path else "")

    def __call__(self, x: Any, values: dict[str, Tensor]) -> Tensor:
        """Return outputs ``(replica, sample, …)`` of inputs ``(sample, …)`` that all share."""
        count = len(next(iter(values.values())))
        self.values = values
        try:
            return self.model(x.expand(count, *x.shape))
        finally:
            self.values = {}

    def _patch(self, layer: nn.Linear, prefix: str) -> None:
        """Let a layer multiply by the stacked weights of its name; its hooks stay."""
        has_bias = layer.bias is not None

        def forward(input: Tensor) -> Tensor:
            weight = self.values[f"{prefix}weight"].mT
            flat = input.flatten(1, -2)
            if has_bias:
                out = torch.baddbmm(self.values[f"{prefix}bias"][:, None], flat, weight)
            else:
                out = torch.bmm(flat, weight)
            return out if input.ndim == 3 else out.unflatten(1, input.shape[1:-1])

        layer.forward = forward


def stackable(model: nn.Module) -> bool:
    """Whether a model's only state is in linear layers, none of them used under two names."""
    linear = [m for m in model.modules() if type(m) is nn.Linear]
    own = sum(len(list(m.parameters(recurse=False))) for m in linear)
    names = list(model.named_parameters(remove_duplicate=False))
    unique = {id(parameter) for _, parameter in names}
    return own == len(names) == len(unique) and not list(model.buffers()) and bool(linear)


def agrees(found: Tensor, wanted: Tensor) -> bool:
    """Whether outputs are those wanted but for rounding."""
    if found.shape != wanted.shape or not torch.isfinite(wanted).all():
        return False
    return bool((found - wanted).abs().max() <= ROUNDING * wanted.abs().max())
