"""Looking at models: built without memory for their shapes, and built small for their beginnings.

Every look leaves the global random state as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.initial import Moments, measured
from largen.transfer.structure import Part
from largen.transfer.torch.process import seeded


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

    def draw(number: int, wanted: Collection[str] | None) -> Iterator[tuple[str, np.ndarray]]:
        model = real(make_model, sizes, number)
        for name, tensor in model.named_parameters(remove_duplicate=False):
            if wanted is None or name in wanted:
                yield name, tensor.detach().double().numpy()

    return measured(draw, names, entries)


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
