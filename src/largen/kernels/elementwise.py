"""Elementwise layers between two other layers, joined into one function of the preactivation.

The Gaussian integrals of the kernels are over preactivations. An activation of an activation, a sum
x + c·φ(x) or a product of elementwise branches is not Gaussian, but is one function of the same
Gaussian preactivation; an activation in front of a branch is joined with the first layer of the
branch.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, cast

from largen.architectures import (
    Activation,
    Concatenate,
    Flatten,
    Layer,
    Parallel,
    Product,
    Repeat,
    Residual,
    Sequence,
    copies_of,
)
from largen.expectations import ActivationFunction, activation
from largen.expectations.composition import compose, product, weighted_sum
from largen.kernels.pieces import Pieces, fold_pieces, parts_with_constants, unroll
from largen.kernels.state import Shared

_LINEAR = activation("linear")


def join_elementwise(pieces: Pieces) -> Pieces:
    """Return the same network with every run of elementwise layers as one activation."""
    done: Pieces = []
    for layer, constants in pieces:
        append(done, layer, constants)
    return done


def append(done: Pieces, layer: Layer, constants: Any) -> None:
    """Append a layer, joined with the elementwise layers before it."""
    phi = function_of(layer, constants)
    if phi is not None:
        _append_function(done, phi)
        return
    before = done[-1][0] if done else None
    copied = isinstance(layer, Repeat)
    if copied and _begins(layer) and (isinstance(before, Activation) or _ends(layer)):
        for piece in unroll(layer, constants):  # equal copies are folded again later
            append(done, *piece)
    elif isinstance(before, Activation) and isinstance(layer, Parallel) and _begins(layer):
        done.pop()
        append(done, *_behind(before, layer, constants))
    else:
        done.append((layer, constants))


def _append_function(done: Pieces, phi: ActivationFunction) -> None:
    """Append an activation, in front of layers that commute with it."""
    last, constants = done[-1] if done else (None, cast(Any, None))
    if isinstance(last, Activation):
        done[-1] = (Activation(compose(phi, last.function)), ())
    elif isinstance(last, Flatten):
        done.pop()
        _append_function(done, phi)
        done.append((last, constants))
    elif isinstance(last, Repeat) and _ends(last):
        done.pop()
        done += join_elementwise([*unroll(last, constants), (Activation(phi), ())])
    elif isinstance(last, Concatenate):
        found = [
            fold_pieces(
                join_elementwise([*parts_with_constants(branch, its), (Activation(phi), ())])
            )
            for branch, its in zip(last.parts, constants.parts, strict=True)
        ]
        done[-1] = together(last, constants.own, found)
    else:
        done.append((Activation(phi), ()))


def _join_factors(factors: Pieces) -> Pieces:
    """Return a product with its elementwise factors joined into one, which comes first."""
    functions = [layer.function for layer, _ in factors if isinstance(layer, Activation)]
    others = [factor for factor in factors if not isinstance(factor[0], Activation)]
    if functions:
        others.insert(0, (Activation(reduce(product, functions)), ()))
    return others


def function_of(layer: Layer, constants: Any) -> ActivationFunction | None:
    """Return the function of an elementwise layer, or None for any other layer."""
    match layer:
        case Activation(function):
            return function
        case Residual(Activation(function), None | Activation() as skip):
            shortcut = skip.function if isinstance(skip, Activation) else _LINEAR
            return weighted_sum((1.0, shortcut), (float(constants.own) ** 0.5, function))
        case Repeat(Activation(function)):
            return reduce(compose, [function] * copies_of(layer))
    return None


def _begins(layer: Layer) -> bool:
    """Whether a layer, or a part of it, applies an activation to its input."""
    if isinstance(layer, Sequence):
        return bool(layer.parts) and _begins(layer.parts[0])
    if isinstance(layer, Parallel):
        return any(map(_begins, layer.parts))
    return isinstance(layer, Activation)


def _ends(layer: Layer) -> bool:
    """Whether a layer ends with an activation."""
    if isinstance(layer, Sequence):
        return bool(layer.parts) and _ends(layer.parts[-1])
    return isinstance(layer, Activation)


def _behind(phi: Activation, layer: Parallel, constants: Shared) -> tuple[Layer, Any]:
    """Return a layer whose parts read φ(x) as a layer whose parts read x."""
    found = [
        fold_pieces(join_elementwise([(phi, ()), *parts_with_constants(part, its)]))
        for part, its in zip(layer.parts, constants.parts, strict=True)
    ]
    return together(layer, constants.own, found)


def together(layer: Parallel, own: Any, found: Pieces) -> tuple[Layer, Any]:
    """Return a parallel layer with other parts, and its own constants joined with theirs."""
    if isinstance(layer, Product):
        found = _join_factors(found)
        if len(found) == 1:
            return found[0]
        return Product(*(part for part, _ in found)), Shared(own, tuple(c for _, c in found))
    parts, constants = zip(*found, strict=True)
    return layer.with_parts(parts), Shared(own, constants)
