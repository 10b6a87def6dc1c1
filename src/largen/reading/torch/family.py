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
from largen.reading.laws import Parameter
from largen.reading.nodes import Nodes
from largen.reading.refusals import refused
from largen.reading.torch.construction import construct, of_instance
from largen.reading.torch.reader import Reader
from largen.reading.torch.recording import Record, record
from largen.reading.torch.rules import REASONS, RULES
from largen.text import shown
from largen.transfer.torch.process import fixed_seed

LARGE = 2**14  # the factor of widths at which powers of the width are read, without entries

UNSEEN = "it follows no power of the width at small widths, and its function needs entries"


class Family:
    """A module of every width, or one module, with the laws of its parameters.

    ``make``: a function from a width to a module, or a module; ``x``: an input.
    """

    def __init__(self, make: Any, x: Any):
        self.one = make if isinstance(make, nn.Module) else None
        self.make: Callable[[int], nn.Module] = make
        self._known: dict[tuple[int | None, bool], tuple[nn.Module, dict[str, Parameter]]] = {}
        self.x: np.ndarray = np.asarray(as_array("x", x))

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return self.x.shape[1:]

    @property
    def takes_integers(self) -> bool:
        """Whether samples are numbers of the rows of an embedding."""
        return not as_input("x", self.x, self._module).is_floating_point()

    @property
    def name(self) -> str:
        """The name of the module's class."""
        return type(self._module).__name__

    @property
    def _module(self) -> nn.Module:
        return self.one or next(iter(self._known.values()))[0]

    def at(self, width: int | None, *, meta: bool = False) -> dict[str, Parameter]:
        """Return the laws of the parameters at a width, by name."""
        return self._built(width, meta)[1]

    def at_large(self, width: int) -> tuple[dict[str, Parameter], dict[str, Parameter]]:
        """Return the laws at a very large width and at twice that width."""
        real = self.at(width)
        found = []
        for factor in (LARGE, 2 * LARGE):
            far = self.at(width * factor, meta=True)
            # Functions that look at entries do nothing without them.
            found.append(
                {
                    name: p if _kind(p) == _kind(real[name]) else p._replace(law=None, why=UNSEEN)
                    for name, p in far.items()
                }
            )
        one, two = found
        return one, two

    def recorded(self, width: int | None) -> Record:
        """Return the forward pass at a width."""
        module = self._built(width, False)[0]
        return record(module, as_input("x", self.x, module))

    def shapes(self, width: int) -> nn.Module:
        """Return the module of a width, whose tensors have shapes and no entries."""
        return self._built(width, True)[0]

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


def _kind(parameter: Parameter) -> str | None:
    return None if parameter.law is None else parameter.law.kind


def _looks_up(module: nn.Module) -> bool:
    """Whether a module holds an embedding."""
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


def as_input(name: str, x: Any, module: nn.Module) -> Tensor:
    """Return an input as a tensor in the precision of a module's parameters.

    Whole numbers stay what they are for a module that holds an embedding, whose rows they number.
    """
    array = np.asarray(as_array(name, x))
    ids = _looks_up(module) and array.dtype.kind in "iu"
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


def read_family(family: Family, widths: tuple[int, int]) -> tuple[Nodes, Nodes]:
    """Return the nodes of a family at two widths."""
    records = [family.recorded(width) for width in widths]
    _check_same(records[0], records[1], widths)
    small, large = (family.at(width) for width in widths)
    if all(small[name].shape == large[name].shape for name in small):
        raise InvalidInput(
            f"make: no axis of a parameter changes between make({widths[0]}) and "
            f"make({widths[1]}); make(width) has to use its argument."
        )
    one = Reader(records[0], small, records[1], large).read(RULES, REASONS)
    two = Reader(records[1], large).read(RULES, REASONS)
    if found := one.difference(two):
        raise refused(
            found,
            f"constants or operations differ between the widths {widths[0]} and {widths[1]}, other "
            "than factors before or behind the weights of one affine map",
        )
    return one, two


def read_one(family: Family, width: int | None) -> Nodes:
    """Return the nodes of a family at one width."""
    alone = family.one is not None
    return Reader(family.recorded(width), family.at(width), alone=alone).read(RULES, REASONS)


def _check_same(one: Record, two: Record, widths: tuple[int, int]) -> None:
    """Check that two widths do the same operations."""
    for a, b in zip(one.calls, two.calls, strict=False):
        if (a.op, a.module) != (b.op, b.module):
            raise refused(
                a.place,
                f"the forward pass does something else at widths {widths[0]} and {widths[1]}, "
                f"first here, where the wider one does {b.op} in {b.module or 'forward'}",
            )
    if len(one.calls) != len(two.calls):
        raise refused(
            "forward",
            f"it has {len(one.calls)} operations at width {widths[0]} and {len(two.calls)} at "
            f"width {widths[1]}; wanted the same at all widths",
        )
