"""Inspection of models: of shapes, without memory, and of initial weights, at small sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from largen.errors import InvalidInput
from largen.transfer.initial import FEW_DRAWS, Moments, measured
from largen.transfer.structure import Part
from largen.transfer.torch.process import ALONE, fixed_seed
from largen.transfer.torch.recording import name_of

BLOCK = 4096  # entries of a large tensor that are drawn
RANDOM = frozenset({"normal", "uniform", "exponential", "log_normal", "cauchy", "bernoulli"})
RANGES = frozenset({torch.linspace, torch.logspace, torch.arange, torch.tensor})
RESETS = 64  # draws of a layer alone at a time
LARGE = 200_000  # entries of a model above which its large tensors are not drawn again


def on_meta(make_model: Callable[..., nn.Module], sizes: Mapping[str, Any]) -> nn.Module:
    """Build a model without allocating its weights.

    A builder that reads values, such as ``torch.linspace(…)``, is called again with constants in
    memory, and if it still fails with all tensors in memory: see :func:`allocated_bytes`.
    """
    for ranges in (nullcontext, _RangesInMemory):
        try:
            with ranges():
                return _built(make_model, sizes, "meta", 0)
        except (NotImplementedError, RuntimeError):
            continue
    return real(make_model, sizes, 0)


def allocated_bytes(model: nn.Module) -> int:
    """Return the number of bytes of a model's weights that are in memory."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if not p.is_meta)


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
    # make_model, sizes: the builder and its arguments.
    make_model: Callable[..., nn.Module],
    sizes: Mapping[str, Any],
    # Weight → name under which its entries are pooled, the same for all copies of a block.
    names: Mapping[str, str],
    entries: int,  # the number of entries wanted of each random weight
) -> Mapping[str, Moments]:
    """Return the moments of initial weights."""

    large = False
    layers: dict[str, nn.Module] | None = None

    def draw(number: int, wanted: Collection[str] | None) -> Iterator[tuple[str, np.ndarray]]:
        nonlocal large, layers
        if wanted is not None and number >= FEW_DRAWS:
            if layers is None:  # the bias of one output takes hundreds of draws
                layers = _as_reset(make_model, sizes, wanted)
            yield from _reset_again({n: layers[n] for n in wanted if n in layers}, number)
            wanted = [name for name in wanted if name not in layers]
            if not wanted:
                return
        if wanted is None or not large:
            model = real(make_model, sizes, number)
            large = sum(p.numel() for p in model.parameters()) > LARGE
        else:
            with _OnlySmall(entries):
                model = real(make_model, sizes, number)
        for name, tensor in model.named_parameters(remove_duplicate=False):
            if name in (names if wanted is None else wanted):
                yield name, tensor.detach().double().numpy()

    return measured(draw, names, entries)


def _as_reset(
    make_model: Callable[..., nn.Module], sizes: Mapping[str, Any], wanted: Collection[str]
) -> dict[str, nn.Module]:
    """Return the layers of weights that start as PyTorch's ``reset_parameters`` draws them.

    The builder changes them no further if their values are those that the reset has left.
    """
    left: dict[int, tuple[nn.Module, dict[str, Tensor]]] = {}

    def noting(reset: Callable[[Any], None]) -> Callable[[Any], None]:
        def reset_parameters(layer: Any) -> None:
            reset(layer)
            own = layer.named_parameters(recurse=False)
            left[id(layer)] = layer, {leaf: p.detach().clone() for leaf, p in own}

        return reset_parameters

    # Layers with parametrizations are of classes of their own, derived from those that draw.
    kinds = {kind for layer in on_meta(make_model, sizes).modules() for kind in type(layer).mro()}
    with ALONE, ExitStack() as patches:
        for kind in kinds:
            reset = vars(kind).get("reset_parameters")
            if reset is not None and kind.__module__.startswith("torch.nn."):
                patches.enter_context(patch.object(kind, "reset_parameters", noting(reset)))
        model = real(make_model, sizes, 0)
    found = {}
    for name in wanted:
        path, _, leaf = name.rpartition(".")
        layer = model.get_submodule(path)
        _, values = left.get(id(layer), (layer, {}))
        if leaf in values and torch.equal(values[leaf], layer.get_parameter(leaf)):
            found[name] = layer
    return found


def _reset_again(layers: Mapping[str, nn.Module], number: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield weights of :data:`RESETS` draws by the layers alone."""
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in layers}
    with fixed_seed(number), torch.no_grad():
        for _ in range(RESETS):
            for layer in {id(layer): layer for layer in layers.values()}.values():
                layer.reset_parameters()  # pyright: ignore[reportCallIssue]
            for name, layer in layers.items():
                entries = layer.get_parameter(name.rpartition(".")[2])
                drawn[name].append(entries.double().numpy().copy())
    for name, draws in drawn.items():
        yield name, np.stack(draws)


class _RangesInMemory(TorchFunctionMode):
    """A mode that creates ranges and constants on the CPU, whatever the device of the context."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Set the device of a range."""
        own = dict(kwargs or {})
        if func in RANGES and str(own.get("device") or "meta") == "meta":
            own["device"] = "cpu"
        return func(*args, **own)


class _OnlySmall(TorchDispatchMode):
    """A mode that fills tensors above a given size by repeating one block of random entries.

    They have to be random, since some initialisations draw until all entries are within bounds.
    """

    def __init__(self, entries: int):
        super().__init__()
        self.entries = max(entries, BLOCK)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Draw one block in place of a large tensor."""
        name, in_place = name_of(func)
        whole = args[0] if args else None
        if not (in_place and name in RANDOM and isinstance(whole, Tensor)):
            return func(*args, **(kwargs or {}))
        if whole.numel() <= self.entries:
            return func(*args, **(kwargs or {}))
        block = whole.new_empty(BLOCK)
        func(block, *args[1:], **(kwargs or {}))
        copies = -(-whole.numel() // BLOCK)
        return whole.copy_(block.repeat(copies)[: whole.numel()].view(whole.shape))


def _built(make_model: Any, sizes: Mapping[str, Any], device: str, seed: int) -> nn.Module:
    with fixed_seed(seed), torch.device(device):
        try:
            model = make_model(**sizes)
        except TypeError as error:
            raise InvalidInput(
                f"make_model: could not be called with {dict(sizes)}: {error}. The keys of base "
                "and target are its arguments."
            ) from error
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"make_model: wanted a torch.nn.Module, got {type(model).__name__}.")
    for name, tensor in model.named_parameters():
        if isinstance(tensor, nn.UninitializedParameter):
            raise InvalidInput(
                f"make_model: {name} has no shape before the model is called; call it in "
                "make_model, or replace the lazy layer by one with sizes."
            )
    return model
