"""What is elementwise between two other layers, as one function of the Gaussian preactivation.

The Gaussian integrals of the kernels are over preactivations. An activation of an activation, a
sum x + c·φ(x) or a product of elementwise branches is no Gaussian any more, but one function of
the same one; and an activation in front of a branch is part of what the branch begins with.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, cast

from largen.architectures import (
    Activation,
    Concatenate,
    Flatten,
    Layer,
    MultiHeadAttention,
    Product,
    Repeat,
    Residual,
    Serial,
)
from largen.architectures.heads import with_branches
from largen.expectations import ActivationFunction, activation
from largen.expectations.composition import compose, product, weighted_sum
from largen.kernels.pieces import Pieces, composed, taken_apart, written_out

_LINEAR = activation("linear")


def joined(pieces: Pieces) -> Pieces:
    """Return the same network with every elementwise run as one activation."""
    done: Pieces = []
    for layer, constants in pieces:
        _append(done, layer, constants)
    return done


def _append(done: Pieces, layer: Layer, constants: Any) -> None:
    phi = function_of(layer, constants)
    if phi is not None:
        _append_function(done, phi)
        return
    before = done[-1][0] if done else None
    copied = isinstance(layer, Repeat)
    if copied and _begins(layer) and (isinstance(before, Activation) or _ends(layer)):
        for piece in written_out(layer, constants):  # equal copies are folded again later
            _append(done, *piece)
    elif isinstance(before, Activation) and _begins(layer):
        done.pop()
        _append(done, *_behind(before, layer, constants))
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
        done += joined([*written_out(last, constants), (Activation(phi), ())])
    elif isinstance(last, Concatenate):
        shares, inner = constants
        found = [
            composed(joined([*taken_apart(branch, its), (Activation(phi), ())]))
            for branch, its in zip(last.branches, inner, strict=True)
        ]
        branches, inner = zip(*found, strict=True)
        done[-1] = (Concatenate(*branches), (shares, inner))
    else:
        done.append((Activation(phi), ()))


def factors_joined(factors: Pieces) -> tuple[Layer, Any]:
    """Return a product with its elementwise factors as one, which leads the others."""
    functions = [layer.function for layer, _ in factors if isinstance(layer, Activation)]
    others = [factor for factor in factors if not isinstance(factor[0], Activation)]
    if functions:
        others.insert(0, (Activation(reduce(product, functions)), ()))
    if len(others) == 1:
        return others[0]
    layers, constants = zip(*others, strict=True)
    return Product(*layers), constants


def function_of(layer: Layer, constants: Any) -> ActivationFunction | None:
    """Return the function that an elementwise layer is, or None for any other."""
    match layer:
        case Activation(function):
            return function
        case Residual(Activation(function), None | Activation() as skip):
            shortcut = skip.function if isinstance(skip, Activation) else _LINEAR
            return weighted_sum((1.0, shortcut), (float(constants[0]) ** 0.5, function))
        case Repeat(Activation(function), times):
            return reduce(compose, [function] * times)
    return None


def _begins(layer: Layer) -> bool:
    """Whether something in a layer applies an activation to what comes in."""
    match layer:
        case Activation():
            return True
        case Serial(layers):
            return _begins(layers[0])
        case Repeat(inner, _):
            return _begins(inner)
        case Residual(branch, shortcut):
            return _begins(branch) or (shortcut is not None and _begins(shortcut))
        case Concatenate(branches) | Product(branches) | MultiHeadAttention(branches):
            return any(map(_begins, branches))
    return False


def _ends(layer: Layer) -> bool:
    """Whether the last thing that a layer does is an activation."""
    match layer:
        case Serial(layers):
            return _ends(layers[-1])
        case Repeat(inner, _):
            return _ends(inner)
    return isinstance(layer, Activation)


def _behind(phi: Activation, layer: Layer, constants: Any) -> tuple[Layer, Any]:
    """Return branches that read x as branches that read φ(x)."""

    def prefixed(branch: Layer | None, its: Any) -> tuple[Layer, Any]:
        rest = [] if branch is None else taken_apart(branch, its)
        return composed(joined([(phi, ()), *rest]))

    match layer:
        case Residual(branch, shortcut):
            factor, inner, of_shortcut = constants
            branch, inner = prefixed(branch, inner)
            shortcut, of_shortcut = prefixed(shortcut, of_shortcut)
            return Residual(branch, shortcut), (factor, inner, of_shortcut)
        case Concatenate(branches):
            shares, inner = constants
            found = [prefixed(*each) for each in zip(branches, inner, strict=True)]
            branches, inner = zip(*found, strict=True)
            return Concatenate(*branches), (shares, inner)
        case MultiHeadAttention(branches):
            seed, inner = constants
            found = [prefixed(*each) for each in zip(branches, inner, strict=True)]
            branches, inner = zip(*found, strict=True)
            return with_branches(layer, branches), (seed, inner)
        case Product(branches):
            return factors_joined(
                [prefixed(*each) for each in zip(branches, constants, strict=True)]
            )
    raise AssertionError(layer)
