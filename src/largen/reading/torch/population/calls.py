"""A call of a forward pass at a population, and what a product with a parameter does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from largen.reading.torch.population.fields import Drawn

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Pending:
    """A call that is about to run."""

    index: int
    op: str
    args: Any
    kwargs: Any
    module: str

    @property
    def place(self) -> str:
        """The module and the function, for messages."""
        return f"{self.module or 'forward'} ({self.op})"


class Affine(NamedTuple):
    """What a product with a parameter does, besides its numbers."""

    weight: str  # the parameter, with the part of it where a matrix is several ones
    bias: str | None
    fan_in: tuple[int, ...]  # the axes of the parameter that are summed over
    fan_out: int
    axis: int  # the axis of channels of what is multiplied, and of the outputs
    move: Callable[[Tensor], Tensor]  # of features, (*rows, rank)
    factors: tuple[tuple[float, float], tuple[float, float]]  # of the weights, and of the bias
    outputs: int  # the number of output channels
    part: str = ""  # which of the matrices in one parameter


class Computed(NamedTuple):
    """A value that a rule computed and that is no result of a call."""

    tensor: Tensor


@dataclass(frozen=True)
class ReadOut:
    """The last product: its place among the calls, its field and the channels of its output."""

    index: int
    drawn: Drawn
    axis: int
    outputs: int
