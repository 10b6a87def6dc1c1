"""The networks whose kernels at finite width are known, with their numbers of neurons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from largen.architectures import Layer
from largen.arrays import as_array
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.expectations import ActivationFunction
from largen.finite_width.checks import check_derivative
from largen.finite_width.constants import Constants, ConstantsOf
from largen.parameterizations import Parameterization
from largen.programs import (
    Affine,
    Data,
    Function,
    Operation,
    Program,
    ResidualBlock,
    Step,
    Sum,
    Weight,
    blocks,
    check_independent,
    no_rule,
    program_of,
    written_out,
)
from largen.scalars import integer, integers, real, sequence


@dataclass(frozen=True)
class HiddenLayer:
    """An activation of ``width`` neurons and the affine map behind it."""

    phi: ActivationFunction  # φ of these neurons
    width: int  # n, their number
    # weight, bias: σ_w² and σ_b² of the affine map behind them.
    weight: float
    bias: float
    # ρ of its weights and of its bias in the tangent kernel.
    rates: tuple[float, float] = (1.0, 1.0)
    excess: float = 0.0  # κ = E[w⁴]/E[w²]² − 3 of its weights


@dataclass(frozen=True)
class Branch:
    """A residual branch, h ← h + β·branch(h)."""

    # Its activations, each with the map behind it; the last map adds to the stream.
    inner: tuple[HiddenLayer, ...]
    square: float  # β²


@dataclass(frozen=True)
class SizedNetwork:
    """An affine map of the inputs, then hidden layers and residual branches, and a read-out."""

    first: Constants
    # The hidden layers and branches in order; the last is the hidden layer before the read-out.
    parts: tuple[HiddenLayer | Branch, ...]
    excess: float = 0.0  # κ of the weights of the first map

    def first_kernel(self, x: np.ndarray) -> np.ndarray:
        """Return K¹ = σ_b² + σ_w² x·x'/D, exact at any width."""
        return self.first.kernel(x)

    def first_fourth(self, x: np.ndarray) -> np.ndarray:
        """Return κσ_w⁴ Σ_i x_iα x_iβ x_iγ x_iδ/D², the first fourth cumulant, (pair, pair)."""
        one, other = np.triu_indices(len(x))
        products = x[one] * x[other]
        return self.excess * (self.first.weight / x.shape[1]) ** 2 * products @ products.T

    @property
    def hidden(self) -> tuple[HiddenLayer, ...]:
        """All hidden layers in order, those of branches included."""
        layers = [p.inner if isinstance(p, Branch) else (p,) for p in self.parts]
        return tuple(layer for part in layers for layer in part)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of neurons of every activation, in order."""
        return tuple(layer.width for layer in self.hidden)

    @property
    def branched(self) -> bool:
        """Whether there are residual branches."""
        return any(isinstance(part, Branch) for part in self.parts)

    def check_no_biases(self, what: str) -> None:
        """Raise if there are biases, for a formula without them."""
        if self.first.bias or any(layer.bias for layer in self.hidden):
            raise NoTheory(f"{what}: the formula is for networks without biases.")


def sized_network(
    net: Layer, width: int | Sequence[int], what: str,
    param: Parameterization | None = None, inputs: int = 1, *, branches: bool = False,
    excess: float | Sequence[float] = 0.0,
) -> SizedNetwork:  # fmt: skip
    """Read a network and its widths: N, or without branches a number for each layer.

    ``excess``: κ of all weights, or a number for each hidden layer, of the weights behind it; with
    one number more, the first is that of the weights that read the inputs.
    """
    instance_of("net", net, Layer, "a network such as lg.mlp(3)")
    program, reading = written_out(program_of(net)), f"{what} at finite width"
    known = (Affine, Function, Sum) if branches else (Affine, Function)
    for operation, source in zip(program.operations, program.sources, strict=True):
        if not _known(operation, known):
            raise no_rule(reading, operation, source, known)
    check_independent(program, reading)
    steps, residual = blocks(program, reading), any(isinstance(o, Sum) for o in program.operations)
    parts = _parts(steps, _wrong(what, net, residual), what)
    numbers = iter([*_numbers(program, width, residual), 1])  # one output
    constants = ConstantsOf(net, width, param, inputs, what)
    first = constants(steps[0].weight, inputs)
    kurtosis = _excesses(excess, program)
    of_first = next(kurtosis)
    return SizedNetwork(first, tuple(_sized(parts, numbers, constants, kurtosis)), of_first)


# An activation with the weight of the affine map behind it; a branch has several, and a factor.
_Pair = tuple[ActivationFunction, Weight]


class _Branch(NamedTuple):
    pairs: list[_Pair]
    block: ResidualBlock


def _known(operation: Operation, kinds: tuple[type[Operation], ...]) -> bool:
    if isinstance(operation, Affine):
        return operation.dense
    return isinstance(operation, (Data, *kinds))


def _wrong(what: str, net: Layer, residual: bool) -> NoTheory:
    wanted = (
        "Dense(), residual branches of Activation() and Dense() in turn, and Activation() and "
        "Dense() at the end, such as lg.residual_mlp(8)"
        if residual
        else "Dense() and Activation() in turn, from a Dense() to a Dense(), such as lg.mlp(3)"
    )
    return NoTheory(f"{what}: wanted {wanted}, got {net!r}.")


def _parts(steps: tuple[Step, ...], wrong: NoTheory, what: str) -> list[_Pair | _Branch]:
    """Return all parts behind the first affine map."""
    if not isinstance(steps[0].operation, Affine):
        raise wrong
    pairs: list[_Pair | _Branch] = []
    straight: list[Step] = []  # since the last branch
    for step in steps[1:]:
        if step.residual is None:
            straight.append(step)
            continue
        skip, branch, _ = step.residual
        if skip.output > 0 or branch.output == 0:
            raise wrong
        inner = _Branch(_pairs(blocks(branch, what), wrong, what), step.residual)
        pairs += [*_pairs(straight, wrong, what), inner]
        straight = []
    if not straight:
        raise wrong
    return pairs + _pairs(straight, wrong, what)


def _pairs(steps: Sequence[Step], wrong: NoTheory, what: str) -> list[_Pair]:
    """Return alternating functions and affine maps in pairs."""
    if len(steps) % 2:
        raise wrong
    pairs = []
    for function, then in zip(steps[0::2], steps[1::2], strict=True):
        phi = function.operation
        if not isinstance(phi, Function) or not isinstance(then.operation, Affine):
            raise wrong
        check_derivative(phi.phi, what)
        pairs.append((phi.phi, then.weight))
    return pairs


def _numbers(program: Program, width: int | Sequence[int], residual: bool) -> list[int]:
    """Return the number of neurons behind each affine map but the read-out."""
    maps = [each.weight for each in program.operations if isinstance(each, Affine)]
    ratios = [program.weights[index].width_ratio for index in maps[:-1]]
    if isinstance(width, (int, np.integer)):
        n = integer("width", width, at_least=1)
        numbers = [n * ratio for ratio in ratios]
        if any(w.denominator != 1 for w in numbers):
            shown = ", ".join(map(str, ratios))
            raise InvalidInput(f"width: {n} times the ratios {shown} are not all integers.")
        return [int(w) for w in numbers]
    if residual:
        raise InvalidInput(f"width: residual networks have one width, got {width!r}.")
    numbers = integers("width", width, at_least=1)
    if len(numbers) != len(ratios):
        raise InvalidInput(
            f"width: wanted one for each of {len(ratios)} hidden layers, got {len(numbers)}."
        )
    return numbers


def _excesses(excess: float | Sequence[float], program: Program) -> Iterator[float]:
    """Return κ of the weights of each map, the one that reads the inputs first."""
    layers = sum(isinstance(each, Affine) for each in program.operations) - 1
    if np.ndim(as_array("excess", excess)) == 0:
        return iter([real("excess", excess, at_least=-2)] * (layers + 1))
    found = [real("excess", each, at_least=-2) for each in sequence("excess", excess, "numbers")]
    if len(found) not in (layers, layers + 1):
        raise InvalidInput(
            f"excess: wanted one for each of {layers} hidden layers, or one more for the weights "
            f"that read the inputs, got {len(found)}."
        )
    return iter([0.0] * (layers + 1 - len(found)) + found)


def _sized(
    parts: list[_Pair | _Branch],
    numbers: Iterator[int],
    constants: ConstantsOf,
    excesses: Iterator[float],
) -> Iterator[HiddenLayer | Branch]:
    """Yield the parts with their numbers of neurons, those behind all maps, and constants."""
    neurons = next(numbers)
    for part in parts:
        inner, behind = [], neurons
        for phi, weight in part.pairs if isinstance(part, _Branch) else [part]:
            its = constants(weight, behind)
            of_map = its.weight, its.bias, its.rates, next(excesses)
            inner.append(HiddenLayer(phi, behind, *of_map))
            behind = next(numbers)
        if isinstance(part, _Branch):
            yield Branch(tuple(inner), part.block.beta(constants.branch) ** 2)
        else:
            yield inner[0]
        neurons = behind
