"""Operations that write into memory that nobody needs any more, instead of into new memory.

New memory is not in the processor's cache. And what is added to a product of matrices can be where
the product is added up, which saves a pass over both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

aten = torch.ops.aten
# Operations that can write into the memory of an argument that nobody needs any more, and what
# does so, with the name of the argument that says where.
INTO = {
    aten.add.Tensor: (aten.add.out, "out"),
    aten.sub.Tensor: (aten.sub.out, "out"),
    aten.mul.Tensor: (aten.mul.out, "out"),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, "grad_input"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, "grad_input"),
    aten.gelu_backward.default: (aten.gelu_backward.grad_input, "grad_input"),
}


@dataclass
class Call:
    """One operation, whose arguments are given as text.

    Attributes
    ----------
    function
        What is called.
    arguments
        Each as text.
    uses, makes
        Names of the tensors among arguments and outputs.
    several
        Whether it returns several outputs, be it only one.
    """

    function: Any
    arguments: list[str]
    uses: list[str]
    makes: list[str] = field(default_factory=list)
    several: bool = False


Place = tuple[Any, ...]  # of a tensor: its memory, then where and how it lies in there


def in_place(calls: Sequence[Call], places: Mapping[str, Place], kept: set[Any]) -> list[Call]:
    """Return the calls, those that may do so writing into what ends with them.

    Parameters
    ----------
    calls
        In their order.
    places
        Of all tensors that they use or make, by name. Those that share memory are views of it.
    kept
        Memory that must not be written into.
    """
    last_use = {places[name][0]: i for i, call in enumerate(calls) for name in call.uses}
    found: list[Call] = []
    for i, call in enumerate(calls):
        ending: list[str] = []  # what may be written into
        if call.function in INTO:
            used = [places[name] for name in call.uses]
            ending = [
                name
                for name, place in zip(call.uses, used, strict=True)
                if place[1:] == places[call.makes[0]][1:]
                and place[0] not in kept
                and last_use[place[0]] == i
                and all(other == place for other in used if other[0] == place[0])
            ]
        added = _added_to_a_product(call, found[-1], ending, places) if found else None
        if added is not None:
            product = found.pop()
            call = Call(
                aten.baddbmm_.default,
                [added, *product.arguments],
                [added, *product.uses],
                call.makes,
            )
        elif ending:
            function, into = INTO[call.function]
            call = replace(
                call, function=function, arguments=[*call.arguments, f"{into}={ending[0]}"]
            )
        found.append(call)
    return found


def _added_to_a_product(
    call: Call, product: Call, ending: Sequence[str], places: Mapping[str, Place]
) -> str | None:
    """Return what a call adds to a product that ends with it, if that ends, too."""
    adds = call.function is aten.add.Tensor and len(call.arguments) == 2
    if not adds or product.function is not aten.bmm.default or product.makes[0] not in ending:
        return None
    factors = {places[name][0] for name in product.uses}
    others = (name for name in ending if name not in product.makes)
    return next((name for name in others if places[name][0] not in factors), None)
