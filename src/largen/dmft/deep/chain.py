"""How the affine maps of a network follow one another, residual branches included.

Every hidden layer is one preactivation, hˡ⁺¹ = (σ Vˡφ(hˡ) + σ_b b) [+ hˢ], where hˢ is what a skip
connection carries past a branch that begins at s and ends with this map. Convolutions are such maps
from the positions that they read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from largen.architectures import (
    Activation,
    AvgPool,
    Axes,
    Conv,
    ConvTranspose,
    Dense,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Layer,
    Repeat,
    Residual,
    Serial,
    SumPool,
    layers_of,
)
from largen.architectures.signals import signal_behind, signal_of
from largen.dmft.deep.reading import Reading, View
from largen.errors import NoRule, NoTheory
from largen.expectations import ActivationFunction, activation

LINEAR = activation("linear")
Path = tuple[int, ...]
KNOWN = (
    Activation,
    AvgPool,
    Axes,
    Conv,
    ConvTranspose,
    Dense,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Residual,
    SumPool,
)


@dataclass(frozen=True)
class Chain:
    """A network with L hidden layers.

    Attributes
    ----------
    phi
        Activations of the hidden layers.
    paths
        Where the L + 1 affine maps are, the read-in first.
    skips
        For each of the L − 1 maps between hidden layers, the hidden layer that is added to what
        it returns; −1 for none.
    readings
        Which positions each of the L + 1 maps reads.
    axes
        The order of the data's axes, if the network declares it.
    """

    phi: tuple[ActivationFunction, ...]
    paths: tuple[Path, ...]
    skips: tuple[int, ...]
    readings: tuple[Reading, ...]
    axes: Axes | None


def chain(net: Layer, inputs: int | tuple[int, ...]) -> Chain:
    """Return how the affine maps of a network follow one another.

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
        before affine maps, and residual branches of these, beginning and ending with an affine map.
    NoRule
        For a layer that has no rule here.
    """
    walk = _Walk(net, _view(net, inputs))
    walk.through(net, ())
    if not walk.paths or walk.activated or not walk.view.fresh:
        raise NoTheory(f"the mean-field limit wants a network that ends in Dense(), got {net!r}")
    if walk.skips[len(walk.paths) - 1] >= 0:
        raise NoTheory(f"the mean-field limit wants a read-out of its own, got {net!r}")
    for layer in () if all(reading.plain for reading in walk.readings) else layers_of(net):
        if getattr(layer, "width_ratio", 1) != 1:
            raise NoTheory(
                "the mean-field limit of convolutions has one width for all hidden layers, got "
                f"{layer!r}"
            )
    return Chain(
        tuple(walk.phi),
        tuple(walk.paths),
        tuple(walk.skips[1:-1]),
        tuple(walk.readings),
        walk.axes,
    )


def _view(net: Layer, inputs: int | tuple[int, ...]) -> View:
    """Return the view of the data, its axes in the order in which layers take them."""
    signal = signal_of(inputs)
    first = net.layers[0] if isinstance(net, Serial) else net
    if isinstance(first, Axes):
        signal = signal_behind(first, signal)
    return View.of(signal.space or ())


@dataclass
class _Walk:
    """The way through a network so far; affine map m makes the preactivation m."""

    net: Layer
    view: View
    phi: list[ActivationFunction] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    skips: list[int] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    axes: Axes | None = None

    @property
    def activated(self) -> bool:
        """Whether an activation is the last that was met."""
        return len(self.phi) == len(self.paths)

    def through(self, layer: Layer, path: Path) -> None:
        match layer:
            case Serial(layers):
                for position, inner in enumerate(layers):
                    self.through(inner, (*path, position))
            case Repeat(inner, times):
                for _ in range(times):
                    self.through(inner, (*path, 0))
            case Dense() | Conv() | ConvTranspose():
                if getattr(layer, "groups", 1) > 1:
                    raise NoTheory(
                        "the mean-field limit has no rule for channels that are split into "
                        f"groups, got {layer!r}"
                    )
                if self.paths and not self.activated:
                    self.phi.append(LINEAR)
                self.paths.append(path)
                self.skips.append(-1)
                reading, self.view = self.view.read_by(layer)
                self.readings.append(reading)
            case AvgPool() | SumPool() | GlobalAvgPool() | GlobalSumPool():
                self.view = self.view.pooled_by(layer)
            case Flatten():
                self.view = self.view.flattened()
            case Axes():
                self.axes = layer
            case Activation(function):
                if self.activated or not self.view.fresh:
                    raise NoTheory(
                        "the mean-field limit wants a Dense() or a Conv() before each activation, "
                        f"and pooling behind it, got {self.net!r}"
                    )
                self.phi.append(function)
            case Residual(branch, None):
                self._past(branch, (*path, 0))
            case Residual():
                raise NoTheory(
                    "the mean-field limit of residual branches has no rule for a shortcut with "
                    f"weights or activations of its own, got {layer!r}"
                )
            case _:
                raise NoRule("the mean-field limit", layer, KNOWN)

    def _past(self, branch: Layer, path: Path) -> None:
        if self.activated or not self.view.fresh:
            raise NoTheory(
                "the mean-field limit wants residual branches that read a preactivation: an "
                f"affine map or another branch before them, got {self.net!r}"
            )
        start = len(self.paths) - 1
        self.through(branch, path)
        end = len(self.paths) - 1
        if end == start or self.activated or not self.view.fresh or self.skips[end] >= 0:
            raise NoTheory(
                "the mean-field limit wants residual branches that end in an affine map, got "
                f"{branch!r}"
            )
        self.skips[end] = start
