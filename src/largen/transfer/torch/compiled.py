"""Classes that tell ``torch.compile`` of multipliers.

Compiled code is kept by class and used again for other instances of it. It is guarded against
nearly everything that may differ between them, but not against hooks that the first instance did
not have (``torch._dynamo.config.skip_nnmodule_hook_guards``): a model with multipliers would run
the code of one without. So a module that gets multipliers also gets a class of its own, as with
PyTorch's parametrizations and ``fully_shard``. It is a subclass of the same name, one for all
modules of one class with the same multipliers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn


def tell_apart(module: nn.Module, hooks: tuple[Any, ...]) -> None:
    """Give a module a class of its own for these hooks, instead of one for other hooks."""
    module.__class__ = _subclass(original(type(module)), hooks)


def original(kind: type) -> type:
    """Return the class that a module had before it got one of its own."""
    return kind.__dict__.get("_largen_original", kind)


@cache
def _subclass(kind: Any, hooks: tuple[Any, ...]) -> type:
    def reduced(self: Any, protocol: Any) -> Any:
        made = kind.__reduce_ex__(self, protocol)
        if isinstance(made, tuple) and made[1] == (type(self),):
            return (_new, (kind, hooks), *made[2:])
        return made  # the class says itself how it is copied

    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(
        kind.__name__, (kind,), {**names, "__reduce_ex__": reduced, "_largen_original": kind}
    )


def _new(kind: type, hooks: tuple[Any, ...]) -> Any:
    """Make a module of which the state is yet to be set."""
    return object.__new__(_subclass(kind, hooks))
