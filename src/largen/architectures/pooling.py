"""Layers that pool positions, and ``Flatten``, as records."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, replace
from math import prod
from typing import Any, ClassVar

from largen.architectures.traits import Layer
from largen.architectures.windows import Windowed
from largen.errors import InvalidInput
from largen.programs import operations
from largen.programs.builder import Builder
from largen.programs.signals import Signal


@dataclass(frozen=True, repr=False)
class Pool(Windowed):
    """Base of pooling layers; strides are the window's lengths unless given."""

    strides: Any = field(default=None, kw_only=True)
    padding: Any = field(default="VALID", kw_only=True)

    def __post_init__(self):
        if self.strides is None:
            object.__setattr__(self, "strides", self.window)
        super().__post_init__()
        for length, ends in zip(self.window, self.geometry.paddings(), strict=True):
            if not isinstance(ends, str) and max(ends) >= length:
                raise InvalidInput(
                    f"padding: {self.padding} has windows of {self.window} without a position of "
                    "the sample; wanted fewer zeros than the window is long."
                )

    def _default(self, one: Field) -> Any:
        return self.window if one.name == "strides" else super()._default(one)

    @property
    def keeps_shape(self) -> bool:
        """Whether the layer has one output for each position of its input."""
        return self.geometry.around_each

    def signal_behind(self, signal: Signal) -> Signal:
        """Return a signal of as many features at the windows' positions."""
        return replace(signal, space=self._places(signal.space), sample=None)

    def _lowered(self, operation: operations.Operation, program: Builder) -> int:
        (value,) = operation.reads
        return program.add(operation, self.signal_behind(program.signal(value)))


@dataclass(frozen=True, repr=False)
class AvgPool(Pool):
    """Average over each window; with ``"SAME"``, over its positions inside the sample.

    Parameters
    ----------
    window
        The length of the window along each spatial axis.
    strides
        One number, or one for each axis; the window's lengths by default.
    padding
        As in :class:`Conv`; ``"VALID"`` by default.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.AvgPool((2, 2))
    AvgPool((2, 2))
    """

    linear = True

    def lower(self, program: Builder, value: int) -> int:
        """Append the average."""
        return self._lowered(operations.Pool((value,), self.geometry), program)


@dataclass(frozen=True, repr=False)
class SumPool(Pool):
    """Sum over each window, ``y_p = Σ_k x_{s·p + k}``; parameters are those of :class:`AvgPool`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.SumPool((2, 2), strides=1)
    SumPool((2, 2), strides=(1, 1))
    """

    linear = True

    def lower(self, program: Builder, value: int) -> int:
        """Append the sum."""
        return self._lowered(operations.Pool((value,), self.geometry, total=True), program)


@dataclass(frozen=True, repr=False)
class MaxPool(Pool):
    """Largest entry of each window. Parameters are those of :class:`AvgPool`.

    It is implemented for finite networks. Its kernel is the expectation of a maximum of many
    correlated Gaussians, which has no closed form.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.MaxPool((2, 2))
    MaxPool((2, 2))
    """

    homogeneous = True

    def lower(self, program: Builder, value: int) -> int:
        """Append the maximum."""
        return self._lowered(operations.Maximum((value,), self.geometry), program)


@dataclass(frozen=True, repr=False)
class _GlobalPool(Layer):
    linear = True

    _total: ClassVar[bool] = False

    def lower(self, program: Builder, value: int) -> int:
        """Append the average or the sum over all positions."""
        behind = self.signal_behind(program.signal(value))
        return program.add(operations.Pool((value,), None, self._total), behind)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return a signal without positions."""
        if signal.space == ():
            raise InvalidInput(
                f"net: {self!r} averages or adds over positions, and its input has none."
            )
        return replace(signal, space=(), sample=None)


@dataclass(frozen=True, repr=False)
class GlobalAvgPool(_GlobalPool):
    """Average over all positions.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.Conv((3, 3)), lg.GlobalAvgPool(), lg.Dense())
    serial(Conv((3, 3)), GlobalAvgPool(), Dense())
    """


@dataclass(frozen=True, repr=False)
class GlobalSumPool(_GlobalPool):
    """Sum over all positions, ``y = Σ_p x_p``.

    Kernels are those of :class:`GlobalAvgPool` times the square of the number of positions.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.GlobalSumPool()
    GlobalSumPool()
    """

    _total = True


@dataclass(frozen=True, repr=False)
class Flatten(Layer):
    """Reshape of all positions and channels to one axis of features.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.Conv((3, 3)), lg.Activation("relu"), lg.Flatten(), lg.Dense())
    serial(Conv((3, 3)), Activation('relu'), Flatten(), Dense())
    """

    linear = True

    def signal_behind(self, signal: Signal) -> Signal:
        """Return a signal without positions, with one feature for each position and channel."""
        copies = signal.copies * prod(signal.space or ())
        return replace(signal, space=(), copies=copies, sample=None)

    def lower(self, program: Builder, value: int) -> int:
        """Append the reshape."""
        behind = self.signal_behind(program.signal(value))
        return program.add(operations.Flatten((value,)), behind)
