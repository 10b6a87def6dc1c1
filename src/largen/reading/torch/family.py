"""Modules of several widths, or one of a single width, as a reading takes them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from largen.arrays import as_array
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
        self.x = x

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return tuple(self.x.shape[1:]) if isinstance(self.x, Tensor) else np.shape(self.x)[1:]

    @property
    def takes_integers(self) -> bool:
        """Whether samples are integers, such as tokens."""
        x = self.x.detach().cpu().numpy() if isinstance(self.x, Tensor) else np.asarray(self.x)
        return bool(np.issubdtype(x.dtype, np.integer))

    @property
    def name(self) -> str:
        """The name of the module's class."""
        module = self.one or next(iter(self._known.values()))[0]
        return type(module).__name__

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


def as_input(name: str, x: Any, module: nn.Module) -> Tensor:
    """Return an input as a tensor in the precision of a module's parameters."""
    if isinstance(x, Tensor):
        array = x
    else:  # PyTorch takes no arrays that are written backwards
        array = torch.as_tensor(np.ascontiguousarray(as_array(name, x)))
    if array.ndim < 2 or not array.numel():
        raise InvalidInput(
            f"{name}: wanted samples, (sample, features) or (sample, channels, *space), got shape "
            f"{tuple(array.shape)}."
        )
    if not array.is_floating_point():
        return array if array.dtype == torch.int64 else array.long()
    kinds = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return array.to(kinds.pop() if len(kinds) == 1 else torch.get_default_dtype())


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
