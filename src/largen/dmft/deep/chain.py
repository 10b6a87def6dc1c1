"""How the affine maps of a network follow one another, residual branches included.

Every hidden layer is one preactivation, hˡ⁺¹ = (σ Vˡφ(hˡ) + σ_b b) [+ hˢ], where hˢ is what a skip
connection carries past a branch that begins at s and ends with this map.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from largen.architectures import Activation, Dense, Layer, Repeat, Residual, Serial, layers_of
from largen.errors import NoRule, NoTheory
from largen.expectations import ActivationFunction, activation

LINEAR = activation("linear")
Path = tuple[int, ...]


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
    """

    phi: tuple[ActivationFunction, ...]
    paths: tuple[Path, ...]
    skips: tuple[int, ...]


def chain(net: Layer) -> Chain:
    """Return how the affine maps of a network follow one another.

    Raises
    ------
    NoTheory
        If the network is not a chain of affine maps, activations between them, and residual
        branches of both, beginning and ending with an affine map.
    NoRule
        For a layer that has no rule here.
    """
    for layer in layers_of(net):
        if getattr(layer, "width_ratio", 1) != 1:
            raise NoTheory(
                "the mean-field limit of deep networks has one width for all hidden layers, got "
                f"{layer!r}"
            )
    walk = _Walk(net)
    walk.through(net, ())
    if not walk.paths or walk.activated:
        raise NoTheory(f"the mean-field limit wants a network that ends in Dense(), got {net!r}")
    if walk.skips[len(walk.paths) - 1] >= 0:
        raise NoTheory(f"the mean-field limit wants a read-out of its own, got {net!r}")
    return Chain(tuple(walk.phi), tuple(walk.paths), tuple(walk.skips[1:-1]))


@dataclass
class _Walk:
    """The way through a network so far; affine map m makes the preactivation m."""

    net: Layer
    phi: list[ActivationFunction] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    skips: list[int] = field(default_factory=list)

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
            case Dense():
                if self.paths and not self.activated:
                    self.phi.append(LINEAR)
                self.paths.append(path)
                self.skips.append(-1)
            case Activation(function):
                if self.activated:
                    raise NoTheory(
                        "the mean-field limit wants a Dense() before each activation, got "
                        f"{self.net!r}"
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
                raise NoRule("the mean-field limit", layer, [Dense, Activation, Residual])

    def _past(self, branch: Layer, path: Path) -> None:
        if self.activated:
            raise NoTheory(
                "the mean-field limit wants residual branches that read a preactivation: a "
                f"Dense() or another branch before them, got {self.net!r}"
            )
        start = len(self.paths) - 1
        self.through(branch, path)
        end = len(self.paths) - 1
        if end == start or self.activated or self.skips[end] >= 0:
            raise NoTheory(
                f"the mean-field limit wants residual branches that end in Dense(), got {branch!r}"
            )
        self.skips[end] = start
