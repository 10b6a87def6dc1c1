"""Fully connected networks with residual branches, and their constants part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.architectures import Activation, Dense, Layer, Residual
from largen.architectures.walks import Path
from largen.errors import InvalidInput, NoRule, NoTheory
from largen.finite_width.chain import HiddenLayer, check_derivative, places
from largen.finite_width.constants import Constants, ConstantsOf
from largen.parameterizations import Parameterization
from largen.scalars import integer


@dataclass(frozen=True)
class Branch:
    """A residual branch, h ← h + β·branch(h).

    Attributes
    ----------
    inner
        Its activations, each with the map behind it; the last map adds to the stream.
    square
        β².
    """

    inner: tuple[HiddenLayer, ...]
    square: float


@dataclass(frozen=True)
class Stream:
    """An affine map of the inputs, then hidden layers and residual branches, and a read-out.

    Attributes
    ----------
    first
        The constants of the first map.
    parts
        The hidden layers and branches in order; the last is the hidden layer before the read-out.
    """

    first: Constants
    parts: tuple[HiddenLayer | Branch, ...]

    def first_kernel(self, x: np.ndarray) -> np.ndarray:
        """Return K¹ = σ_b² + σ_w² x·x'/D, exact at any width."""
        return self.first.kernel(x)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of neurons of every activation, in order."""
        layers = [p.inner if isinstance(p, Branch) else (p,) for p in self.parts]
        return tuple(layer.width for part in layers for layer in part)


def has_branches(net: object) -> bool:
    """Whether a network is a sequence with residual connections."""
    return isinstance(net, Layer) and any(isinstance(layer, Residual) for _, layer in places(net))


def stream_of(
    net: Layer, width: int | Sequence[int], what: str, param: Parameterization | None, inputs: int
) -> Stream:
    """Read a network with residual branches, with one width times the layers' ratios.

    Raises
    ------
    NoRule
        For a layer without a theory at finite width, such as a convolution.
    NoTheory
        For parts in another order, a skip with layers of its own, or weights that are not Gaussian.
    InvalidInput
        For a width that is not one positive integer, or branches of another width than the stream.
    """
    layers = list(places(net))
    if not isinstance(width, (int, np.integer)):
        raise InvalidInput(f"width: residual networks have one width, got {width!r}.")
    n = integer("width", width, at_least=1)
    wrong = NoTheory(
        f"{what}: wanted Dense(), residual branches of Activation() and Dense() in turn, and "
        f"Activation() and Dense() at the end, such as lg.residual_mlp(8), got {net!r}."
    )
    for _, layer in layers:
        if not isinstance(layer, (Dense, Activation, Residual)):
            raise NoRule(f"{what} at finite width", layer, [Dense, Activation, Residual])
    if not isinstance(layers[0][1], Dense) or not isinstance(layers[-1][1], Dense):
        raise wrong
    read = _Reader(n, ConstantsOf(net, n, param, inputs, what), wrong, what)
    first: Any = layers[0][1]
    neurons, parts, place = _neurons(n, first), [], 1
    while place < len(layers):
        path, layer = layers[place]
        if isinstance(layer, Residual):
            if layer.shortcut is not None:
                raise wrong
            found, behind = read.pairs(list(places(layer.branch, (*path, 0))), neurons)
            if behind != neurons:
                raise InvalidInput(
                    f"net: a branch ends with {behind} neurons on a stream of {neurons}."
                )
            parts.append(Branch(found, read.constants.branch**2))
            place += 1
        else:
            last = place + 2 == len(layers)
            found, neurons = read.pairs(layers[place : place + 2], neurons, last)
            parts += found
            place += 2
    if not parts or isinstance(parts[-1], Branch):
        raise wrong
    return Stream(read.constants(layers[0][0], first, inputs), tuple(parts))


@dataclass(frozen=True)
class _Reader:
    """What reads alternating activations and maps of a network of width ``n``."""

    n: int
    constants: ConstantsOf
    wrong: NoTheory
    what: str

    def pairs(
        self, layers: list[tuple[Path, Layer]], neurons: int, last: bool = False
    ) -> tuple[tuple[HiddenLayer, ...], int]:
        """Return the hidden layers, and the number of neurons behind them."""
        if not layers or len(layers) % 2:
            raise self.wrong
        found = []
        for (_, phi), (path, then) in zip(layers[0::2], layers[1::2], strict=True):
            if not isinstance(phi, Activation) or not isinstance(then, Dense):
                raise self.wrong
            check_derivative(phi.function, self.what)
            map_ = self.constants(path, then, neurons)
            found.append(HiddenLayer(phi.function, neurons, map_.weight, map_.bias, map_.rates))
            neurons = neurons if last else _neurons(self.n, then)
        return tuple(found), neurons


def _neurons(n: int, layer: Dense) -> int:
    wanted = n * layer.width_ratio
    if wanted.denominator != 1:
        raise InvalidInput(f"width: {n} times the ratio {layer.width_ratio} is not an integer.")
    return int(wanted)
