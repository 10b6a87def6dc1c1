"""Fully connected networks with residual branches, and their constants part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.architectures import Activation, Dense, Layer, Residual
from largen.architectures import depth as depth_of
from largen.errors import InvalidInput, NoRule, NoTheory, instance_of
from largen.finite_width.chain import HiddenLayer, check_derivative, flat_layers
from largen.parameterizations import Parameterization, ntk
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
    weight, bias
        σ_w² and σ_b² of the first map.
    parts
        The hidden layers and branches in order; the last is the hidden layer before the read-out.
    """

    weight: float
    bias: float
    parts: tuple[HiddenLayer | Branch, ...]

    def first_kernel(self, x: np.ndarray) -> np.ndarray:
        """Return K¹ = σ_b² + σ_w² x·x'/D, exact at any width."""
        return self.bias + self.weight * (x @ x.T) / x.shape[1]

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of neurons of every activation, in order."""
        layers = [p.inner if isinstance(p, Branch) else (p,) for p in self.parts]
        return tuple(layer.width for part in layers for layer in part)


def has_branches(net: object, param: Parameterization | None) -> bool:
    """Whether a network is a sequence with residual connections; ``param`` is checked as well."""
    if param is not None:
        instance_of("param", param, Parameterization, "a Parameterization such as lg.depth_mup()")
    return isinstance(net, Layer) and any(isinstance(layer, Residual) for layer in flat_layers(net))


def stream_of(
    net: Layer, width: int | Sequence[int], param: Parameterization | None, what: str
) -> Stream:
    """Read a network with residual branches, with one width times the layers' ratios.

    Raises
    ------
    NoRule
        For a layer without a theory at finite width, such as a convolution.
    NoTheory
        For parts in another order, or a skip with layers of its own.
    InvalidInput
        For a width that is not one positive integer, or branches of another width than the stream.
    """
    param = ntk() if param is None else param
    layers = list(flat_layers(net))
    if not isinstance(width, (int, np.integer)):
        raise InvalidInput(f"width: residual networks have one width, got {width!r}.")
    n = integer("width", width, at_least=1)
    square = float(depth_of(net)) ** (-2 * float(param.branch))
    wrong = NoTheory(
        f"{what}: wanted Dense(), residual branches of Activation() and Dense() in turn, and "
        f"Activation() and Dense() at the end, such as lg.residual_mlp(8), got {net!r}."
    )
    for layer in layers:
        if not isinstance(layer, (Dense, Activation, Residual)):
            raise NoRule(f"{what} at finite width", layer, [Dense, Activation, Residual])
    if not layers or not isinstance(layers[0], Dense) or not isinstance(layers[-1], Dense):
        raise wrong
    first: Any = layers[0]
    neurons, parts, place = _neurons(n, first), [], 1
    while place < len(layers):
        layer: Any = layers[place]
        if isinstance(layer, Residual):
            if layer.shortcut is not None:
                raise wrong
            inner = list(flat_layers(layer.branch))
            found, behind = _pairs(inner, neurons, n, wrong, what)
            if behind != neurons:
                raise InvalidInput(
                    f"net: a branch ends with {behind} neurons on a stream of {neurons}."
                )
            parts.append(Branch(found, square))
            place += 1
        else:
            last = place + 2 == len(layers)
            found, neurons = _pairs(layers[place : place + 2], neurons, n, wrong, what, last)
            parts += found
            place += 2
    if not parts or isinstance(parts[-1], Branch):
        raise wrong
    return Stream(float(first.weight_std) ** 2, float(first.bias_std) ** 2, tuple(parts))


def _pairs(
    layers: list[Layer], neurons: int, n: int, wrong: NoTheory, what: str, last: bool = False
) -> tuple[tuple[HiddenLayer, ...], int]:
    """Read alternating activations and maps, and return the number of neurons behind them."""
    if not layers or len(layers) % 2:
        raise wrong
    found = []
    for number in range(0, len(layers), 2):
        phi, then = layers[number], layers[number + 1]
        if not isinstance(phi, Activation) or not isinstance(then, Dense):
            raise wrong
        check_derivative(phi.function, what)
        constants = float(then.weight_std) ** 2, float(then.bias_std) ** 2
        found.append(HiddenLayer(phi.function, neurons, *constants))
        neurons = neurons if last else _neurons(n, then)
    return tuple(found), neurons


def _neurons(n: int, layer: Dense) -> int:
    wanted = n * layer.width_ratio
    if wanted.denominator != 1:
        raise InvalidInput(f"width: {n} times the ratio {layer.width_ratio} is not an integer.")
    return int(wanted)
