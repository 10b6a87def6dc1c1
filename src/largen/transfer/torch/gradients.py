"""Gradients of all replicas of one PyTorch model: in one batched call, or replica by replica.

By ``torch.vmap`` of ``torch.func.grad``, one operation on a stack in place of R small ones. Models
with hooks on parameters or backward hooks, which functional calls ignore, and those that
``torch.vmap`` does not support (control flow by values, custom autograd functions) are called once
for each replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from largen.errors import LargenError
from largen.transfer.torch.names import parameters

Loss = Callable[[Tensor, Tensor], Tensor]


class Gradients(Protocol):
    """A way to compute losses and gradients of replicas from their stacked weights."""

    def __call__(self, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses ``(replica,)`` and the gradients ``(replica, …)`` by weight."""
        ...

    def evaluate(self, x: Tensor, y: Tensor, losses: Loss) -> Tensor:
        """Return the losses ``(replica, sample)`` in evaluation mode."""
        ...

    def keep(self, which: Tensor, values: dict[str, Tensor]) -> None:
        """Drop all replicas but these, whose stacked weights are given."""
        ...


class Batched:
    """All replicas in one call of the model on stacked weights ``(replica, …)`` by name.

    The caller changes ``values`` in place; ``fixed`` are weights without gradient, and buffers,
    which the model may change in place.
    """

    def __init__(self, model: nn.Module, values: dict[str, Tensor], fixed: dict[str, Tensor]):
        self.model, self.values, self.fixed = model, values, fixed

    def __call__(self, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses and the gradients."""

        def one(values: dict[str, Tensor], fixed: dict[str, Tensor]) -> Tensor:
            return loss(functional_call(self.model, {**fixed, **values}, (x,)), y)

        mapped = torch.vmap(grad_and_value(one), randomness="different")
        gradients, value = mapped(self.values, self.fixed)
        return value.detach(), gradients

    @torch.no_grad()
    def evaluate(self, x: Tensor, y: Tensor, losses: Loss) -> Tensor:
        """Return the losses of all samples."""
        self.model.eval()

        def one(state: dict[str, Tensor]) -> Tensor:
            return losses(functional_call(self.model, state, (x,)), y)

        return torch.vmap(one, randomness="different")({**self.fixed, **self.values})

    def keep(self, which: Tensor, values: dict[str, Tensor]) -> None:
        """Drop all replicas but these."""
        self.values = values
        self.fixed = {name: value[which] for name, value in self.fixed.items()}


class OneByOne:
    """One model for each replica, whose weights are views of the stacked weights."""

    def __init__(
        self, models: Sequence[nn.Module], values: dict[str, Tensor], fixed: dict[str, Tensor]
    ):
        self.models = list(models)
        self._bind(values)
        with torch.no_grad():
            for i, model in enumerate(self.models):
                for name, own in chain(parameters(model).items(), model.named_buffers()):
                    if name in fixed:
                        own.copy_(fixed[name][i])

    def __call__(self, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses and the gradients after all hooks; 0 for unused weights."""
        values, gradients = [], []
        for model in self.models:
            model.zero_grad(set_to_none=True)
            value = loss(model(x), y)
            value.backward()
            values.append(value.detach().reshape(()))
            own = {n: p for n, p in parameters(model).items() if n in self.names}
            gradients.append(
                {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in own.items()}
            )
        return torch.stack(values), {
            name: torch.stack([each[name] for each in gradients]) for name in self.names
        }

    @torch.no_grad()
    def evaluate(self, x: Tensor, y: Tensor, losses: Loss) -> Tensor:
        """Return the losses of all samples."""
        return torch.stack([losses(model.eval()(x), y) for model in self.models])

    def keep(self, which: Tensor, values: dict[str, Tensor]) -> None:
        """Drop all replicas but these."""
        kept = which.tolist()
        self.models = [model for model, keep in zip(self.models, kept, strict=True) if keep]
        self._bind(values)

    def _bind(self, values: dict[str, Tensor]) -> None:
        self.names = list(values)
        for i, model in enumerate(self.models):
            own = parameters(model)
            for name, value in values.items():
                own[name].data = value[i]


class Replicated:
    """Gradients by :class:`Batched` where the model allows it, else by :class:`OneByOne`."""

    def __init__(
        self,
        # model, values, fixed: as in Batched.
        model: nn.Module,
        values: dict[str, Tensor],
        fixed: dict[str, Tensor],
        alone: Callable[[], Sequence[nn.Module]],  # function that makes the models for OneByOne
    ):
        self.alone = alone
        self.way: Gradients = Batched(model, values, fixed)
        if has_backward_hooks(model):
            self.way = OneByOne(alone(), values, fixed)

    def __call__(self, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses and the gradients."""
        return self._by(lambda way: way(x, y, loss))

    def evaluate(self, x: Tensor, y: Tensor, losses: Loss) -> Tensor:
        """Return the losses of all samples."""
        return self._by(lambda way: way.evaluate(x, y, losses))

    def keep(self, which: Tensor, values: dict[str, Tensor]) -> None:
        """Drop all replicas but these."""
        chosen, alone = which.tolist(), self.alone
        self.alone = lambda: [m for m, keep in zip(alone(), chosen, strict=True) if keep]
        self.way.keep(which, values)

    def _by(self, call: Callable[[Gradients], Any]) -> Any:
        """Make a batched call; if it fails, use :class:`OneByOne` now and from then on."""
        if not isinstance(self.way, Batched):
            return call(self.way)
        # A failing call may already have changed buffers, which the repeated call needs unchanged.
        changing = dict(self.way.model.named_buffers())
        fixed = {n: v.clone() if n in changing else v for n, v in self.way.fixed.items()}
        draws = torch.random.get_rng_state()
        try:
            return call(self.way)
        except LargenError:
            raise
        except Exception:  # an error of the model itself is raised again by OneByOne
            torch.random.set_rng_state(draws)
            self.way = OneByOne(self.alone(), self.way.values, fixed)
            return call(self.way)


def has_backward_hooks(model: nn.Module) -> bool:
    """Whether gradients pass through hooks that functional calls ignore."""
    on_modules = (m._backward_hooks or m._backward_pre_hooks for m in model.modules())
    on_weights = (
        p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)
        for p in model.parameters()
    )
    return any(map(bool, chain(on_modules, on_weights)))
