"""Multipliers in the forward pass, as hooks, which replace no module and rename no weight.

Hooks hold numbers only: they are copied and pickled with the model, and traced by ``torch.compile``
(see :mod:`largen.transfer.torch.compiled`) and ``torch.export``.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.plan_entries import ForwardMultiplier, parts_of
from largen.transfer.torch.compiled import tell_apart
from largen.transfer.torch.layouts import CONVOLUTIONS
from largen.transfer.torch.names import modules


@dataclass(frozen=True)
class ScaleInput:
    """A hook that multiplies a module's first argument."""

    factor: float

    def __call__(self, module: nn.Module, args: tuple) -> tuple:
        """Apply it."""
        return (args[0] * self.factor, *args[1:])


@dataclass(frozen=True)
class ScaleKey:
    """A hook that multiplies keys, and thereby logits; a bias shifts all of these alike."""

    factor: float

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Apply it."""
        if len(args) > 1:
            return (args[0], args[1] * self.factor, *args[2:]), kwargs
        return args, {**kwargs, "key": kwargs["key"] * self.factor}


@dataclass(frozen=True)
class ScaleOutput:
    """A hook that multiplies a module's output; of several, the logits or the first one."""

    factor: float

    def __call__(self, module: nn.Module, args: tuple, output: Any) -> Any:
        """Apply it."""
        if isinstance(output, tuple):
            return (output[0] * self.factor, *output[1:])
        if isinstance(output, MutableMapping):
            output = copy(output)
            key = "logits" if "logits" in output else next(iter(output))
            output[key] = output[key] * self.factor
            return output
        return output * self.factor


@dataclass(frozen=True)
class ScaleFirstThird:
    """A hook that multiplies the queries in the fused output of queries, keys and values."""

    factor: float

    def __call__(self, module: nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        axis = _channels(module)
        size = output.shape[axis] // 3
        queries, rest = output.split([size, output.shape[axis] - size], axis)
        return torch.cat([queries * self.factor, rest], axis)


@dataclass(frozen=True)
class ScaleParts:
    """A hook that multiplies the first channels of each of several equal parts of an output."""

    factor: float
    share: float
    parts: int

    def __call__(self, module: nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        axis = _channels(module)
        whole = output.unflatten(axis, (self.parts, -1))
        size = round(self.share * whole.shape[axis])
        queries, rest = whole.split([size, whole.shape[axis] - size], axis)
        return torch.cat([queries * self.factor, rest], axis).flatten(axis - 1, axis)


def _channels(module: nn.Module) -> int:
    """Return the axis of a module's output that its channels are on, counted from the last."""
    return -1 - len(module.kernel_size) if isinstance(module, CONVOLUTIONS) else -1


Hook = ScaleInput | ScaleKey | ScaleOutput | ScaleFirstThird | ScaleParts
HOOKS: dict[str, type] = {
    "input": ScaleInput,
    "key": ScaleKey,
    "output": ScaleOutput,
    "first third": ScaleFirstThird,
}


def attach(model: nn.Module, multipliers: Iterable[ForwardMultiplier]) -> None:
    """Put a plan's multipliers on a model, except for those that it carries already."""
    by_name = modules(model)
    wanted: dict[str, list[Hook]] = {}
    for m in multipliers:
        if m.module not in by_name:
            raise InvalidInput(f"model: it has no module {m.module!r}, which the plan names.")
        wanted.setdefault(m.module, []).append(_hook(m))
    for name, hooks in wanted.items():
        module = by_name[name]
        present = hooks_of(module)
        if set(present) == set(hooks):
            continue
        if present:
            raise InvalidInput(
                f"model: {name} carries the multipliers {present} already; wanted {hooks}. "
                "Attach one plan to one model."
            )
        for hook in hooks:
            _register(module, hook)
        tell_apart(module, tuple(hooks))


def lacking(model: nn.Module, multipliers: Iterable[ForwardMultiplier]) -> list[ForwardMultiplier]:
    """Return the multipliers that a model does not carry, of the modules that it has."""
    by_name = modules(model)
    own = [m for m in multipliers if m.module in by_name]
    return [m for m in own if _hook(m) not in hooks_of(by_name[m.module])]


def _hook(multiplier: ForwardMultiplier) -> Hook:
    parts = parts_of(multiplier.where)
    if parts is not None:
        return ScaleParts(multiplier.factor, float(parts[0]), parts[1])
    return HOOKS[multiplier.where](multiplier.factor)


def hooks_of(module: nn.Module) -> list[Hook]:
    """Return the multipliers that a module carries."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [hook for hook in hooks if isinstance(hook, Hook)]


def _register(module: nn.Module, hook: Hook) -> None:
    if isinstance(hook, ScaleInput):
        module.register_forward_pre_hook(hook)
    elif isinstance(hook, ScaleKey):
        module.register_forward_pre_hook(hook, with_kwargs=True)
    else:
        # The hook runs before the user's own hooks, which receive the scaled output.
        module.register_forward_hook(hook, prepend=True)
