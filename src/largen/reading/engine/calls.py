"""A call of a forward pass at a population, and what a product with a parameter does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from largen.reading.engine.fields import Drawn

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Pending:
    """A call that is about to run."""

    index: int
    op: str
    args: Any
    kwargs: Any
    module: str
    line: str = ""  # of the user's code, if it is known and no module is

    @property
    def place(self) -> str:
        """The module or line and the function, for messages."""
        return f"{self.module or self.line or 'forward'} ({self.op})"


class Affine(NamedTuple):
    """What a product with a parameter does, besides its numbers."""

    weight: str  # the parameter
    bias: str | None
    fan_in: tuple[int, ...]  # the axes of the parameter that are summed over
    fan_out: int  # that of the outputs, which grows with the width if any of them does
    axis: int  # the axis of channels of what is multiplied, and of the outputs
    move: Callable[[np.ndarray], np.ndarray]  # of features, (*rows, rank)
    factors: tuple[tuple[float, float], tuple[float, float]]  # of the weights, and of the bias
    outputs: int  # the number of output channels
    part: str = ""  # which of the matrices in one parameter


class Computed(NamedTuple):
    """A value that a rule computed and that is no result of a call."""

    value: Any


@dataclass(frozen=True)
class ReadOut:
    """The last product: its place among the calls, its field and the channels of its output."""

    index: int
    drawn: Drawn
    axis: int
    outputs: int
    # What the call makes of the product, (*rows, output), if it makes more than that.
    result: Callable[[Any], Any] | None = None


class Offset(NamedTuple):
    """A bias that is added behind the last product: its call, and what each entry adds."""

    place: int
    parts: np.ndarray  # (entry, *shape of the call's result)
    variance: float
    rate: float
