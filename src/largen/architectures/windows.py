"""Layers that slide a window over positions, as records: convolutions, and what pools share.

Samples are arrays (*space, channels), such as (height, width, channels), with any number of
spatial axes; a window has one length for each of them.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, replace
from fractions import Fraction
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from largen.architectures.traits import Affine, Layer
from largen.arrays import numbers
from largen.errors import InvalidInput, one_of
from largen.programs.builder import Builder
from largen.programs.windows import Window, transposed_axis, window_axis
from largen.scalars import integer, sequence
from largen.text import shown

PADDINGS = ("SAME", "VALID", "CIRCULAR")
MOST_AXES = 16  # largest number of spatial axes


@dataclass(frozen=True, repr=False)
class Windowed(Layer):
    """Base of the layers that slide a window; not for use by itself."""

    # After __post_init__ these are tuples of integers, one for each axis. The annotation Any admits
    # single numbers, and lets wrong values reach their named errors.
    window: Any
    strides: Any = field(default=1, kw_only=True)
    padding: Any = field(default="SAME", kw_only=True)

    _bare = ("window",)

    def __post_init__(self):
        if isinstance(self.window, Integral):
            raise InvalidInput(
                "window: wanted a tuple, with one length for each spatial axis, such as (3,) or "
                f"(3, 3), got {self.window}.{self._of_a_number()}"
            )
        object.__setattr__(self, "window", lengths("window", self.window))
        object.__setattr__(self, "strides", self._per_axis("strides", self.strides))
        object.__setattr__(self, "padding", self._padding())

    def _of_a_number(self) -> str:
        """Return a hint about a number that was given instead of a window, or an empty text."""
        return ""

    def _per_axis(self, name: str, value: Any) -> tuple[int, ...]:
        values = lengths(name, value, repeat=len(self.window))
        if len(values) != len(self.window):
            raise InvalidInput(
                f"{name}: has {len(values)} entries, the window {self.window} has "
                f"{len(self.window)} axes."
            )
        return values

    def _default(self, one: Field) -> Any:
        if one.name in ("strides", "dilation"):
            return (1,) * len(self.window)
        return super()._default(one)

    def _padding(self) -> str | tuple[tuple[int, int], ...]:
        """Return the padding after a check: a name, or two numbers for each axis."""
        if isinstance(self.padding, str) or self.padding is None:
            return one_of("padding", self.padding, PADDINGS)
        wanted = "a name, a number, or (before, after) for each axis"
        if isinstance(self.padding, Integral):
            end = integer("padding", self.padding, at_least=0)
            return ((end, end),) * len(self.window)
        axes = sequence("padding", self.padding, wanted)
        if len(axes) != len(self.window):
            raise InvalidInput(
                f"padding: has {len(axes)} entries, the window {self.window} has "
                f"{len(self.window)} axes; wanted {wanted}."
            )
        pairs = []
        for axis in axes:
            ends = (axis, axis) if isinstance(axis, Integral) else sequence("padding", axis, wanted)
            if len(ends) != 2:
                raise InvalidInput(f"padding: wanted {wanted}, got {shown(self.padding)}.")
            before, after = (integer("padding", end, at_least=0) for end in ends)
            pairs.append((before, after))
        return tuple(pairs)

    @property
    def geometry(self) -> Window:
        """The geometry of the window's taps."""
        return Window(self.window, self.strides, dilation_of(self), self.padding)

    def _places(self, space: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the number of windows along each axis."""
        if space is None:
            return None
        self._check_axes(space)
        behind = []
        geometry = self.window, self.strides, dilation_of(self), self.geometry.paddings()
        for axis in zip(space, *geometry, strict=True):
            axis_window = window_axis(*axis)
            if axis_window.positions < 1:
                raise InvalidInput(
                    f"net: the window of {self!r} is larger than its input, whose spatial axes "
                    f'are {space}; use padding="SAME" or a smaller window.'
                )
            if self.padding == "CIRCULAR" and max(axis_window.before, axis_window.after) > axis[0]:
                raise InvalidInput(
                    f"net: the window of {self!r} with circular padding wraps around its input "
                    f"more than once; the spatial axes are {space}. Use a smaller window."
                )
            behind.append(axis_window.positions)
        return tuple(behind)

    def _check_axes(self, space: tuple[int, ...]) -> None:
        if len(space) != len(self.window):
            raise InvalidInput(
                f"net: {self!r} requires samples of {len(self.window)} spatial axes and one of "
                f"channels, last, got spatial axes {space}. Reshape the samples: grey images of "
                "28 by 28 to (sample, 28, 28, 1); for estimators, sample_shape=(28, 28, 1)."
            )


@dataclass(frozen=True, repr=False)
class _Dilated(Windowed):
    dilation: Any = field(default=1, kw_only=True)


@dataclass(frozen=True, repr=False)
class _WindowedWeights(Affine, _Dilated):
    tap_variances: Any = field(default=None, kw_only=True)

    def __post_init__(self):
        Windowed.__post_init__(self)
        object.__setattr__(self, "dilation", self._per_axis("dilation", self.dilation))
        if self.tap_variances is not None:
            object.__setattr__(self, "tap_variances", self._of_taps())
        Affine.__post_init__(self)

    def _of_taps(self) -> tuple[tuple[float, ...], ...]:
        """Return the relative variances of taps after a check, a tuple for each axis."""
        wanted = f"{len(self.window)} sequences of positive numbers, one for each axis"
        axes = sequence("tap_variances", self.tap_variances, wanted)
        if len(self.window) == 1 and not any(map(np.ndim, axes)):
            axes = [axes]
        found = tuple(numbers("tap_variances", axis) for axis in axes)
        if tuple(axis.shape for axis in found) != tuple((n,) for n in self.window):
            raise InvalidInput(
                f"tap_variances: wanted {wanted}, of the lengths {self.window}, got "
                f"{shown(self.tap_variances)}."
            )
        if not all((axis > 0).all() for axis in found):
            raise InvalidInput(f"tap_variances: wanted {wanted}, got {shown(self.tap_variances)}.")
        return tuple(tuple(axis.tolist()) for axis in found)

    @property
    def geometry(self) -> Window:
        """The geometry of the window's taps, with the number of taps times their variances."""
        if self.tap_variances is None:
            return super().geometry
        weights = tuple(tuple(len(axis) * v for v in axis) for axis in self.tap_variances)
        return replace(super().geometry, weights=weights)

    @property
    def keeps_shape(self) -> bool:
        """Whether the layer has one output for each position of its input."""
        return self.geometry.around_each

    def space_behind(self, space: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the number of windows along each axis."""
        return self._places(space)

    def _of_a_number(self) -> str:
        return (
            f" If the number of channels of {type(self).__name__} is meant, it is the width: "
            f"lg.train(run, width={self.window})."
        )

    @property
    def patch(self) -> Fraction:
        """The number of positions of the window."""
        return Fraction(prod(self.window))

    def lower(self, program: Builder, value: int) -> int:
        """Append the affine map of the patches under the window."""
        return self.lower_map(program, value, window=self.geometry)


@dataclass(frozen=True, repr=False)
class Conv(_WindowedWeights):
    """Convolution, ``y_p = σ_w Σ_k W_k x_{s·p + d·k} · (multiplier) + σ_b b``.

    Weights are shared by all positions p. Samples are (*space, channels).

    Parameters
    ----------
    window
        The length of the window along each spatial axis; their number is the number of axes.
    strides
        s, one number, or one for each axis.
    padding
        ``"SAME"`` (zeros outside), ``"VALID"`` (positions inside only) or ``"CIRCULAR"``
        (periodic); or the number of zeros at both ends of all axes, or of each axis, or pairs
        (before, behind) for each axis, as in PyTorch with ``padding=1``.
    dilation
        d, one number, or one for each axis.
    weight_std
        σ_w, of order one; the factor 1/√fan_in, with fan-in (window's size) × (channels), is
        the parameterization's.
    bias_std
        σ_b, of order one.
    width_ratio
        The number of output channels per unit of width, as in :class:`Dense`.
    tap_variances
        ν_k, the variances of the weights at the positions of the window in units of σ_w² over the
        number of channels: ``(1/4, 1/2, 1/4)``, and for several axes a sequence for each of them,
        whose products are meant (Bahri and Hanin, Les Houches lectures, eq. (18)). By default each
        is 1/(window's size). Factors √ν multiply the weights.
    groups
        The number of groups into which channels are split; outputs of a group depend on inputs of
        the same group only.

    Raises
    ------
    InvalidInput
        If a length, stride, dilation or number of groups is not a positive integer, the padding
        is not known, a standard deviation is not a number ≥ 0, or ``tap_variances`` are not
        positive numbers that fit the window.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Conv((3, 3), strides=2, weight_std=1.5)
    Conv((3, 3), strides=(2, 2), weight_std=1.5)
    """

    groups: Any = field(default=1, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "groups", integer("groups", self.groups, at_least=1))

    @property
    def patch(self) -> Fraction:
        """The number of positions of the window, times the part of the channels in a group."""
        return Fraction(prod(self.window), self.groups)

    def lower(self, program: Builder, value: int) -> int:
        """Append the affine map of the patches under the window, in groups."""
        return self.lower_map(program, value, window=self.geometry, groups=self.groups)


@dataclass(frozen=True, repr=False)
class ConvTranspose(_WindowedWeights):
    """Transposed convolution, which has ``strides`` times as many outputs as input positions.

    A sample with ``strides − 1`` zeros inserted between its positions is convolved with stride 1.
    Parameters are those of :class:`Conv`; the fan-in counts the whole window.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.ConvTranspose((2, 2), strides=2, padding="VALID")
    ConvTranspose((2, 2), strides=(2, 2), padding='VALID')
    """

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.padding, str):
            raise InvalidInput(
                f"padding: ConvTranspose takes one of {', '.join(PADDINGS)}, got {self.padding}."
            )

    @property
    def geometry(self) -> Window:
        """The geometry of the window's taps."""
        return replace(super().geometry, transposed=True)

    def space_behind(self, space: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the number of positions along each axis."""
        if space is None:
            return None
        self._check_axes(space)
        axes = zip(space, self.window, self.strides, self.dilation, strict=True)
        return tuple(transposed_axis(*axis, self.padding).positions for axis in axes)


@dataclass(frozen=True, repr=False)
class LocallyConnected(_WindowedWeights):
    """Convolution without shared weights: every output position has its own weights and bias.

    Parameters are those of :class:`Conv`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.LocallyConnected((3,), padding="VALID")
    LocallyConnected((3,), padding='VALID')
    """

    def lower(self, program: Builder, value: int) -> int:
        """Append the affine map of the patches under the window, with a weight at each position."""
        return self.lower_map(program, value, window=self.geometry, tied=False)


def dilation_of(layer: Windowed) -> tuple[int, ...]:
    """Return a layer's dilation along each axis, 1 for pooling."""
    return getattr(layer, "dilation", (1,) * len(layer.window))


def lengths(name: str, value: Any, repeat: int = 1) -> tuple[int, ...]:
    """Return a tuple of positive integers after a check; repeats a number ``repeat`` times."""
    if isinstance(value, (int, np.integer)):
        value = (value,) * repeat
    entries = sequence(name, value, "an integer or a tuple of them")
    if not 1 <= len(entries) <= MOST_AXES:
        raise InvalidInput(f"{name}: wanted 1 to {MOST_AXES} axes, got {shown(value)}.")
    return tuple(integer(name, entry, at_least=1) for entry in entries)
