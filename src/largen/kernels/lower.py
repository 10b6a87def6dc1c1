"""From an architecture in a parameterization to what the recursion runs: a skeleton and numbers.

The skeleton is the network without its constants, with what is elementwise between two other
layers made one activation, and with runs of equal layers folded into repetitions; it is what a
compiled function depends on. The constants are arrays that mirror it, stacked where it repeats,
so that other variances or rates compile nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple
from zlib import crc32

import jax.numpy as jnp
import numpy as np

from largen.architectures import (
    Activation,
    Axes,
    Concatenate,
    Dropout,
    Layer,
    MultiHeadAttention,
    Product,
    Repeat,
    Residual,
    Serial,
    layers_of,
    signal_behind,
    signal_of,
)
from largen.architectures.heads import with_branches
from largen.architectures.signals import Signal
from largen.errors import NoTheory
from largen.kernels.elementwise import factors_joined, joined
from largen.kernels.pieces import Pieces, composed, stacked
from largen.kernels.rules import DATA, OnlyByNetworks, nature_behind
from largen.kernels.state import Constants
from largen.parameterizations import CanonicalForm


@dataclass(frozen=True)
class ChannelsLast:
    """Samples with the axis of channels behind the others."""

    axes: Axes

    def __call__(self, x: Any) -> Any:
        """Return the samples in that order."""
        return jnp.moveaxis(x, self.axes.channels + 1, -1)


class Lowered(NamedTuple):
    """A network as the recursion wants it.

    Attributes
    ----------
    features
        Functions of the samples, (n, *sample), before the first other layer.
    skeleton
        Everything behind them, without constants.
    constants
        Arrays that mirror the skeleton.
    """

    features: tuple[Callable[[Any], Any], ...]
    skeleton: Layer
    constants: Any


def lower(net: Layer, form: CanonicalForm, inputs: int | tuple[int, ...] | None = None) -> Lowered:
    """Split a network into features of the inputs, a skeleton and its constants.

    Parameters
    ----------
    net
        The network.
    form
        Its parameterization at infinite width.
    inputs
        Shape of a sample, (*space, channels), or D; it decides how many features the branches
        of a concatenation have if they flatten their input.

    Raises
    ------
    NoRule
        For a layer that has no kernel.
    NoTheory
        For layers that have one each, but not in this order.
    """
    pieces = _pieces(net, (), form, signal_of(inputs))
    features: list[Callable[[Any], Any]] = []
    while len(pieces) > 1 and isinstance(first := pieces[0][0], Activation | Axes):
        features.append(first.function if isinstance(first, Activation) else ChannelsLast(first))
        pieces = pieces[1:]
    skeleton, constants = composed(pieces)
    try:
        nature_behind(skeleton, DATA)
    except OnlyByNetworks as found:
        raise NoTheory(f"{found}{_by_networks(net)}") from None
    return Lowered(tuple(features), skeleton, constants)


def _by_networks(net: Layer) -> str:
    """Return whether networks can estimate a kernel that has no rule: the end of a sentence."""
    if any(isinstance(layer, Dropout) and layer.rate for layer in layers_of(net)):
        return ". Finite networks, which draw no masks of dropout, cannot estimate it."
    return ", or estimate the kernel by Monte Carlo: lg.monte_carlo_kernel."


def _pieces(layer: Layer, path: tuple[int, ...], form: CanonicalForm, signal: Signal) -> Pieces:
    """Return the layers, one after the other, that a layer is made of, with their constants."""

    def lowered(inner: Layer, position: int) -> Any:
        return composed(_pieces(inner, (*path, position), form, signal))

    match layer:
        case Serial(layers):
            pieces: Pieces = []
            for position, inner in enumerate(layers):
                pieces += _pieces(inner, (*path, position), form, signal)
                signal = signal_behind(inner, signal)
            return joined(pieces)
        case Repeat(inner, times):
            skeleton, constants = lowered(inner, 0)
            return joined([(Repeat(skeleton, times), stacked([constants] * times))])
        case Residual(branch, shortcut):
            skeleton, constants = lowered(branch, 0)
            skip, of_skip = (None, ()) if shortcut is None else lowered(shortcut, 1)
            factor = np.asarray(form.branch**2)
            return joined([(Residual(skeleton, skip), (factor, constants, of_skip))])
        case Concatenate(branches):
            found = [lowered(branch, i) for i, branch in enumerate(branches)]
            copies = np.array([signal_behind(branch, signal).copies for branch in branches], float)
            skeletons, constants = zip(*found, strict=True)
            shares = tuple(np.asarray(share) for share in copies / copies.sum())
            return [(Concatenate(*skeletons), (shares, constants))]
        case MultiHeadAttention(branches, seed=seed):
            found = [lowered(branch, i) for i, branch in enumerate(branches)]
            skeletons, constants = zip(*found, strict=True)
            own = np.asarray(float(crc32(repr((path, seed)).encode())))  # one for each place
            return [(with_branches(layer, skeletons), (own, constants))]
        case Product(branches):
            found = [lowered(branch, i) for i, branch in enumerate(branches)]
            return joined([factors_joined(found)])
    name = ".".join(map(str, path)) or "0"
    if f"{name}.weight" not in form.weights:
        return [(layer, ())]
    return [(_bare(layer), _constants(name, form))]


def _constants(name: str, form: CanonicalForm) -> Constants:
    weight, bias = form.weights[f"{name}.weight"], form.weights.get(f"{name}.bias")
    bias_std, bias_rate = (bias.std, bias.rate) if bias is not None else (0.0, 0.0)
    numbers = (weight.std**2, bias_std**2, weight.rate, bias_rate)
    return Constants(*(np.asarray(number, dtype=np.float64) for number in numbers))


def _bare(layer: Layer) -> Layer:
    """Return a layer with its constants at their defaults, so that equal structures are equal."""
    constants = {
        field.name: field.default
        for field in fields(layer)
        if field.name in ("weight_std", "bias_std", "width_ratio")
    }
    return replace(layer, **constants)
