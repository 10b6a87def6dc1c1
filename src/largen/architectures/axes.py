"""The order of a sample's axes, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from largen.architectures.traits import Layer
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import MoveChannels
from largen.programs.signals import Signal


@dataclass(frozen=True, repr=False)
class Axes(Layer):
    """The order of a sample's axes, declared once: the first layer of a network.

    Without it samples are (*space, channels). It moves the axis of channels behind the others,
    which keep their order.

    Parameters
    ----------
    order
        A letter for each axis of a sample, ``"C"`` for channels and any others for space, such
        as ``"CHW"``.

    Raises
    ------
    InvalidInput
        If there is not exactly one C and another letter, or a letter comes twice.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.serial(lg.layers.Axes("CHW"), lg.Conv((3, 3)), lg.Flatten(), lg.Dense())
    >>> lg.nngp_kernel(net, np.ones((2, 3, 8, 8))).shape
    (2, 2)
    """

    order: str

    _bare = ("order",)
    linear = True

    def __post_init__(self):
        order = self.order
        known = isinstance(order, str) and order.isalpha() and "C" in order and len(order) > 1
        if not known or len(set(order)) < len(order):
            raise InvalidInput(
                f'order: wanted different letters with one "C" among them, such as "CHW", got '
                f"{order!r}."
            )

    @property
    def channels(self) -> int:
        """The index of the channel axis in a sample."""
        return self.order.index("C")

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal with the channels last; raise an error behind any other layer."""
        if not signal.from_data or (signal.sample is None and signal.space is not None):
            raise InvalidInput(
                f"net: {self!r} declares the order of the data's axes and has to be the first "
                "layer."
            )
        if signal.sample is None:
            return signal
        if len(signal.sample) != len(self.order):
            raise InvalidInput(
                f"net: {self!r} requires samples of {len(self.order)} axes, got samples of shape "
                f"{signal.sample}."
            )
        space = list(signal.sample)
        channels = space.pop(self.channels)
        # Fan-ins are counted in lengths of the last axis as it comes.
        return Signal(tuple(space), Fraction(channels, signal.sample[-1]))

    def lower(self, program: Builder, value: int) -> int:
        """Append the move of the channels."""
        behind = self.signal_behind(program.signal(value))
        return program.add(MoveChannels((value,), self.channels), behind)
