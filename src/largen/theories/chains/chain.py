"""The sequence of affine maps of a network, residual branches included.

Every hidden layer is one preactivation, hˡ⁺¹ = (σ Vˡφ(hˡ) + σ_b b) [+ hˢ], where a skip connection
adds hˢ if a residual branch that begins at layer s ends with this map. A convolution is such a map,
from the positions in its receptive field. It may read φ of the normalised layer (``normalized``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

from largen.architectures import (
    AvgPool,
    Axes,
    Conv,
    ConvTranspose,
    Dense,
    Elementwise,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Layer,
    LayerNorm,
    Parallel,
    Residual,
    RMSNorm,
    Sequence,
    SumPool,
    carry,
    layers_of,
    signal_of,
)
from largen.errors import NoRule, NoTheory
from largen.expectations import ActivationFunction, activation
from largen.theories.chains.normalized import LayerActivation, NormalizedActivation
from largen.theories.chains.receptive_fields import Pooling, Reading, View

LINEAR = activation("linear")
Path = tuple[int, ...]


@dataclass(frozen=True)
class Chain:
    """A network with L hidden layers.

    Attributes
    ----------
    phi
        Activations of the hidden layers, of normalised ones with their normalisation.
    paths
        The paths of the L + 1 affine maps in the network, the read-in first.
    skips
        For each of the L − 1 maps between hidden layers, the hidden layer that a skip connection
        adds to its output; −1 for none.
    readings
        The positions that each of the L + 1 maps reads.
    axes
        The order of the data's axes, if the network declares it.
    """

    phi: tuple[LayerActivation, ...]
    paths: tuple[Path, ...]
    skips: tuple[int, ...]
    readings: tuple[Reading, ...]
    axes: Axes | None


def chain(net: Layer, inputs: int | tuple[int, ...]) -> Chain:
    """Return a network as a chain of affine maps.

    Parameters
    ----------
    net
        The network.
    inputs
        D, or the shape (*space, channels) of a sample.

    Raises
    ------
    NoTheory
        If the network is not a chain of affine maps, activations between them, linear pooling
        before affine maps, and residual branches of these that begin and end with an affine map.
    NoRule
        For a layer that the mean-field limit does not cover.
    """
    walk = _Walk(net, _view(net, inputs))
    walk.through(net)
    if not walk.paths or walk.read or not walk.view.fresh:
        raise NoTheory(f"the mean-field limit wants a network that ends in Dense(), got {net!r}")
    if walk.skips[len(walk.paths) - 1] >= 0:
        raise NoTheory(f"the mean-field limit wants a read-out of its own, got {net!r}")
    for layer in () if all(reading.plain for reading in walk.readings) else layers_of(net):
        if getattr(layer, "width_ratio", 1) != 1:
            raise NoTheory(
                "the mean-field limit of convolutions has one width for all hidden layers, got "
                f"{layer!r}"
            )
    if any(isinstance(phi, NormalizedActivation) for phi in walk.phi):
        if not all(reading.plain for reading in walk.readings):
            raise NoTheory(
                "the mean-field limit has normalised layers of fully connected networks only, got "
                f"{net!r}"
            )
        for layer in layers_of(net):
            if getattr(layer, "width_ratio", 1) != 1:
                raise NoTheory(
                    "the mean-field limit of normalised layers has one width for all hidden "
                    f"layers, got {layer!r}"
                )
    return Chain(
        tuple(walk.phi),
        tuple(walk.paths),
        tuple(walk.skips[1:-1]),
        tuple(walk.readings),
        walk.axes,
    )


def _view(net: Layer, inputs: int | tuple[int, ...]) -> View:
    """Return the view of the input positions, with axes in the order in which layers take them."""
    signal = signal_of(inputs)
    first = next(layers_of(net))
    if isinstance(first, Axes):
        signal = first.signal_behind(signal)
    return View.of(signal.space or ())


@dataclass
class _Walk:
    """The chain collected so far along a network; affine map m produces preactivation m."""

    net: Layer
    view: View
    phi: list[LayerActivation] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    skips: list[int] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    axes: Axes | None = None
    norm: LayerNorm | RMSNorm | None = None  # of the last preactivation, for what reads it next

    @property
    def read(self) -> bool:
        """Whether a normalisation or an activation follows the last affine map collected so far."""
        return self.activated or self.norm is not None

    def activate(self, phi: ActivationFunction) -> None:
        """Add the activation of the last layer, normalised if a normalisation is before it."""
        self.phi.append(phi if self.norm is None else NormalizedActivation(phi, self.norm))
        self.norm = None

    @property
    def activated(self) -> bool:
        """Whether an activation follows the last affine map collected so far."""
        return len(self.phi) == len(self.paths)

    def through(self, net: Layer) -> None:
        """Collect all layers of a network, with this object as the carried state."""
        carry(net, self, leaf=_step, join=_join)

    def past(self, branch: Layer, through: Callable[[Any], Any]) -> None:
        """Collect the branch of a residual connection."""
        if self.read or not self.view.fresh:
            raise NoTheory(
                "the mean-field limit wants residual branches that read a preactivation: an "
                f"affine map or another branch before them, got {self.net!r}"
            )
        start = len(self.paths) - 1
        through(self)
        end = len(self.paths) - 1
        if end == start or self.read or not self.view.fresh or self.skips[end] >= 0:
            raise NoTheory(
                "the mean-field limit wants residual branches that end in an affine map, got "
                f"{branch!r}"
            )
        self.skips[end] = start


def _step(layer: Layer, path: Path, walk: _Walk) -> _Walk:
    follow(layer, path, walk)
    return walk


def _join(layer: Parallel, path: Path, walk: _Walk, ways: Any) -> _Walk:
    if not isinstance(layer, Residual):
        raise no_rule(layer)
    if layer.shortcut is not None:
        raise NoTheory(
            "the mean-field limit of residual branches has no rule for a shortcut with weights or "
            f"activations of its own, got {layer!r}"
        )
    walk.past(layer.branch, ways[0])
    return walk


def no_rule(layer: Layer) -> NoRule:
    """Return the error for a layer that the mean-field limit does not cover."""
    known = [kind for kind in follow.registry if kind is not object]
    return NoRule("the mean-field limit", layer, [*known, Residual, Sequence])


@singledispatch
def follow(layer: Layer, path: Path, walk: _Walk) -> None:
    """Add an elementary layer (one without sublayers) to the chain.

    Raises
    ------
    NoRule
        For a layer that the mean-field limit does not cover.
    """
    raise no_rule(layer)


@follow.register(Dense)
@follow.register(Conv)
@follow.register(ConvTranspose)
def _(layer: Dense | Conv | ConvTranspose, path: Path, walk: _Walk) -> None:
    if getattr(layer, "groups", 1) > 1:
        raise NoTheory(
            "the mean-field limit has no rule for channels that are split into groups, got "
            f"{layer!r}"
        )
    if walk.paths and not walk.activated:
        walk.activate(LINEAR)
    walk.paths.append(path)
    walk.skips.append(-1)
    reading, walk.view = walk.view.read_by(layer)
    walk.readings.append(reading)


@follow.register(AvgPool)
@follow.register(SumPool)
@follow.register(GlobalAvgPool)
@follow.register(GlobalSumPool)
def _(layer: Pooling, path: Path, walk: _Walk) -> None:
    walk.view = walk.view.pool(layer)


@follow.register
def _(layer: Flatten, path: Path, walk: _Walk) -> None:
    walk.view = walk.view.flatten()


@follow.register
def _(layer: Axes, path: Path, walk: _Walk) -> None:
    walk.axes = layer


@follow.register
def _(layer: Elementwise, path: Path, walk: _Walk) -> None:
    if walk.activated or not walk.view.fresh:
        raise NoTheory(
            "the mean-field limit wants a Dense() or a Conv() before each activation, and pooling "
            f"behind it, got {walk.net!r}"
        )
    walk.activate(layer.activation)


@follow.register(LayerNorm)
@follow.register(RMSNorm)
def _(layer: LayerNorm | RMSNorm, path: Path, walk: _Walk) -> None:
    if not walk.paths:
        raise NoTheory(
            f"the mean-field limit normalises over infinitely many neurons, and before {layer!r} "
            "are the inputs; normalise these in the data."
        )
    if walk.read or not walk.view.fresh or walk.view.flat:
        raise NoTheory(
            "the mean-field limit has normalisations of preactivations, directly behind an affine "
            f"map or a residual stream and before the activation, got {walk.net!r}"
        )
    walk.norm = layer
