"""How the axes of a sample change on the way through a network.

Samples are arrays (*space, channels). What a layer does to the spatial axes, and how many
features it leaves for each unit of width, is the same in every reading of the network, so the
layer says it itself: :meth:`largen.architectures.Layer.signal_behind`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Signal:
    """The shape of the signal between two layers.

    Attributes
    ----------
    space
        Lengths of the spatial axes, () without any; None if they are not known.
    copies
        The number of features at each position, per channel of the data or per unit of width: the
        width ratio of the affine map before, multiplied by :class:`Flatten` and
        :class:`Concatenate`.
    from_data
        Whether the features are those of the data, before any weights.
    sample
        The shape of the data's samples before the first layer; None behind a layer.
    """

    space: tuple[int, ...] | None
    copies: int | Fraction = 1
    from_data: bool = True
    sample: tuple[int, ...] | None = field(default=None, compare=False)


def signal_of(inputs: int | tuple[int, ...] | None) -> Signal:
    """Return the signal that enters a network: D numbers, (*space, channels), or unknown."""
    if inputs is None:
        return Signal(None)
    sample = inputs if isinstance(inputs, tuple) else (inputs,)
    return Signal(sample[:-1], sample=sample)


def difference(one: Signal, two: Signal) -> str:
    """Describe how two signals differ."""
    if one.space != two.space:
        return f"spatial axes {one.space} and {two.space}"
    if one.from_data != two.from_data:
        return (
            "one has passed weights and the other is still data: the first affine map is inside; "
            "put a Dense() before it"
        )
    return f"{one.copies} and {two.copies} features per unit of width"
