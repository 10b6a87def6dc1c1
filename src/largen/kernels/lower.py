"""The program of a network as the kernels' recursion takes it, with arrays of constants.

Elementwise operations are joined into one function of each preactivation, and runs of equal
operations are folded into repetitions. Compiled functions depend on the operations alone. The
constants are arrays that mirror the operations, stacked where they repeat, so that other variances
or rates require no recompilation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import Layer, layers_of
from largen.errors import NoTheory
from largen.kernels.rules import CrossesCopies, OnlyByNetworks, infinite_stack, natures, plan_of
from largen.kernels.state import AffineConstants, Copies, GainConstants, Wanted
from largen.parameterizations import CanonicalForm
from largen.programs import (
    BRANCH,
    Affine,
    Attend,
    Function,
    Gain,
    MoveChannels,
    Program,
    Repeat,
    Sum,
    Weight,
    program_of,
)
from largen.programs.elementwise import join_elementwise
from largen.programs.folding import folded
from largen.programs.rewriting import copies_of, unrolled

COPIES = 64  # constants of a repetition are padded to this number of copies


@dataclass(frozen=True)
class ChannelsLast:
    """A function that moves the axis of channels of samples to the end."""

    axis: int

    def __call__(self, x: Any) -> Any:
        """Return the samples in that order."""
        return jnp.moveaxis(x, self.axis + 1, -1)


class Lowered(NamedTuple):
    """A network in the form that the kernels' recursion takes."""

    # Leading operations that act on the samples themselves, (n, *sample).
    features: tuple[Callable[[Any], Any], ...]
    program: Program  # all later operations
    constants: tuple[Any, ...]  # the constants of each operation


def lower(
    net: Layer,
    form: CanonicalForm,  # its parameterization at infinite width
    # Shape of a sample, (*space, channels), or D; it determines the number of features of branches
    # of a concatenation that flatten their input.
    inputs: int | tuple[int, ...] | None = None,
    *,
    # Whether the constants are final, so that quantities determined by them alone are computed
    # here.
    constant: bool = False,
    # Whether runs of equal operations become repetitions; otherwise all repetitions are written
    # out.
    fold: bool = True,
) -> Lowered:
    """Split a network into features of the inputs, a program and its constants."""
    joined = join_elementwise(program_of(net, inputs), form.branch, multiples=True, gains=True)
    features, program = _without_features(joined)
    program = folded(program) if fold else unrolled(program)
    try:
        program, constants = _with_constants(program, form, constant)
        natures(program)
        plan_of(program, Wanted())
    except CrossesCopies:
        return lower(net, form, inputs, constant=constant, fold=False)
    except OnlyByNetworks as found:
        raise NoTheory(f"{found}{_by_networks(net)}") from None
    return Lowered(features, program, constants)


def _without_features(program: Program) -> tuple[tuple[Callable[[Any], Any], ...], Program]:
    """Return leading operations that act on the samples, and the program behind them."""
    features: list[Callable[[Any], Any]] = []
    while program.output > 1 and program.readers[0] == (1,):
        match program.operations[1]:
            case Function(phi=phi):
                features.append(phi)
            case MoveChannels(axis=axis):
                features.append(ChannelsLast(axis))
            case _:
                break
        if 1 not in program.cuts:
            break
        program = program.between(1, program.output)
    return tuple(features), program


def _by_networks(net: Layer) -> str:
    """Return the end of a sentence on whether finite networks can estimate the missing kernel."""
    if any(layer.random for layer in layers_of(net)):
        return ". Finite networks, which draw no masks of dropout, cannot estimate it."
    return ", or estimate the kernel by Monte Carlo: lg.networks.monte_carlo_kernel."


class _Numbers(NamedTuple):
    """The numbers of a parameterization that the constants of a program are made of."""

    weights: tuple[AffineConstants | GainConstants, ...]
    seeds: tuple[float, ...]
    branch: float  # the factor of residual branches

    def of(self, weights: tuple[int, ...], seeds: tuple[int, ...]) -> _Numbers:
        """Return the numbers of some of the weights and seeds."""
        chosen = tuple(self.weights[i] for i in weights)
        return self._replace(weights=chosen, seeds=tuple(self.seeds[i] for i in seeds))


