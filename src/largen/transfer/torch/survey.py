"""Looking at models: built without memory for their shapes, and built small for their beginnings.

Every look leaves the global random state as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from largen.errors import InvalidInput
from largen.transfer.initial import Moments, measured
from largen.transfer.structure import Part
from largen.transfer.torch.process import seeded
from largen.transfer.torch.recording import name_of

LARGE = 200_000  # entries of a model whose large tensors are not drawn again


def on_meta(make_model: Callable[..., nn.Module], sizes: Mapping[str, Any]) -> nn.Module:
    """Build a model without allocating its weights.

    A builder that looks at values while it builds (``torch.linspace(…)`` turned into numbers)
    cannot run that way; it is run for real then.

    Raises
    ------
    InvalidInput
        If it does not return a module, or fails with these sizes.
    """
    try:
        return _built(make_model, sizes, "meta", 0)
    except (NotImplementedError, RuntimeError):
        return real(make_model, sizes, 0)


def real(make_model: Callable[..., nn.Module], sizes: Mapping[str, Any], seed: int) -> nn.Module:
    """Build a model on the CPU from a seed."""
    return _built(make_model, sizes, "cpu", seed)


def part_of(module: nn.Module) -> Part:
    """Return the tree of a model's parts and the shapes of their weights."""
    return Part(
        type(module).__name__,
        {name: tuple(p.shape) for name, p in module.named_parameters(recurse=False)},
        {name: part_of(child) for name, child in module.named_children()},
    )


def initial_moments(
    make_model: Callable[..., nn.Module],
    sizes: Mapping[str, Any],
    names: Mapping[str, str],
    entries: int,
) -> Mapping[str, Moments]:
    """Return the moments of initial weights.

    Parameters
    ----------
    make_model, sizes
        What to build.
    names
        Weight → name under which its entries are counted, one for all copies of a block.
    entries
        How many are wanted of each random weight.
    """

    large = False

    def draw(number: int, wanted: Collection[str] | None) -> Iterator[tuple[str, np.ndarray]]:
        nonlocal large
        if wanted is None or not large:
            model = real(make_model, sizes, number)
            large = sum(p.numel() for p in model.parameters()) > LARGE
        else:
            with _OnlySmall(entries):
                model = real(make_model, sizes, number)
        for name, tensor in model.named_parameters(remove_duplicate=False):
            if wanted is None or name in wanted:
                yield name, tensor.detach().double().numpy()

    return measured(draw, names, entries)


class _OnlySmall(TorchDispatchMode):
    """Leaves tensors of more entries than these as they are allocated: none are wanted of them."""

    def __init__(self, entries: int):
        super().__init__()
        self.entries = entries

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Skip what would fill a large tensor."""
        if name_of(func)[1] and isinstance(args[0], Tensor) and args[0].numel() > self.entries:
            return args[0]
        return func(*args, **(kwargs or {}))


def _built(make_model: Any, sizes: Mapping[str, Any], device: str, seed: int) -> nn.Module:
    with seeded(seed), torch.device(device):
        try:
            model = make_model(**sizes)
        except TypeError as error:
            raise InvalidInput(
                f"make_model: could not be called with {dict(sizes)}: {error}. The keys of base "
                "and target are its arguments."
            ) from error
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"make_model: wanted a torch.nn.Module, got {type(model).__name__}.")
    return model
