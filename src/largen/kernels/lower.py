"""Lowering of an architecture in a parameterization to a skeleton and arrays of constants.

The skeleton is the network without its constants, with the elementwise layers between two other
layers joined into one activation and runs of equal layers folded into repetitions. Compiled
functions depend on it alone. The constants are arrays that mirror the skeleton, stacked where it
repeats, so that other variances or rates require no recompilation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from largen.architectures import (
    Activation,
    Affine,
    Axes,
    Elementwise,
    Layer,
    Parallel,
    Repeat,
    Sequence,
    Signal,
    carry,
    copies_of,
    layers_of,
    signal_of,
)
from largen.errors import NoTheory
from largen.kernels.elementwise import append, together
from largen.kernels.pieces import Pieces, fold_pieces, stack
from largen.kernels.rules import DATA, OnlyByNetworks, infinite_stack, nature_behind, own_constants
from largen.kernels.state import AffineConstants
from largen.parameterizations import CanonicalForm

Path = tuple[int, ...]


@dataclass(frozen=True)
class ChannelsLast:
    """A function that moves the axis of channels of samples to the end."""

    axes: Axes

    def __call__(self, x: Any) -> Any:
        """Return the samples in that order."""
        return jnp.moveaxis(x, self.axes.channels + 1, -1)


class Lowered(NamedTuple):
    """A network in the form that the kernels' recursion takes.

    Attributes
    ----------
    features
        Leading layers that act on the samples themselves, (n, *sample).
    skeleton
        All later layers, without constants.
    constants
        Arrays that mirror the skeleton.
    """

    features: tuple[Callable[[Any], Any], ...]
    skeleton: Layer
    constants: Any


def lower(
    net: Layer,
    form: CanonicalForm,
    inputs: int | tuple[int, ...] | None = None,
    *,
    constant: bool = False,
) -> Lowered:
    """Split a network into features of the inputs, a skeleton and its constants.

    Parameters
    ----------
    net
        The network.
    form
        Its parameterization at infinite width.
    inputs
        Shape of a sample, (*space, channels), or D; it determines the number of features of
        branches of a concatenation that flatten their input.
    constant
        Whether the constants are final, so that quantities determined by them alone are computed
        here.

    Raises
    ------
    NoRule
        For a layer that has no kernel.
    NoTheory
        If each layer has a kernel, but not in this order.
    """
    pieces = _pieces(net, form, signal_of(inputs), constant)
    features: list[Callable[[Any], Any]] = []
    while len(pieces) > 1 and isinstance(first := pieces[0][0], Activation | Axes):
        features.append(first.function if isinstance(first, Activation) else ChannelsLast(first))
        pieces = pieces[1:]
    skeleton, constants = fold_pieces(pieces)
    try:
        nature_behind(skeleton, DATA)
    except OnlyByNetworks as found:
        raise NoTheory(f"{found}{_by_networks(net)}") from None
    return Lowered(tuple(features), skeleton, constants)


def _by_networks(net: Layer) -> str:
    """Return the end of a sentence on whether finite networks can estimate the missing kernel."""
    if any(layer.random for layer in layers_of(net)):
        return ". Finite networks, which draw no masks of dropout, cannot estimate it."
    return ", or estimate the kernel by Monte Carlo: lg.monte_carlo_kernel."


class _Behind(NamedTuple):
    """The sequence of layers so far with their constants, and the signal after them."""

    pieces: Pieces
    signal: Signal

    def followed_by(self, skeleton: Layer, constants: Any, layer: Layer) -> _Behind:
        append(self.pieces, skeleton, constants)
        return self._replace(signal=layer.signal_behind(self.signal))


def _pieces(net: Layer, form: CanonicalForm, signal: Signal, constant: bool) -> Pieces:
    """Return the sequence of layers of a network, with their constants."""

    def leaf(layer: Layer, path: Path, behind: _Behind) -> _Behind:
        if isinstance(layer, Elementwise):
            return behind.followed_by(Activation(layer.activation), (), layer)
        if not isinstance(layer, Affine):
            return behind.followed_by(layer, (), layer)
        return behind.followed_by(_bare(layer), _constants(path, form), layer)

    def join(layer: Parallel, path: Path, behind: _Behind, ways: Any) -> _Behind:
        found = [way(_Behind([], behind.signal)) for way in ways]
        bare, own = own_constants(layer, path, form, tuple(each.signal for each in found))
        parts = [fold_pieces(each.pieces) for each in found]
        return behind.followed_by(*together(bare, own, parts), layer)

    def again(layer: Sequence, path: Path, behind: _Behind, once: Any) -> _Behind:
        found = once(_Behind([], behind.signal)).pieces
        if form.diffusive is not None and layer.times == math.inf:
            return behind.followed_by(*infinite_stack(found, form.diffusive, constant), layer)
        skeleton, constants = fold_pieces(found)
        repeated = Repeat(skeleton, layer.times), stack([constants] * copies_of(layer))
        return behind.followed_by(*repeated, layer)

    return carry(net, _Behind([], signal), leaf=leaf, join=join, again=again).pieces


def _constants(path: Path, form: CanonicalForm) -> AffineConstants:
    name = ".".join(map(str, path)) or "0"
    weight, bias = form.weights[f"{name}.weight"], form.weights.get(f"{name}.bias")
    bias_std, bias_rate = (bias.std, bias.rate) if bias is not None else (0.0, 0.0)
    numbers = (weight.std**2, bias_std**2, weight.rate, bias_rate)
    return AffineConstants(*(np.asarray(number, dtype=np.float64) for number in numbers))


def _bare(layer: Affine) -> Affine:
    """Return a layer with its constants at their defaults, so that equal structures are equal."""
    return replace(layer, weight_std=1.0, bias_std=0.0, width_ratio=1)


def features_of(lowered: Lowered, x1: Any, x2: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the skeleton's inputs for two sets of samples; the second may be None."""

    def features(x):
        x = jnp.asarray(x, dtype)
        for phi in lowered.features:
            x = phi(x)
        return x

    return features(x1), None if x2 is None else features(x2)
