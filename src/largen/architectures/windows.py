"""Layers that look through a window: convolutions and pooling, as records.

Samples are arrays (*space, channels), such as (height, width, channels), with any number of
spatial axes; a window has one length for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass
from typing import Any

import numpy as np

from largen.architectures.layers import Layer, check_constants
from largen.arrays import integer
from largen.errors import InvalidInput, one_of

PADDINGS = ("SAME", "VALID", "CIRCULAR")


@dataclass(frozen=True, repr=False)
class Windowed(Layer):
    """Base of the layers that slide a window; not for use by itself."""

    # Tuples of integers, one for each axis, once the record is made; Any lets numbers in and
    # wrong values reach their named errors.
    window: Any
    strides: Any = 1
    padding: Any = "SAME"

    _bare = ("window",)

    def __post_init__(self):
        object.__setattr__(self, "window", lengths("window", self.window))
        object.__setattr__(self, "strides", self._per_axis("strides", self.strides))
        one_of("padding", self.padding, PADDINGS)

    def _per_axis(self, name: str, value: Any) -> tuple[int, ...]:
        found = lengths(name, value, repeat=len(self.window))
        if len(found) != len(self.window):
            raise InvalidInput(
                f"{name}: has {len(found)} entries, the window {self.window} has "
                f"{len(self.window)} axes."
            )
        return found

    def _default(self, field: Field) -> Any:
        if field.name in ("strides", "dilation"):
            return (1,) * len(self.window)
        return super()._default(field)


@dataclass(frozen=True, repr=False)
class _WindowedWeights(Windowed):
    dilation: Any = 1
    weight_std: float = 1.0
    bias_std: float = 0.0
    width_ratio: Any = 1

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "dilation", self._per_axis("dilation", self.dilation))
        check_constants(self)


@dataclass(frozen=True, repr=False)
class Conv(_WindowedWeights):
    """Convolution, ``y_p = σ_w Σ_k W_k x_{s·p + d·k} · (multiplier) + σ_b b``.

    Weights are shared by all positions p. Samples are (*space, channels).

    Parameters
    ----------
    window
        Length of the window along each spatial axis; their number is the number of axes.
    strides
        s, a number or one for each axis.
    padding
        ``"SAME"`` (zeros outside), ``"VALID"`` (positions inside only) or ``"CIRCULAR"``
        (periodic).
    dilation
        d, a number or one for each axis.
    weight_std
        σ_w, of order one; the factor 1/√fan_in, with fan-in (window's size) × (channels), is
        the parameterization's.
    bias_std
        σ_b, of order one.
    width_ratio
        How many channels it makes per unit of width, as in :class:`Dense`.
    groups
        Channels are split into so many groups that do not see each other.

    Raises
    ------
    InvalidInput
        If a length, stride, dilation or number of groups is not a positive integer, the padding
        is not known, or a deviation is not one.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Conv((3, 3), strides=2, weight_std=1.5)
    Conv((3, 3), strides=(2, 2), weight_std=1.5)
    """

    groups: Any = 1

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "groups", integer("groups", self.groups, at_least=1))


@dataclass(frozen=True, repr=False)
class ConvTranspose(_WindowedWeights):
    """Transposed convolution: the map that goes back over :class:`Conv`'s strides.

    A sample is spread out with ``strides − 1`` zeros between its positions, and convolved with
    stride 1. Parameters are those of :class:`Conv`; the fan-in counts the whole window.

    Examples
    --------
    >>> import largen as lg
    >>> lg.ConvTranspose((2, 2), strides=2, padding="VALID")
    ConvTranspose((2, 2), strides=(2, 2), padding='VALID')
    """


@dataclass(frozen=True, repr=False)
class LocallyConnected(_WindowedWeights):
    """Convolution without shared weights: every position has weights and a bias of its own.

    Parameters are those of :class:`Conv`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.LocallyConnected((3,), padding="VALID")
    LocallyConnected((3,), padding='VALID')
    """


@dataclass(frozen=True, repr=False)
class Pool(Windowed):
    """Base of pooling layers; strides are the window's lengths unless given."""

    strides: Any = None
    padding: Any = "VALID"

    def __post_init__(self):
        if self.strides is None:
            object.__setattr__(self, "strides", self.window)
        super().__post_init__()

    def _default(self, field: Field) -> Any:
        return self.window if field.name == "strides" else super()._default(field)


@dataclass(frozen=True, repr=False)
class AvgPool(Pool):
    """Average over each window; with ``"SAME"``, over what of it lies inside the sample.

    Parameters
    ----------
    window
        Length of the window along each spatial axis.
    strides
        A number or one for each axis; the window's lengths by default.
    padding
        As in :class:`Conv`; ``"VALID"`` by default.

    Examples
    --------
    >>> import largen as lg
    >>> lg.AvgPool((2, 2))
    AvgPool((2, 2))
    """


@dataclass(frozen=True, repr=False)
class SumPool(Pool):
    """Sum over each window. Parameters are those of :class:`AvgPool`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.SumPool((2, 2), strides=1)
    SumPool((2, 2), strides=(1, 1))
    """


@dataclass(frozen=True, repr=False)
class MaxPool(Pool):
    """Largest entry of each window. Parameters are those of :class:`AvgPool`.

    Finite networks have it; its kernel is an expectation of a maximum of many correlated
    Gaussians, which has no closed form.

    Examples
    --------
    >>> import largen as lg
    >>> lg.MaxPool((2, 2))
    MaxPool((2, 2))
    """


@dataclass(frozen=True, repr=False)
class GlobalAvgPool(Layer):
    """Average over all positions.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.Conv((3, 3)), lg.GlobalAvgPool(), lg.Dense())
    serial(Conv((3, 3)), GlobalAvgPool(), Dense())
    """


@dataclass(frozen=True, repr=False)
class GlobalSumPool(Layer):
    """Sum over all positions.

    Examples
    --------
    >>> import largen as lg
    >>> lg.GlobalSumPool()
    GlobalSumPool()
    """


@dataclass(frozen=True, repr=False)
class Flatten(Layer):
    """All positions and channels as one axis of features.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.Conv((3, 3)), lg.Activation("relu"), lg.Flatten(), lg.Dense())
    serial(Conv((3, 3)), Activation('relu'), Flatten(), Dense())
    """


def dilation_of(layer: Windowed) -> tuple[int, ...]:
    """Return a layer's dilation along each axis; pooling has none."""
    return getattr(layer, "dilation", (1,) * len(layer.window))


def lengths(name: str, value: Any, repeat: int = 1) -> tuple[int, ...]:
    """Check a tuple of positive integers at the door; a number stands for ``repeat`` of it."""
    if isinstance(value, (int, np.integer)):
        value = (value,) * repeat
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise InvalidInput(f"{name}: wanted an integer or a tuple of them, got {value!r}.")
    found = tuple(integer(name, entry, at_least=1) for entry in value)
    if not found:
        raise InvalidInput(f"{name}: wanted at least one axis, got {value!r}.")
    return found
