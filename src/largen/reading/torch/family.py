"""Modules of several widths, or one of a single width, as a reading takes them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from largen.arrays import as_array, floating
from largen.errors import InvalidInput, LargenError
from largen.reading.calls import Record
from largen.reading.family import Family
from largen.reading.laws import Parameter
from largen.reading.nodes import Map
from largen.reading.torch.construction import construct, of_instance
from largen.reading.torch.recording import record
from largen.reading.torch.rules import REASONS, RULES
from largen.text import shown
from largen.transfer.torch.process import fixed_seed


class Modules(Family):
    """A module of every width, or one module, with the laws of its parameters.

    ``make``: a function from a width to a module, or a module; ``x``: an input.
    """

    rules, reasons = RULES, REASONS

    def __init__(self, make: Any, x: Any):
        self.one = make if isinstance(make, nn.Module) else None
        self.alone = self.one is not None
        self.make: Callable[[int], nn.Module] = make
        self._known: dict[tuple[int | None, bool], tuple[nn.Module, dict[str, Parameter]]] = {}
        self.x: np.ndarray = np.asarray(as_array("x", x))
        self._reads_integers = False  # without an embedding, such as rows of a parameter

    @property
    def takes_integers(self) -> bool:
        """Whether samples are numbers of the rows of an embedding."""
        return not self.as_input("x", self.x, self._module).is_floating_point()

    def as_input(self, name: str, x: Any, module: nn.Module) -> Tensor:
        """Return an input as a tensor in the precision of a module's parameters.

        Whole numbers stay what they are for a module that holds an embedding, whose rows they
        number, or that takes no others.
        """
        return _as_input(name, x, module, self._reads_integers or _looks_up(module))

    @property
    def name(self) -> str:
        """The name of the module's class."""
        return type(self._module).__name__

    @property
    def frozen(self) -> frozenset[str]:
        """The parameters that require no gradient."""
        named = self._module.named_parameters()
        return frozenset(name for name, p in named if not p.requires_grad)

    @property
    def _module(self) -> nn.Module:
        return self.one or next(iter(self._known.values()))[0]

    def at(self, width: int | None, *, meta: bool = False) -> dict[str, Parameter]:
        """Return the laws of the parameters at a width, by name."""
        return self._built(width, meta)[1]

    def recorded(self, width: int | None) -> Record:
        """Return the forward pass at a width."""
        module = self._built(width, False)[0]
        try:
            return record(module, self.as_input("x", self.x, module))
        except InvalidInput:
            if self.x.dtype.kind not in "iu" or self.takes_integers:
                raise
            self._reads_integers = True
            try:
                return record(module, self.as_input("x", self.x, module))
            except InvalidInput:
                self._reads_integers = False
            raise

    def shapes(self, width: int) -> nn.Module:
        """Return the module of a width, whose tensors have shapes and no entries."""
        return self._built(width, True)[0]

    def kernels(
        self, last: Map, x: np.ndarray, width: int, seeds: range
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return K and Θ of modules, and mean squares of the outputs of their parts."""
        from largen.reading.torch.draws import kernels_of

        return kernels_of(self, last, x, width, seeds)

    def sampler(self, widths: tuple[int, int]) -> Any:
        """Return populations of neurons of the modules."""
        from largen.reading.torch.population import estimate

        return estimate.Modules(self, widths)

    def module(self, width: int | None, seed: int) -> nn.Module:
        """Return a module of a width by its own construction, with another seed."""
        with fixed_seed(seed):
            return self._made(width)

    def _built(self, width: int | None, meta: bool) -> tuple[nn.Module, dict[str, Parameter]]:
        key = (width, meta)
        if key not in self._known:
            if self.one is not None:
                self._known[key] = self.one, of_instance(self.one)
            else:
                self._known[key] = construct(lambda: self._made(width), meta=meta)
        return self._known[key]

    def _made(self, width: int | None) -> nn.Module:
        if self.one is not None:
            return deepcopy(self.one)
        try:
            module = self.make(width)  # pyright: ignore[reportArgumentType]
        except LargenError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            raise InvalidInput(f"make: make({width}) raised {said}") from error
        if not isinstance(module, nn.Module):
            raise InvalidInput(
                f"make: wanted a torch.nn.Module from make({width}), got {shown(module)}."
            )
        return module


def _looks_up(module: nn.Module) -> bool:
    """Whether a module holds an embedding."""
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


def _as_input(name: str, x: Any, module: nn.Module, integers: bool) -> Tensor:
    array = np.asarray(as_array(name, x))
    ids = integers and array.dtype.kind in "iu"
    array = array.astype(np.int64) if ids else floating(name, x)
    if array.ndim < 2 or not array.size:
        raise InvalidInput(
            f"{name}: wanted samples, (sample, features) or (sample, channels, *space), got shape "
            f"{array.shape}."
        )
    weights = [p for p in module.parameters() if p.is_floating_point()]
    kinds, devices = {p.dtype for p in weights}, {p.device for p in weights}
    dtype = torch.int64 if ids else kinds.pop() if len(kinds) == 1 else torch.get_default_dtype()
    array = np.ascontiguousarray(array)  # PyTorch takes none that is written backwards
    return torch.tensor(array, dtype=dtype, device=devices.pop() if len(devices) == 1 else None)
