"""Classes by which ``torch.compile`` distinguishes modules with different multipliers.

Compiled code is cached by class, and its guards do not cover hooks that the first instance did not
have (``torch._dynamo.config.skip_nnmodule_hook_guards``): a model with multipliers would run the
code compiled for one without. A module with multipliers therefore gets a subclass of the same name,
shared by all modules of the class with these multipliers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn


def tell_apart(module: nn.Module, hooks: tuple[Any, ...]) -> None:
    """Give a module the class for these hooks, in place of a class for other hooks."""
    module.__class__ = _subclass(original(type(module)), hooks)


def original(kind: type) -> type:
    """Return the class that a module had before it got one of its own."""
    return kind.__dict__.get("_largen_original", kind)


@cache
def _subclass(kind: Any, hooks: tuple[Any, ...]) -> type:
    def reduce_ex(self: Any, protocol: Any) -> Any:
        made = kind.__reduce_ex__(self, protocol)
        if isinstance(made, tuple) and made[1] == (type(self),):
            return (_new, (kind, hooks), *made[2:])
        return made  # the class defines how its instances are copied

    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(
        kind.__name__, (kind,), {**names, "__reduce_ex__": reduce_ex, "_largen_original": kind}
    )


def _new(kind: type, hooks: tuple[Any, ...]) -> Any:
    """Return a module whose state is not yet set."""
    return object.__new__(_subclass(kind, hooks))
