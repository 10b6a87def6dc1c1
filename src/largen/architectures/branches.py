"""Layers made of branches that read the same input, as records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from largen.architectures.containers import Parallel
from largen.architectures.traits import Layer, check_layer
from largen.errors import InvalidInput
from largen.programs import operations
from largen.programs.builder import Builder
from largen.programs.signals import Signal, difference


@dataclass(frozen=True, repr=False)
class Branches(Parallel):
    """Base of the layers with several branches that read the same input."""

    branches: tuple[Layer, ...]

    def __init__(self, *branches: Any):
        if len(branches) < 2:
            raise InvalidInput(
                f"{type(self).__name__}: wanted at least two branches, got {len(branches)}."
            )
        for position, branch in enumerate(branches):
            check_layer(f"branch {position} of {type(self).__name__}", branch)
        object.__setattr__(self, "branches", tuple(branches))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.branches))})"


@dataclass(frozen=True, repr=False, init=False)
class Concatenate(Branches):
    """Concatenation of the features of several branches along the channel axis.

    Parameters
    ----------
    branches
        Two or more layers that read the same input and agree in their spatial axes.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.Concatenate(lg.Activation("relu"), lg.Activation("tanh"))
    Concatenate(Activation('relu'), Activation('tanh'))
    """

    def signal_behind(self, signal: Signal) -> Signal:
        """Return a signal with the features of all branches, which must have equal positions."""
        signals = [branch.signal_behind(signal) for branch in self.branches]
        for other in signals[1:]:
            if (other.space, other.from_data) != (signals[0].space, signals[0].from_data):
                raise InvalidInput(
                    f"net: branches of {self!r} cannot be put side by side; "
                    f"{difference(signals[0], other)}."
                )
        return replace(signals[0], copies=sum(each.copies for each in signals))

    def lower(self, program: Builder, value: int) -> int:
        """Append the branches and their concatenation."""
        parts = self.lower_parts(program, value)
        copies = [program.signal(part).copies for part in parts]
        shares = tuple(float(each / Fraction(sum(copies))) for each in copies)
        behind = replace(program.signal(parts[0]), copies=sum(copies))
        return program.add(operations.Concatenate(parts, shares), behind)


@dataclass(frozen=True, repr=False, init=False)
class Product(Branches):
    """Elementwise product of branches, as in gated units.

    Parameters
    ----------
    branches
        Two or more layers that read the same input and agree in their features.

    Examples
    --------
    >>> import largen as lg
    >>> gate = lg.serial(lg.Dense(), lg.Activation("sigmoid"))
    >>> lg.layers.Product(lg.Dense(), gate)
    Product(Dense(), serial(Dense(), Activation('sigmoid')))
    """

    @property
    def keeps_shape(self) -> bool:
        """Whether all branches keep the spatial axes and the features per unit of width."""
        return all(branch.keeps_shape for branch in self.branches)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the branches, which must be the same for all of them."""
        signals = [branch.signal_behind(signal) for branch in self.branches]
        for other in signals[1:]:
            if other != signals[0]:
                raise InvalidInput(
                    f"net: branches of {self!r} have different shapes; "
                    f"{difference(signals[0], other)}."
                )
        return signals[0]

    def lower(self, program: Builder, value: int) -> int:
        """Append the branches and their product."""
        return program.add(operations.Product(self.lower_parts(program, value)))
