"""Constant factors of positions, as a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from largen.architectures.traits import Layer
from largen.arrays import numbers
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import Scale
from largen.programs.signals import Signal


@dataclass(frozen=True, repr=False)
class ScalePositions(Layer):
    """A constant factor for each position, ``y_p = h_p x_p``.

    Behind an activation and before a sum over positions it is the read-out with weights h of
    Bahri and Hanin, Les Houches lectures, eq. (23),

        f = b + Σ_j W_j Σ_p h_p φ(z_jp),   K = σ_b² + σ_w² Σ_pp' h_p h_p' E[φ(z_p) φ(z'_p')].

    Parameters
    ----------
    factors
        h, an array of the shape of the spatial axes: (positions,) for sequences, (height, width)
        for images.

    Raises
    ------
    InvalidInput
        If the factors are not finite numbers with at least one axis, or the input has other
        spatial axes.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> weighted = lg.layers.ScalePositions([0.5, 0.3, 0.2]), lg.layers.GlobalSumPool()
    >>> net = lg.serial(lg.Conv((3,)), lg.Activation("relu"), *weighted, lg.Dense())
    >>> lg.nngp_kernel(net, np.ones((2, 3, 4))).shape
    (2, 2)
    """

    factors: Any

    _bare = ("factors",)
    linear = True

    def __post_init__(self):
        factors = numbers("factors", self.factors)
        if not factors.ndim or not factors.size:
            raise InvalidInput(
                "factors: wanted one number for each position, with the axes of a sample's "
                f"positions, got shape {factors.shape}."
            )
        object.__setattr__(self, "factors", _nested(factors.tolist()))

    @property
    def keeps_shape(self) -> bool:
        """True: there are as many positions and channels behind the layer."""
        return True

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the same signal, whose positions must be those of the factors."""
        space = np.shape(self.factors)
        if signal.space is not None and signal.space != space:
            raise InvalidInput(
                f"net: {self!r} has factors for the spatial axes {space}, and its input has "
                f"{signal.space}."
            )
        return replace(signal, sample=None)

    def lower(self, program: Builder, value: int) -> int:
        """Append the factors."""
        array = np.asarray(self.factors)
        return program.add(Scale((value,), tuple(array.ravel().tolist()), array.shape))


def _nested(entries: Any) -> Any:
    """Return nested lists as tuples, which can be compared and hashed."""
    return tuple(map(_nested, entries)) if isinstance(entries, list) else entries
