"""Values of a model while it is read: which axis of a tensor is what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

Axis = int | str


@dataclass(frozen=True)
class Value:
    """A tensor of the forward pass."""

    node: str  # the node of the graph whose value it is
    # What its axes are: samples, channels, spatial axes counted from 0, or "one" for an axis of
    # length one that was put in. Of data, all axes but that of samples are numbers until an affine
    # map says which of them are channels.
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]
    data: bool = False  # whether it is made of the input alone

    @property
    def space(self) -> tuple[int, ...]:
        """The lengths of the spatial axes in their order, which numbers them."""
        lengths = dict(zip(self.axes, self.shape, strict=True))
        found = sorted(axis for axis in self.axes if isinstance(axis, int))
        return tuple(lengths[axis] for axis in found)

    @property
    def channels(self) -> int | None:
        """The place of the axis of channels, if there is one."""
        return self.axes.index("channels") if "channels" in self.axes else None

    def moved(self, order: tuple[int, ...]) -> Value:
        """Return the value with its axes in another order."""
        axes, shape = (tuple(each[i] for i in order) for each in (self.axes, self.shape))
        return replace(self, axes=axes, shape=shape)

    def at(self, node: str, shape: tuple[int, ...], axes: tuple[Axis, ...] | None = None) -> Value:
        """Return the value of another node."""
        return Value(node, self.axes if axes is None else axes, shape)

    def without_ones(self) -> Value:
        """Return the value without axes of length one that were put in."""
        return self.moved(tuple(i for i, axis in enumerate(self.axes) if axis != "one"))


def reshaped(value: Value, shape: tuple[int, ...]) -> tuple[Value, bool] | None:
    """Return a value as seen by a reshape, and whether it makes channels of positions.

    Axes of length one may come and go, and all axes but that of samples may become one. None for
    another reshape.

    >>> reshaped(Value("a", ("sample", "channels", 0), (2, 8, 4)), (2, 32))
    (Value(node='a', axes=('sample', 'channels'), shape=(2, 32), data=False), True)
    """
    bare = value.without_ones()
    if (axes := _with_ones(bare, shape)) is not None:
        gone = [axis for axis in bare.axes if isinstance(axis, int) and axis not in axes]
        if gone and any(isinstance(axis, int) for axis in axes):
            return None
        return replace(value, axes=axes, shape=shape), bool(gone)
    if bare.axes[0] == "sample" and shape == (value.shape[0], prod(value.shape[1:])):
        # The order of features does not matter to a map of all of them.
        return replace(value, axes=("sample", "channels"), shape=shape), True
    return None


def _with_ones(value: Value, shape: tuple[int, ...]) -> tuple[Axis, ...] | None:
    """Return the axes of a value to whose shape axes of length one are added or removed."""
    axes: list[Axis] = []
    rest = list(zip(value.axes, value.shape, strict=True))
    for length in shape:
        if rest and rest[0][1] == length:
            axes.append(rest.pop(0)[0])
        elif length == 1:
            axes.append("one")
        else:
            return None
    # An axis of length one that disappears is a position or channel that is alone.
    return tuple(axes) if all(n == 1 and axis != "sample" for axis, n in rest) else None
