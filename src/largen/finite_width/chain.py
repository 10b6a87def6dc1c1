"""The networks whose kernels at finite width are known, and their constants layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Activation, Dense, Layer, Repeat, Serial, copies_of
from largen.architectures.walks import Path
from largen.arrays import floating, known
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import kinks_of, values
from largen.finite_width.constants import Constants, ConstantsOf
from largen.parameterizations import Parameterization
from largen.scalars import integer, integers


@dataclass(frozen=True)
class HiddenLayer:
    """An activation of ``width`` neurons and the affine map behind it.

    Attributes
    ----------
    phi
        φ of these neurons.
    width
        n, their number.
    weight, bias
        σ_w² and σ_b² of the affine map behind them.
    rates
        ρ of its weights and of its bias in the tangent kernel.
    """

    phi: ActivationFunction
    width: int
    weight: float
    bias: float
    rates: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Chain:
    """A fully connected network: an affine map of the inputs, then hidden layers.

    Attributes
    ----------
    first
        The constants of the first map.
    hidden
        The hidden layers in order.
    """

    first: Constants
    hidden: tuple[HiddenLayer, ...]

    def first_kernel(self, x: np.ndarray) -> np.ndarray:
        """Return K¹ = σ_b² + σ_w² x·x'/D, exact at any width."""
        return self.first.kernel(x)


def chain_of(
    net: Layer, width: int | Sequence[int], what: str,
    param: Parameterization | None = None, inputs: int = 1,
) -> Chain:  # fmt: skip
    """Read a network of ``inputs`` inputs as a chain, with its widths.

    Raises
    ------
    NoRule
        For a layer without a theory at finite width, such as a convolution.
    NoTheory
        For fully connected networks in another order, and weights that are not Gaussian.
    InvalidInput
        For widths that are not positive, or not one for each hidden layer.
    """
    if not isinstance(net, Layer):
        raise InvalidInput(f"net: wanted a network such as lg.mlp(3), got {net!r}.")
    found = list(places(net))
    paths, layers = [path for path, _ in found], [layer for _, layer in found]
    for layer in layers:
        if not isinstance(layer, (Dense, Activation)):
            raise NoRule(f"{what} at finite width", layer, [Dense, Activation])
    wanted = [Dense if i % 2 == 0 else Activation for i in range(len(layers))]
    fits = len(layers) >= 3 and len(layers) % 2 == 1
    if not fits or not all(map(isinstance, layers, wanted)):
        raise NoTheory(
            f"{what}: wanted Dense() and Activation() in turn, from a Dense() to a Dense(), such "
            f"as lg.mlp(3), got {net!r}."
        )
    maps: list[Any] = layers[0::2]
    functions: list[Any] = layers[1::2]
    widths = _widths(width, [layer.width_ratio for layer in maps[:-1]])
    for layer in functions:
        check_derivative(layer.function, what)
    constants = ConstantsOf(net, width, param, inputs, what)
    first, *others = map(constants, paths[0::2], maps, [inputs, *widths])
    hidden = tuple(
        HiddenLayer(layer.function, n, then.weight, then.bias, then.rates)
        for layer, n, then in zip(functions, widths, others, strict=True)
    )
    return Chain(first, hidden)


def places(net: Layer, path: Path = ()) -> Iterator[tuple[Path, Layer]]:
    """Yield the layers in order with their paths, compositions and repetitions written out."""
    if isinstance(net, Serial):
        for number, layer in enumerate(net.layers):
            yield from places(layer, (*path, number))
    elif isinstance(net, Repeat):
        yield from list(places(net.layer, (*path, 0))) * copies_of(net)
    else:
        yield path, net


def _widths(width: int | Sequence[int], ratios: list[Any]) -> list[int]:
    if isinstance(width, (int, np.integer)):
        n = integer("width", width, at_least=1)
        found = [n * ratio for ratio in ratios]
        if any(w.denominator != 1 for w in found):
            raise InvalidInput(f"width: {n} times the ratios {ratios} are not all integers.")
        return [int(w) for w in found]
    found = integers("width", width, at_least=1)
    if len(found) != len(ratios):
        raise InvalidInput(
            f"width: wanted one for each of {len(ratios)} hidden layers, got {len(found)}."
        )
    return found


def check_derivative(phi: ActivationFunction, what: str) -> None:
    """Raise if φ jumps, so that φ' is not a function.

    Raises
    ------
    NoTheory
        The message names φ.
    """
    kinks = np.asarray(kinks_of(phi))
    if not kinks.size:
        return
    beside = 1e-7 * np.maximum(1, np.abs(kinks))
    (above, right), (below, left) = values(phi, kinks + beside), values(phi, kinks - beside)
    if phi.jumps or np.any(np.abs(above - below) > 100 * beside * (1 + np.abs(right + left))):
        raise NoTheory(
            f"{what}: {phi} jumps. Its kernel's derivatives at order 1/width, and its NTK, do not "
            "exist as averages of φ and φ'."
        )


def checked_inputs(x: ArrayLike, name: str = "x") -> np.ndarray:
    """Check inputs, (sample, input), at the public function, in float64."""
    known(name, x)
    return np.asarray(floating(name, x, ndim=2), np.float64)


def check_alive(kernel: np.ndarray, layer: int) -> None:
    """Raise if the kernel of a layer overflows or an input's variance is 0."""
    q = np.diagonal(kernel)
    if not np.isfinite(kernel).all():
        raise NumericalFailure(f"the kernel overflows in layer {layer}: take a smaller weight_std.")
    if (q <= 1e-12).any():
        raise NumericalFailure(
            f"input {int(np.argmin(q))} has the variance {q.min():.2g} in layer {layer}: its "
            "signal vanishes, and relative fluctuations are not defined. Take a larger weight_std, "
            "or a bias."
        )
