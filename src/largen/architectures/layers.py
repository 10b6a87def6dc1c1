"""Layers as records: what a network computes, and nothing about how.

A layer is a small frozen record. Every theory gives it its meaning there, by a rule registered
for its type. No widths are in it (they are an argument of whoever needs them), and no powers of
width or depth (they belong to the parameterization): only the constants of order one, the
weight's standard deviation σ_w and the bias's σ_b, and the traits of ``traits.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from largen.architectures.signals import Signal, difference
from largen.architectures.traits import (
    Affine,
    Elementwise,
    Layer,
    Parallel,
    Sequence,
    check_layer,
    parts_of,
)
from largen.arrays import integer
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction, activation


@dataclass(frozen=True, repr=False)
class Dense(Affine):
    """Affine map with Gaussian weights, ``y = σ_w W x · (multiplier) + σ_b b``.

    Parameters
    ----------
    weight_std
        σ_w, of order one; the factor 1/√fan_in is the parameterization's.
    bias_std
        σ_b, of order one. With 0 there is no bias at all, neither drawn nor trained.
    width_ratio
        How many neurons it makes per unit of width, a ratio of integers: at the width N there are
        ``width_ratio``·N. As many outputs as the data want leave the read-out, which has none.

    Raises
    ------
    InvalidInput
        If ``weight_std`` or ``width_ratio`` is not positive, ``bias_std`` is negative, or
        ``width_ratio`` is no ratio of integers up to 1000.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Dense(weight_std=1.5)
    Dense(weight_std=1.5)
    >>> net = lg.serial(lg.Dense(width_ratio=1 / 2), lg.Activation("tanh"), lg.Dense())
    >>> lg.finite_network(net, lg.ntk(), width=64, inputs=3).init(0)[0]["weight"].shape
    (3, 32)
    """


@dataclass(frozen=True, repr=False)
class Activation(Elementwise):
    """Elementwise nonlinearity φ.

    Parameters
    ----------
    function
        A name (``"relu"``, ``"tanh"``, …) or any elementwise function that JAX can differentiate.

    Raises
    ------
    InvalidInput
        For an unknown name.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Activation("tanh") == lg.Activation("tanh")
    True
    """

    function: ActivationFunction

    def __init__(self, function: str | Callable[[Any], Any] | ActivationFunction):
        object.__setattr__(self, "function", activation(function))

    def __call__(self, x: Any) -> Any:
        """Return φ(x)."""
        return self.function(x)

    @property
    def activation(self) -> ActivationFunction:
        """φ."""
        return self.function

    def __repr__(self) -> str:
        return f"Activation({self.function.name!r})"


@dataclass(frozen=True, repr=False)
class Serial(Sequence):
    """Layers applied one after the other; made by :func:`serial`."""

    layers: tuple[Layer, ...]

    def __repr__(self) -> str:
        return f"serial({', '.join(map(repr, self.layers))})"


IDENTITY = Serial(())


@dataclass(frozen=True, repr=False)
class Residual(Parallel):
    """Skip connection, ``y = shortcut(x) + (branch factor) · branch(x)``.

    The branch factor is the parameterization's power of the depth, L^(−α): 1 unless it is one
    made for depth, such as :func:`largen.depth_mup`.

    Parameters
    ----------
    branch
        Any layer; it keeps the shape of its input, or changes it as the shortcut does.
    shortcut
        What the skip does to its input, such as a convolution that takes the branch's strides;
        nothing by default.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense()))
    Residual(serial(Activation('relu'), Dense()))
    """

    branch: Layer
    shortcut: Layer | None = None

    _bare = ("branch",)

    def __post_init__(self):
        check_layer("branch", self.branch)
        if self.shortcut is not None:
            check_layer("shortcut", self.shortcut)

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The branch and the skip."""
        return (self.branch, IDENTITY if self.shortcut is None else self.shortcut)

    def with_parts(self, parts: Iterable[Layer]) -> Residual:
        """Return the sum of another branch and another skip."""
        branch, skip = parts
        return type(self)(branch, None if skip == IDENTITY else skip)

    @property
    def keeps_shape(self) -> bool:
        """Whether both the branch and the skip do."""
        return all(layer.keeps_shape for layer in self.parts)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind branch and skip, which has to be the same."""
        branch, skip = (layer.signal_behind(signal) for layer in self.parts)
        if skip != branch:
            raise InvalidInput(
                f"net: skip and branch of {self!r} have different shapes; "
                f"{difference(skip, branch)}."
            )
        return branch


@dataclass(frozen=True, repr=False)
class Repeat(Sequence):
    """The same layer ``times`` over, each copy with weights of its own; made by :func:`repeat`.

    Readings of the network loop over the copies instead of unrolling them, so that a network of
    a thousand blocks compiles as fast as one of two. ``times`` is ``math.inf`` for residual blocks
    without end.
    """

    layer: Layer
    times: float = field()

    def __repr__(self) -> str:
        return f"repeat({self.layer!r}, {self.times})"


def serial(*layers: Layer) -> Layer:
    """Compose layers, the first one applied first; nested compositions are flattened.

    Parameters
    ----------
    layers
        One or more layers.

    Raises
    ------
    InvalidInput
        If there is none, or one of them is not a layer.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.Dense(), lg.serial(lg.Activation("relu"), lg.Dense()))
    serial(Dense(), Activation('relu'), Dense())
    """
    if not layers:
        raise InvalidInput("serial: wanted at least one layer, got none.")
    flat: list[Layer] = []
    for position, layer in enumerate(layers):
        check_layer(f"layer {position} of serial", layer)
        flat.extend(layer.layers if isinstance(layer, Serial) else (layer,))
    return flat[0] if len(flat) == 1 else Serial(tuple(flat))


def repeat(layer: Layer, times: float) -> Layer:
    """Stack ``times`` copies of a layer that keeps the shape of its input.

    Parameters
    ----------
    layer
        The layer to repeat.
    times
        How often, at least 1; once is the layer itself. ``math.inf`` for a residual block, or
        several one after the other, is the limit of infinite depth, which kernels know in
        parameterizations with branches L^(−α), α ≥ ½.

    Raises
    ------
    InvalidInput
        If ``times`` is no positive integer. For infinitely many copies of what is not made of
        residual blocks ``Residual(branch)`` alone, or whose skip is not the identity; for
        copies of what is repeated without end itself.

    Examples
    --------
    >>> import largen as lg, math
    >>> lg.repeat(lg.serial(lg.Activation("relu"), lg.Dense()), 20)
    repeat(serial(Activation('relu'), Dense()), 20)
    >>> block = lg.Residual(lg.serial(lg.LayerNorm(), lg.Dense()))
    >>> lg.repeat(block, math.inf)
    repeat(Residual(serial(LayerNorm(), Dense())), inf)
    """
    check_layer("layer", layer)
    endless = isinstance(times, float) and times == math.inf
    if not endless and integer("times", times, at_least=1) == 1:
        return layer
    if is_endless(layer):
        raise InvalidInput(
            f"layer: {layer!r} is infinitely deep already; only the whole stream of a network "
            "is repeated without end, and once."
        )
    if not endless:
        return Repeat(layer, int(times))
    for block in layer.parts if isinstance(layer, Serial) else (layer,):
        if not isinstance(block, Residual):
            raise InvalidInput(
                f"layer: {block!r} is no residual block, and only these, with branches that shrink "
                "as L^(−α), have a limit of infinite depth: "
                "lg.repeat(lg.Residual(branch), math.inf)."
            )
        if block.shortcut is not None:
            raise InvalidInput(
                f"layer: infinitely many copies of the shortcut {block.shortcut!r} have no limit; "
                "the skip of a block that is repeated without end is the identity."
            )
    return Repeat(layer, math.inf)


def is_endless(layer: Layer) -> bool:
    """Whether something in a layer is repeated without end."""
    if isinstance(layer, Repeat) and layer.times == math.inf:
        return True
    return any(map(is_endless, parts_of(layer)))
