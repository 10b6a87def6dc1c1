"""The forward pass of a stack of replicas without ``torch.vmap``, where layers allow it.

A model whose only weights are those of linear layers can be called on activations with the
replicas' axis in front: matrices are multiplied stack by stack, and what acts on each unit alone
does not see the axis. Where that is so, it saves ``vmap``'s cost of every operation. Whether it is
so is not read off the code but tried out, on random weights against ``vmap``.

Under plain gradient descent a matrix W has no need of its gradient: the backward pass adds
−ηc xᵀg to W where it stands, in the product that would have been the gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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

    Attributes
    ----------
    calls
        How often each linear layer was called by the last call of the model.
    """

    def __init__(self, model: nn.Module):
        self.values: dict[str, Tensor] = {}
        self.rates: Mapping[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.model = deepcopy(model)
        for path, module in self.model.named_modules():
            if type(module) is nn.Linear:
                self._patch(module, f"{path}." if path else "")

    def __call__(
        self, x: Any, values: dict[str, Tensor], rates: Mapping[str, float] | None = None
    ) -> Tensor:
        """Return outputs ``(replica, sample, …)`` of inputs ``(sample, …)`` that all share.

        Matrices named in ``rates`` are moved by the backward pass, by −rate times the gradient.
        Their layers must be called once: a second product would see the moved matrix.
        """
        count = len(next(iter(values.values())))
        self.values, self.rates = values, rates or {}
        self.calls.clear()
        try:
            return self.model(x.expand(count, *x.shape))
        finally:
            self.values, self.rates = {}, {}

    def _patch(self, layer: nn.Linear, prefix: str) -> None:
        """Let a layer multiply by the stacked weights of its name; its hooks stay."""
        has_bias = layer.bias is not None

        def forward(input: Tensor) -> Tensor:
            self.calls[f"{prefix}weight"] += 1
            weight = self.values[f"{prefix}weight"].mT
            rate = self.rates.get(f"{prefix}weight")
            flat = input.flatten(1, -2)
            if rate is not None:
                out: Tensor = MovingProduct.apply(flat, weight, rate)  # pyright: ignore
                out = out + self.values[f"{prefix}bias"][:, None] if has_bias else out
            elif has_bias:
                out = torch.baddbmm(self.values[f"{prefix}bias"][:, None], flat, weight)
            else:
                out = torch.bmm(flat, weight)
            return out if input.ndim == 3 else out.unflatten(1, input.shape[1:-1])

        layer.forward = forward


class MovingProduct(torch.autograd.Function):
    """x W for each replica, whose backward pass moves W ← W − rate · xᵀ ∂/∂(x W)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rate: float) -> Tensor:
        """Return the products, ``(replica, sample, out)``."""
        ctx.save_for_backward(x)
        ctx.weight, ctx.rate = weight, rate
        return torch.bmm(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        """Return the gradient in x, by the weight as it was; then move the weight."""
        (x,), (g,) = ctx.saved_tensors, gradients
        to_x = torch.bmm(g, ctx.weight.mT) if ctx.needs_input_grad[0] else None
        ctx.weight.baddbmm_(x.mT, g, alpha=-ctx.rate)
        return to_x, None, None


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
