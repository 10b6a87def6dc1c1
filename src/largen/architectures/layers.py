"""Layers as records: what a network computes, independently of how it is computed.

A layer is a small frozen record. Every theory defines its meaning by a rule that is registered for
its type. The record contains no widths (they are arguments of the functions that need them) and no
powers of width or depth (they belong to the parameterization), but only constants of order one (the
standard deviations σ_w of weights and σ_b of biases) and the traits of ``traits.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from largen.architectures.containers import Parallel, Sequence, parts_of
from largen.architectures.traits import Affine, Elementwise, Layer, check_layer
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction, as_activation
from largen.programs.builder import Builder
from largen.programs.operations import BRANCH, Sum
from largen.programs.signals import Signal, difference
from largen.scalars import integer, real


@dataclass(frozen=True, repr=False)
class Dense(Affine):
    """Affine map with Gaussian weights, ``y = σ_w W x · (multiplier) + σ_b b``.

    Parameters
    ----------
    weight_std
        σ_w, of order one; the factor 1/√fan_in is the parameterization's.
    bias_std
        σ_b, of order one. With 0 there is no bias, neither at initialisation nor in training.
    width_ratio
        The number of neurons per unit of width, a ratio of integers: at the width N there are
        ``width_ratio``·N. The read-out has as many outputs as the targets, and no ratio.

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
    >>> lg.networks.finite_network(net, lg.ntk(), width=64, inputs=3).init(0)[0]["weight"].shape
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
        object.__setattr__(self, "function", as_activation(function))

    def __call__(self, x: Any) -> Any:
        """Return φ(x)."""
        return self.function(x)

    @property
    def activation(self) -> ActivationFunction:
        """The activation φ with its derivative and its Gaussian integrals."""
        if type(self).__call__ is not Activation.__call__:
            return super().activation  # that of a subclass, which says another function
        return self.function

    def __repr__(self) -> str:
        return f"Activation({self.function.name!r})"


@dataclass(frozen=True, repr=False)
class Serial(Sequence):
    """Layers applied one after the other; made by :func:`serial`."""

    layers: tuple[Layer, ...]

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The layers; without any it is the identity."""
        return self.layers

    def with_parts(self, parts: Iterable[Layer]) -> Serial:
        """Return the same composition of other layers."""
        return replace(self, layers=tuple(parts))

    def __repr__(self) -> str:
        return f"serial({', '.join(map(repr, self.layers))})"


IDENTITY = Serial(())


@dataclass(frozen=True, repr=False)
class Residual(Parallel):
    """Skip connection, ``y = γ · shortcut(x) + (branch factor) · branch(x)``.

    The branch factor is the parameterization's power of the depth, L^(−α): 1 except in
    parameterizations that scale with depth, such as :func:`largen.depth_mup`.

    Parameters
    ----------
    branch
        Any layer; it keeps the shape of its input, or changes it as the shortcut does.
    shortcut
        The layer on the skip connection, such as a convolution with the branch's strides; the
        identity by default.
    skip_factor
        γ, a constant (Bahri and Hanin, Les Houches lectures, eq. (25)); their kernels are
        K ← σ_b² + σ_w² E[φφ'] + γ² K, eq. (26).

    Raises
    ------
    InvalidInput
        If branch or shortcut is not a layer, or γ is not a finite number.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense()))
    Residual(serial(Activation('relu'), Dense()))
    """

    branch: Layer
    shortcut: Layer | None = None
    skip_factor: float = field(default=1.0, kw_only=True)

    _bare = ("branch",)

    def __post_init__(self):
        check_layer("branch", self.branch)
        if self.shortcut is not None:
            check_layer("shortcut", self.shortcut)
        object.__setattr__(self, "skip_factor", real("skip_factor", self.skip_factor))

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The branch and the shortcut."""
        return (self.branch, IDENTITY if self.shortcut is None else self.shortcut)

    def with_parts(self, parts: Iterable[Layer]) -> Residual:
        """Return a residual connection with another branch and another shortcut."""
        branch, skip = parts
        shortcut = None if skip == IDENTITY else skip
        return type(self)(branch, shortcut, skip_factor=self.skip_factor)

    def tree(self, trees: tuple[Any, ...]) -> Any:
        """Return the parameters of the branch, or with a shortcut the pair (branch, shortcut)."""
        return trees[0] if self.shortcut is None else trees

    @property
    def keeps_shape(self) -> bool:
        """Whether branch and shortcut keep the spatial axes and the features per unit of width."""
        return all(layer.keeps_shape for layer in self.parts)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind branch and shortcut, which must be the same."""
        branch, skip = (layer.signal_behind(signal) for layer in self.parts)
        if skip != branch:
            raise InvalidInput(
                f"net: skip and branch of {self!r} have different shapes; "
                f"{difference(skip, branch)}."
            )
        return branch

    def residual_depth(self) -> float:
        """Return 1, whatever is inside of the branch."""
        return 1

    def lower(self, program: Builder, value: int) -> int:
        """Append branch, shortcut and their sum; powers of depth apply inside the branch."""
        branch = program.part(0, self.branch, value, in_branch=True)
        skip = value
        if self.shortcut is not None:
            skip = program.part(1, self.shortcut, value, in_branch=False)
        return program.add(Sum((skip, branch), (self.skip_factor, BRANCH)))


@dataclass(frozen=True, repr=False)
class Repeat(Sequence):
    """``times`` copies of a layer in sequence, with independent weights; made by :func:`repeat`.

    Computations loop over the copies instead of unrolling them, so that a network of a thousand
    blocks compiles as fast as one of two. ``times`` is ``math.inf`` for infinitely many residual
    blocks.
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
        # A subclass may be more than its layers one after the other.
        flat.extend(layer.layers if type(layer) is Serial else (layer,))
    return flat[0] if len(flat) == 1 else Serial(tuple(flat))


