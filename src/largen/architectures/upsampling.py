"""Upsampling, as a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from largen.architectures.traits import Layer
from largen.architectures.windows import lengths
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import Pool
from largen.programs.signals import Signal
from largen.programs.windows import Window


@dataclass(frozen=True, repr=False)
class Upsample(Layer):
    """Nearest-neighbour upsampling, ``y_p = x_{⌊p/factor⌋}`` along each spatial axis.

    Parameters
    ----------
    factor
        How many times each position is repeated, one number for each spatial axis, such as (2, 2).

    Raises
    ------
    InvalidInput
        If a factor is not a positive integer, or there is not one for each axis of the input.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.serial(lg.layers.Upsample((2,)), lg.Conv((3,)), lg.GlobalAvgPool(), lg.Dense())
    >>> lg.nngp_kernel(net, np.ones((2, 4, 3))).shape
    (2, 2)
    """

    factor: Any

    _bare = ("factor",)
    linear = True

    def __post_init__(self):
        object.__setattr__(self, "factor", lengths("factor", self.factor))

    def signal_behind(self, signal: Signal) -> Signal:
        """Return a signal with as many times the positions along each axis."""
        if signal.space is None:
            return signal
        if len(signal.space) != len(self.factor):
            raise InvalidInput(
                f"net: {self!r} is for samples of {len(self.factor)} spatial axes and one of "
                f"channels, got spatial axes {signal.space}."
            )
        space = tuple(n * f for n, f in zip(signal.space, self.factor, strict=True))
        return replace(signal, space=space, sample=None)

    def lower(self, program: Builder, value: int) -> int:
        """Append sums over windows of positions with ``factor − 1`` zeros between them."""
        ones = (1,) * len(self.factor)
        window = Window(self.factor, self.factor, ones, "VALID", transposed=True)
        behind = self.signal_behind(program.signal(value))
        return program.add(Pool((value,), window, total=True), behind)
