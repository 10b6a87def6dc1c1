"""Whether the expectations in a network's kernels are accurate, for a few of its variances.

Eight variances that stand for those of all inputs go through the layers in NumPy; every
activation without a closed form is then checked at the variances that reach it. The cost does
not depend on the number of pairs.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from largen.architectures import Activation, Dense, Layer, Repeat, Residual, Serial
from largen.arrays import real
from largen.errors import NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.accuracy import DEFAULT_RTOL, probes, second_moment_at, shortfall
from largen.kernels.lower import Lowered
from largen.kernels.tiles import in_closed_form

Seen = dict[ActivationFunction, list[np.ndarray]]


def inaccuracy(
    lowered: Lowered, inputs: tuple[Any, ...], rtol: float | None, with_ntk: bool = True
) -> str | None:
    """Return what to say if a kernel of these inputs may be worse than ``rtol``, or None.

    Parameters
    ----------
    lowered
        The network.
    inputs
        Sets of inputs, (n, D) each; not traced.
    rtol
        The relative error that is accepted in any entry, 1e-8 if None.
    with_ntk
        Whether E[φ'φ'] matters.
    """
    rtol = DEFAULT_RTOL["float64"] if rtol is None else real("rtol", rtol, above=0.0)
    if in_closed_form(lowered.skeleton):
        return None
    variances = []
    for x in inputs:
        x = np.asarray(x, np.float64)
        for phi in lowered.features:
            with jax.enable_x64(True):
                x = np.asarray(phi(x))
        variances.append(np.mean(x**2, axis=1))
    seen: Seen = {}
    try:
        _follow(lowered.skeleton, lowered.constants, probes(np.concatenate(variances)), seen)
    except jax.errors.JAXTypeError:  # an activation holds traced values
        return None
    for phi, q in seen.items():
        words = shortfall(phi, np.stack(q), rtol, layers=len(q), derivative=with_ntk)
        if words is not None:
            return f"kernels: {words}"
    return None


def report(words: str | None, result: Any, throw: bool) -> Any:
    """Return the result, or raise with it if there is something to say."""
    if words is not None and throw:
        raise NumericalFailure(words, result)
    return result


def _follow(layer: Layer, constants: Any, q: np.ndarray, seen: Seen) -> np.ndarray:
    """Return the variances behind a layer, and note those that reach each activation."""
    match layer:
        case Dense():
            return constants.weight_variance * q + constants.bias_variance
        case Activation(phi):
            seen.setdefault(phi, []).append(q)
            return second_moment_at(phi, q)
        case Serial(layers):
            for inner, its_constants in zip(layers, constants, strict=True):
                q = _follow(inner, its_constants, q, seen)
            return q
        case Repeat(inner, times):
            for copy in range(times):
                here = jax.tree.map(lambda c, copy=copy: c[copy], constants)
                q = _follow(inner, here, q, seen)
            return q
        case Residual(branch):
            factor, inner = constants
            return q + factor * _follow(branch, inner, q, seen)
    return q  # a layer of the reader's own: its variances are taken as they come