def repeat(layer: Layer, times: float) -> Layer:
    """Stack ``times`` copies of a layer that keeps the shape of its input.

    Parameters
    ----------
    layer
        The layer to repeat.
    times
        The number of copies, at least 1; one copy is the layer itself. ``math.inf`` copies of a
        residual block, or of several in sequence, are the limit of infinite depth, which exists in
        parameterizations with branches L^(−α), α ≥ ½.

    Raises
    ------
    InvalidInput
        If ``times`` is not a positive integer. For infinitely many copies of a layer that does not
        consist of residual blocks ``Residual(branch)`` alone, or whose skip is not the identity;
        for copies of a layer that contains infinitely many copies itself.

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
            f"layer: {layer!r} is infinitely deep already; a network has one stack of infinitely "
            "many blocks, which cannot be repeated or nested."
        )
    if not endless:
        return Repeat(layer, int(times))
    for block in layer.parts if type(layer) is Serial else (layer,):
        if type(block) is not Residual:
            raise InvalidInput(
                f"layer: wanted a residual block, got {block!r}. Only blocks with branches "
                "L^(−α) have a limit of infinite depth: lg.repeat(lg.Residual(branch), math.inf)."
            )
        if block.shortcut is not None:
            raise InvalidInput(
                f"layer: infinitely many copies of the shortcut {block.shortcut!r} have no limit; "
                "the skip of infinitely many blocks has to be the identity: leave the shortcut out."
            )
        if block.skip_factor != 1:
            raise InvalidInput(
                f"layer: the skip of infinitely many blocks has the factor {block.skip_factor:g}, "
                "whose powers have no limit; wanted skip_factor=1."
            )
    return Repeat(layer, math.inf)


def is_endless(layer: Layer) -> bool:
    """Return whether a layer contains infinitely many copies of a layer."""
    if isinstance(layer, Repeat) and layer.times == math.inf:
        return True
    return any(map(is_endless, parts_of(layer)))