def _with_constants(
    program: Program, form: CanonicalForm, constant: bool
) -> tuple[Program, tuple[Any, ...]]:
    """Return a program in which infinitely many blocks are one operation, and its constants."""
    numbers = _Numbers(
        tuple(_constants(weight, form) for weight in program.weights),
        tuple(map(float, program.seeds)),
        form.branch,
    )
    operations, constants = [], []
    for operation in program.operations:
        if isinstance(operation, Repeat) and operation.times == math.inf:
            if form.diffusive is None:
                copies_of(operation, str(program.sources[len(operations)]))
            its = numbers.of(operation.weights[0], operation.seeds[0])

            def of(branch: Program, its: _Numbers = its) -> tuple[Any, ...]:
                return _constants_of(branch, its)

            assert form.diffusive is not None
            operation, found = infinite_stack(operation, of, form.branch, form.diffusive, constant)
        else:
            found = _constant_of(operation, numbers)
        operations.append(operation)
        constants.append(found)
    return replace(program, operations=tuple(operations)), tuple(constants)


def _constants_of(program: Program, numbers: _Numbers) -> tuple[Any, ...]:
    return tuple(_constant_of(operation, numbers) for operation in program.operations)


def _constant_of(operation: Any, numbers: _Numbers) -> Any:
    """Return the constants of an operation; those of copies have a leading axis if they differ."""
    match operation:
        case Function(gains=gains):
            return tuple(numbers.weights[weight] for weight, *_ in gains)
        case Affine(weight=weight) | Gain(weight=weight):
            return numbers.weights[weight]
        case Sum(factors=factors) if BRANCH in factors:
            return np.asarray(numbers.branch)
        case Attend(seed=int(seed)):
            return np.asarray(numbers.seeds[seed])
        case Repeat(body=body, weights=weights, seeds=seeds):
            seeds = seeds if len(seeds) == len(weights) else seeds * len(weights)
            rows = zip(weights, seeds, strict=True)
            copies = [_constants_of(body, numbers.of(*row)) for row in rows]
            if len(copies) == 1:
                return copies[0]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *copies)
    return ()


def of_any_depth(lowered: Lowered) -> Lowered:
    """Return a program for any number of copies, unless operations share a weight.

    Its compiled functions hold for all depths; they cannot be differentiated in reverse.
    """
    program = lowered.program
    used = [weight for operation in program.operations for weight in operation.weights_used()]
    if len(used) > len({*used}):
        return lowered
    operations, constants = [], []
    for operation, its in zip(program.operations, lowered.constants, strict=True):
        if isinstance(operation, Repeat):
            number = int(operation.times)
            if len(operation.weights) > 1:
                length = max(COPIES, 2 ** math.ceil(math.log2(number)))
                its = jax.tree.map(partial(_lengthened, length), its)
            rows = {"weights": operation.weights[:2], "seeds": operation.seeds[:2]}
            operation, its = replace(operation, times=2, **rows), Copies(its, np.asarray(number))
        operations.append(operation)
        constants.append(its)
    kept = [weight for operation in operations for weight in operation.weights_used()]
    weights = {old: new for new, old in enumerate(kept)}
    seeds = {seed: seed for seed in range(len(program.seeds))}
    program = replace(
        program,
        operations=tuple(operation.renumbered(weights, seeds) for operation in operations),
        weights=tuple(program.weights[weight] for weight in kept),
    )
    return lowered._replace(program=program, constants=tuple(constants))


def _lengthened(length: int, array: Any) -> np.ndarray:
    return np.concatenate([array, np.repeat(array[-1:], length - len(array), axis=0)])


def _constants(its: Weight, form: CanonicalForm) -> AffineConstants | GainConstants:
    name = its.name
    if its.gain:
        rates = (form.gains.get(f"{name}.{kind}", 0.0) for kind in ("gain", "offset"))
        return GainConstants(*(np.asarray(rate, dtype=np.float64) for rate in rates))
    weight, bias = form.weights[f"{name}.weight"], form.weights.get(f"{name}.bias")
    bias_std, bias_rate = (bias.std, bias.rate) if bias is not None else (0.0, 0.0)
    numbers = (weight.std**2, bias_std**2, weight.rate, bias_rate)
    return AffineConstants(*(np.asarray(number, dtype=np.float64) for number in numbers))


def features_of(lowered: Lowered, x1: Any, x2: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the program's inputs for two sets of samples; the second may be None."""

    def features(x):
        x = jnp.asarray(x, dtype)
        for phi in lowered.features:
            x = phi(x)
        return x

    return features(x1), None if x2 is None else features(x2)
