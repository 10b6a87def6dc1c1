"""Normalisations as people write them: means over channels, and what is made of these.

With infinitely many channels the mean m and the mean square of a value are numbers of a sample. A
layer norm is (x − m)/√(v + ε) with the variance v, however it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from largen.architectures import Layer, LayerNorm, RMSNorm
from largen.reading.calls import Call
from largen.reading.jax.elementwise import Steps, values
from largen.reading.reader import Reader
from largen.reading.values import Value

POINTS = np.linspace(0.11, 9.7, 60)  # values of a mean at which functions of it are compared
POWERS = (1.0, 0.5, -0.5, 2.0)
ROUNDING = 1e-9
SMALL = 1e-14  # an ε below this is rounding
NO_DIFFERENCE = "this difference of means over channels has no rule"


@dataclass(frozen=True)
class Centred:
    """A value without its mean over channels."""

    of: Value
    over: tuple[int, ...]  # the axes of the mean
    square: bool = False  # whether it is squared

    node = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.of.shape


@dataclass(frozen=True)
class Statistic:
    """A power of a mean over channels, (slope·M + offset)^power."""

    of: Value
    over: tuple[int, ...]  # the axes of the mean
    kind: str  # what M is: "mean", "square" or "variance"
    axes: tuple[int | None, ...]  # the axes of the value that its axes are, None for others
    shape: tuple[int, ...]
    slope: float = 1.0
    offset: float = 0.0
    power: float = 1.0

    node = ""

    def at(self, points: np.ndarray) -> np.ndarray:
        """Return the statistic for values of M."""
        return (self.slope * points + self.offset) ** self.power

    def like(self, other: Statistic) -> bool:
        """Whether another one is of the same value and axes."""
        return (self.of, self.over, self.axes) == (other.of, other.over, other.axes)

    def fits(self, of: Value, over: tuple[int, ...]) -> bool:
        """Whether it is broadcast along the axes of its mean where it meets its value."""
        aligned = all(axis in (None, place) for place, axis in enumerate(self.axes))
        return aligned and len(self.axes) == len(of.shape) and (self.of, self.over) == (of, over)


Mean = Centred | Statistic


def mean(reader: Reader, call: Call, value: Value | Centred, over: tuple[int, ...]) -> Statistic:
    """Return the sum of a value, or of its square, over axes that channels are among."""
    base = value.of if isinstance(value, Centred) else value
    kept = tuple(axis for axis in range(len(base.shape)) if axis not in over)
    count = float(prod(base.shape[axis] for axis in over))
    if isinstance(value, Centred):
        if not value.square or value.over != over:
            raise reader.refused(call, "of a value without its mean, only the variance has a rule")
        return Statistic(base, over, "variance", kept, call.shape, count)
    squared = _squared(reader, call)
    of, kind = (value, "mean") if squared is None else (squared, "square")
    _check_axes(reader, call, of, over)
    return Statistic(of, over, kind, kept, call.shape, count)


def _squared(reader: Reader, call: Call) -> Value | None:
    """Return the value whose square is the argument of a call, if it is one."""
    before = reader.call(call.args[0])
    if before.op != "function" or not _is_square(before.args[1]):
        return None
    found = reader.seen(before.args[0])
    return found if isinstance(found, Value) else None


def _is_square(phi: Steps) -> bool:
    return bool(np.allclose(values(phi, -POINTS), POINTS**2, rtol=ROUNDING))


def _check_axes(reader: Reader, call: Call, value: Value, over: tuple[int, ...]) -> None:
    axes = {value.axes[axis] for axis in over} - {"one"}
    space = {axis for axis in value.axes if isinstance(axis, int)}
    if value.data or axes not in ({"channels"}, {"channels"} | space):
        raise reader.refused(
            call, "wanted a mean over channels of hidden values, or channels and positions"
        )


def of_function(reader: Reader, call: Call, given: Mean, phi: Steps) -> Mean:
    """Return a function of a mean, or the square of a value without its mean."""
    if isinstance(given, Centred):
        if given.square or not _is_square(phi):
            raise reader.refused(call, "a function of a value without its mean has no rule")
        return replace(given, square=True)
    return _fitted(reader, call, given, values(phi, given.at(POINTS)))


def scaled(reader: Reader, call: Call, given: Mean, factor: float) -> Mean:
    """Return a mean times a number."""
    if isinstance(given, Centred):
        if factor == 1:
            return given
        raise reader.refused(call, "a multiple of a value without its mean has no rule")
    return _fitted(reader, call, given, factor * given.at(POINTS))


def _fitted(reader: Reader, call: Call, given: Statistic, values: np.ndarray) -> Statistic:
    """Return the statistic whose values at POINTS are the given ones."""
    for power in POWERS:
        with np.errstate(all="ignore"):
            line = values ** (1 / power)
        slope = (line[-1] - line[0]) / (POINTS[-1] - POINTS[0])
        offset = line[0] - slope * POINTS[0]
        if np.allclose(line, slope * POINTS + offset, rtol=ROUNDING, atol=0):
            return replace(given, slope=slope, offset=offset, power=power, shape=call.shape)
    raise reader.refused(call, "this function of a mean over channels has no rule")


def reshaped(reader: Reader, call: Call, given: Mean, axes: tuple[int | None, ...] | None) -> Mean:
    """Return a mean with other axes of length one."""
    if isinstance(given, Centred) or axes is None:
        raise reader.refused(call, "a reshape of a mean over channels has no rule")
    return replace(given, axes=axes, shape=call.shape)


def difference(reader: Reader, call: Call, one: Any, two: Any) -> Mean:
    """Return a value without its mean, or the mean square without the square of the mean."""
    if not isinstance(two, Statistic):
        raise reader.refused(call, NO_DIFFERENCE)
    if isinstance(one, Value):
        if _is_plain(two, "mean", 1.0) and two.fits(one, two.over):
            return Centred(one, two.over)
    elif isinstance(one, Statistic) and one.like(two):
        plain = _is_plain(one, "square", 1.0) and _is_plain(two, "mean", 2.0)
        if plain:
            return replace(one, kind="variance")
    raise reader.refused(call, NO_DIFFERENCE)


def _is_plain(given: Statistic, kind: str, power: float) -> bool:
    close = abs(given.slope - 1) < ROUNDING and abs(given.offset) < ROUNDING
    return close and (given.kind, given.power) == (kind, power)


def quotient(reader: Reader, call: Call, one: Any, by: Statistic, inverse: bool) -> Value:
    """Return a value over the root of a mean square or variance, a normalisation.

    ``inverse``: whether ``by`` is one over the root, which multiplies the value.
    """
    centred = isinstance(one, Centred)
    value, kind = (one.of, "variance") if centred else (one, "square")
    if (
        (by.power, by.kind) != (-0.5 if inverse else 0.5, kind)
        or not isinstance(value, Value)
        or (centred and (one.square or one.over != by.over))
        or not by.fits(value, by.over)
    ):
        raise reader.refused(
            call,
            "values times means over channels have a rule where they are a layer norm, "
            "(x − mean)/√(variance + ε), or x/√(mean square + ε)",
        )
    space = any(isinstance(value.axes[axis], int) for axis in by.over)
    norm = LayerNorm if centred else RMSNorm
    eps = by.offset / by.slope
    eps = 0.0 if abs(eps) < SMALL else float(f"{eps:.9g}")  # without the rounding of its fit
    layer: Layer = norm(over_space=space, eps=eps)
    name = "layer_norm" if centred else "rms_norm"
    node = reader.layer(replace(call, op=name), layer, value)
    return reader.scaled(call, value.at(node, call.shape), by.slope**-0.5)
