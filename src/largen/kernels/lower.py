"""From an architecture in a parameterization to what the recursion runs: a skeleton and numbers.

The skeleton is the network without its constants, with runs of equal layers folded into
repetitions; it is what a compiled function depends on. The constants are arrays that mirror it,
stacked where it repeats, so that other variances or rates compile nothing anew.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.architectures import Activation, Dense, Layer, Repeat, Residual, Serial, serial
from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.kernels.fold import fold
from largen.kernels.state import Constants
from largen.parameterizations import CanonicalForm


class Lowered(NamedTuple):
    """A network as the recursion wants it.

    Attributes
    ----------
    features
        Functions applied to the inputs before the first affine map.
    skeleton
        Everything behind them, without constants.
    constants
        Arrays that mirror the skeleton.
    """

    features: tuple[ActivationFunction, ...]
    skeleton: Layer
    constants: Any


def lower(net: Layer, form: CanonicalForm) -> Lowered:
    """Split a network into features of the inputs, a skeleton and its constants.

    Raises
    ------
    NoTheory
        If something other than activations stands before the first affine map.
    """
    layers = net.layers if isinstance(net, Serial) else (net,)
    first = next((i for i, layer in enumerate(layers) if isinstance(layer, Dense)), len(layers))
    features = []
    for layer in layers[:first]:
        if not isinstance(layer, Activation):
            raise NoTheory(
                f"kernels: {layer!r} stands before the first affine map, where inputs are data "
                "and not Gaussian; only activations may. Put a Dense() before it."
            )
        features.append(layer.function)
    children = [_lower(layer, (i,), form) for i, layer in enumerate(layers[first:], start=first)]
    return Lowered(tuple(features), *_compose(children))


def _lower(layer: Layer, path: tuple[int, ...], form: CanonicalForm) -> tuple[Layer, Any]:
    match layer:
        case Serial(layers):
            return _compose([_lower(inner, (*path, i), form) for i, inner in enumerate(layers)])
        case Repeat(inner, times):
            skeleton, constants = _lower(inner, (*path, 0), form)
            stacked = jax.tree.map(lambda c: np.broadcast_to(c, (times, *c.shape)), constants)
            return Repeat(skeleton, times), stacked
        case Residual(branch):
            skeleton, constants = _lower(branch, (*path, 0), form)
            return Residual(skeleton), (np.asarray(form.branch**2), constants)
    name = ".".join(map(str, path))
    if f"{name}.weight" not in form.weights:
        return layer, ()
    return _bare(layer), _constants(name, form)


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
        if field.name in ("weight_std", "bias_std")
    }
    return replace(layer, **constants)


def _compose(children: list[tuple[Layer, Any]]) -> tuple[Layer, Any]:
    skeletons, constants, position = [], [], 0
    for block, times in fold([skeleton for skeleton, _ in children]):
        length = len(block)
        copies = [
            tuple(c for _, c in children[start : start + length])
            for start in range(position, position + times * length, length)
        ]
        if times == 1:
            skeletons += block
            constants += copies[0]
        else:
            body = serial(*block)
            if not isinstance(body, Serial):
                copies = [copy[0] for copy in copies]
            skeletons.append(Repeat(body, times))
            constants.append(jax.tree.map(lambda *leaves: np.stack(leaves), *copies))
        position += times * length
    if len(skeletons) == 1:
        return skeletons[0], constants[0]
    return Serial(tuple(skeletons)), tuple(constants)
