"""Where a network's weights are, and what part each of them plays.

The rule table of a parameterization has one row for each weight. A weight's *role* is what the
powers of width depend on: which of its two sides grow.

========  ==========  ==========  =============================================
role      fan-in      fan-out     weights
========  ==========  ==========  =============================================
input     data        width       the affine maps that read the data
hidden    width       width       every affine map between
output    width       outputs     the last affine map
========  ==========  ==========  =============================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Literal

from largen.architectures.branches import Concatenate, Product
from largen.architectures.heads import MultiHeadAttention
from largen.architectures.layers import Dense, Layer, Repeat, Residual, Serial
from largen.architectures.parts import parts_of
from largen.architectures.signals import Signal, signal_behind, signal_of
from largen.architectures.windows import Conv, ConvTranspose, LocallyConnected
from largen.errors import InvalidInput

Role = Literal["input", "hidden", "output"]
Path = tuple[int, ...]


@dataclass(frozen=True)
class WeightSite:
    """A place in an architecture that holds weights.

    Attributes
    ----------
    path
        The way from the root to the layer: positions in ``serial``, 0 into the body of a
        ``Repeat``, 0 into the branch of a ``Residual`` and 1 into its shortcut, and the position
        of a branch.
    layer
        The layer that holds the weights.
    role
        Which sides grow with the width.
    in_branch
        Whether it sits inside a residual branch, where the powers of depth apply.
    copies
        How many copies a surrounding ``Repeat`` makes of it.
    patch
        How many features each of its outputs sums over, per channel of the data or per unit of
        width: the size of a convolution's window, the positions behind ``Flatten``, the ratio of
        the map before.
    """

    path: Path
    layer: Layer
    role: Role
    in_branch: bool
    copies: int
    patch: Fraction = Fraction(1)

    @property
    def width_ratio(self) -> Fraction:
        """How many features it makes per unit of width."""
        return getattr(self.layer, "width_ratio", Fraction(1))

    @property
    def name(self) -> str:
        """The path in words, such as ``"1.0.1"``."""
        return ".".join(map(str, self.path)) or "0"


def weight_sites(
    architecture: Layer, inputs: int | tuple[int, ...] | None = None
) -> tuple[WeightSite, ...]:
    """Return every place that holds weights, from input to output.

    Parameters
    ----------
    architecture
        The network.
    inputs
        Shape of a sample, (*space, channels), or D. Without it (None) positions behind
        ``Flatten`` count as one, and shapes are not checked.

    Raises
    ------
    InvalidInput
        If the network has fewer than two affine maps, or ends inside a residual branch, a
        repetition or one of several branches, or begins inside a repetition: its input and
        output would have no place of their own. If its read-out has a ratio of widths, a layer
        does not fit what it is given, or outputs have spatial axes.

    Examples
    --------
    >>> import largen as lg
    >>> [site.role for site in weight_sites(lg.mlp(2, "tanh"))]
    ['input', 'hidden', 'output']
    """
    sites: list[WeightSite] = []
    start = signal_of(inputs)
    for site in _walk(architecture, (), False, 1, start):
        if not sites:
            _check_own_place(site, "first", "before")
        sites.append(site)
    if len(sites) < 2:
        raise InvalidInput(
            f"net: wanted at least two affine maps, a read-in and a read-out, got {architecture!r}."
        )
    _check_own_place(sites[-1], "last", "behind")
    if len(sites[-1].path) > 1:
        raise InvalidInput(
            f"net: its last affine map, {sites[-1].layer!r}, is in one of several branches, so "
            "that there is no read-out; put a Dense() behind them."
        )
    if sites[-1].width_ratio != 1:
        raise InvalidInput(
            f"net: its read-out, {sites[-1].layer!r}, makes as many outputs as the data have; a "
            "width_ratio is for hidden layers."
        )
    if behind := signal_behind(architecture, start).space:
        raise InvalidInput(
            f"net: its outputs have spatial axes {behind}; put a Flatten() or a GlobalAvgPool() "
            "before the last Dense()."
        )
    sites[-1] = replace(sites[-1], role="output")
    return tuple(sites)


def depth(architecture: Layer) -> int:
    """Return L, the number of residual branches on the way, repetitions counted; 0 without any.

    Examples
    --------
    >>> import largen as lg
    >>> depth(lg.residual_mlp(16)), depth(lg.mlp(3))
    (16, 0)
    """
    match architecture:
        case Serial(layers):
            return sum(map(depth, layers))
        case Repeat(layer, times):
            return times * depth(layer)
        case Residual():
            return 1
        case Concatenate(branches) | Product(branches) | MultiHeadAttention(branches):
            return max(map(depth, branches))
    return 0


def layers_of(architecture: Layer) -> Iterator[Layer]:
    """Yield every layer of a network that is not made of others, repeated ones once.

    Examples
    --------
    >>> import largen as lg
    >>> [type(layer).__name__ for layer in layers_of(lg.residual_mlp(16))]
    ['Dense', 'Activation', 'Dense', 'Activation', 'Dense']
    """
    parts = parts_of(architecture)
    if not parts:
        yield architecture
    for part in parts:
        yield from layers_of(part)


def _check_own_place(site: WeightSite, end: str, where: str) -> None:
    if site.in_branch or site.copies > 1:
        raise InvalidInput(
            f"net: its {end} affine map is inside a residual branch or a repetition; put a "
            f"Dense() of its own {where} it."
        )


def _walk(
    layer: Layer, path: Path, in_branch: bool, copies: int, signal: Signal
) -> Iterator[WeightSite]:
    match layer:
        case Serial(layers):
            for position, inner in enumerate(layers):
                yield from _walk(inner, (*path, position), in_branch, copies, signal)
                signal = signal_behind(inner, signal)
        case Repeat(inner, times):
            yield from _walk(inner, (*path, 0), in_branch, copies * times, signal)
        case Residual(branch, shortcut):
            yield from _walk(branch, (*path, 0), True, copies, signal)
            if shortcut is not None:
                yield from _walk(shortcut, (*path, 1), False, copies, signal)
        case Concatenate(branches) | Product(branches) | MultiHeadAttention(branches):
            for position, branch in enumerate(branches):
                yield from _walk(branch, (*path, position), in_branch, copies, signal)
        case Dense() | Conv() | ConvTranspose() | LocallyConnected():
            role = "input" if signal.from_data else "hidden"
            patch = Fraction(signal.copies * _window(layer))
            if isinstance(layer, Conv):
                patch /= layer.groups
            yield WeightSite(path, layer, role, in_branch, copies, patch)


def _window(layer: Layer) -> int:
    return prod(getattr(layer, "window", ()))
