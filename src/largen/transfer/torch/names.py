"""Names of a model's weights, independent of wrappers around the model.

Wrappers are removed as objects and as whole components of names: a part called ``module`` stays.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside data-parallel, compiled and averaging wrappers."""
    while True:
        if isinstance(model, (DataParallel, DistributedDataParallel, AveragedModel)):
            model = model.module
        elif "_orig_mod" in dict(model.named_children()):
            model = model.get_submodule("_orig_mod")
        else:
            return model


def plain(name: str) -> str:
    """Return a name without the components that wrappers of inner modules add."""
    return ".".join(c for c in name.split(".") if c not in WRAPPERS)


def parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return every weight once, by its plain name."""
    return {plain(name): p for name, p in unwrap(model).named_parameters()}


def modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return every module by its plain name, without wrappers of inner modules."""
    found: dict[str, nn.Module] = {}
    for name, module in unwrap(model).named_modules(remove_duplicate=False):
        found[plain(name)] = module  # the wrapped module comes after its wrapper
    return found


def join(path: str, name: str) -> str:
    """Join two paths, either of which may be empty."""
    return f"{path}.{name}" if path and name else path or name
