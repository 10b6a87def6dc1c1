"""Networks of convolutions, poolings and residual branches, with their numbers of neurons.

A preactivation is a value for each sample, position and channel. The samples and positions together
are the inputs of all averages over channels: an affine map takes the covariance Φ of features at
pairs of samples and positions to σ_b² + Σ_k T_k Φ T_kᵀ, with T_k the weight of tap k between
positions (:mod:`largen.programs.receptive_fields`) times σ_w over the root of the fan-in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.architectures import Layer
from largen.errors import NoTheory, instance_of
from largen.expectations import ActivationFunction
from largen.finite_width.checks import check_derivative
from largen.finite_width.constants import ConstantsOf
from largen.parameterizations import Parameterization
from largen.programs import (
    Affine,
    Data,
    Flatten,
    Function,
    MoveChannels,
    Pool,
    Program,
    Scale,
    Step,
    Sum,
    blocks,
    check_independent,
    join_elementwise,
    no_rule,
    program_of,
    written_out,
)
from largen.programs.receptive_fields import View
from largen.scalars import integer

KNOWN = (Affine, Function, Pool, Scale, Flatten, Sum)


@dataclass(frozen=True, eq=False)
class PositionMap:
    """An affine map between positions."""

    taps: np.ndarray  # T, (tap, output position, input position), σ_w/√fan-in included
    bias: float  # σ_b²
    rates: tuple[float, float]  # ρ of weights and bias in the tangent kernel

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionMap) and self._numbers == other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    @property
    def _numbers(self) -> tuple[Any, ...]:
        """All numbers, by which programs that are compiled for a network are found again."""
        return self.taps.shape, self.taps.tobytes(), self.bias, self.rates

    def weighed(self, covariance):
        """Return Σ_k T_k Φ T_kᵀ of Φ (…, sample·input, sample·input)."""
        return _between(self.taps, covariance)

    def returned(self, covariance):
        """Return Σ_k T_kᵀ G T_k of G (…, sample·output, sample·output)."""
        return _between(self.taps.swapaxes(1, 2), covariance)


def _between(taps: np.ndarray, covariance):
    """Return the sum over taps of T C Tᵀ, at every pair of samples."""
    _, behind, before = taps.shape
    *lead, size, _ = covariance.shape
    samples = size // before
    if taps.shape == (1, 1, 1):
        return float(taps.item()) ** 2 * covariance
    whole = covariance.reshape(-1, samples, before, samples, before)
    total: Any = 0.0
    for tap in taps.astype(covariance.dtype):
        total = total + tap @ (whole @ tap.T).reshape(-1, before, samples * behind)
    return total.reshape(*lead, samples * behind, samples * behind)


@dataclass(frozen=True)
class Read:
    """An activation of ``width`` channels, and the affine map behind it."""

    phi: ActivationFunction
    width: int
    map: PositionMap


@dataclass(frozen=True)
class Part:
    """Layers in sequence: one of the network, or those of a branch h ← h + β·branch(h)."""

    reads: tuple[Read, ...]
    square: float | None = None  # β² of a branch


@dataclass(frozen=True)
class LayeredNetwork:
    """An affine map of the inputs, and the parts behind it; the last one ends in the read-out."""

    first: PositionMap
    parts: tuple[Part, ...]
    channels: int | None  # the axis of channels in a sample, if it is not the last one

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of channels of every activation, in order."""
        return tuple(read.width for part in self.parts for read in part.reads)

    def covariance(self, x: np.ndarray) -> np.ndarray:
        """Return x·x/D of pairs of samples and positions."""
        if self.channels is not None:
            x = np.moveaxis(x, self.channels + 1, -1)
        rows = x.reshape(-1, x.shape[-1])
        return rows @ rows.T / rows.shape[1]


def layered_network(
    net: Layer, width: int, what: str, param: Parameterization | None, inputs: tuple[int, ...]
) -> LayeredNetwork:
    """Read a network of one width; ``inputs``: the shape of a sample."""
    instance_of("net", net, Layer, "a network such as lg.mlp(3)")
    shape = inputs if len(inputs) > 1 else math.prod(inputs)
    program, reading = written_out(program_of(net, shape)), f"{what} at finite width"
    check_independent(program, reading)
    walk = _Walk(program, reading, integer("width", width, at_least=1))
    channels = walk.channels
    features = inputs[-1 if channels is None else channels]
    walk.features, walk.constants = features, ConstantsOf(net, width, param, features, what)
    walk.through(join_elementwise(program, walk.constants.branch))
    if walk.first is None or not walk.parts or walk.read is not None or walk.parts[-1].square:
        raise NoTheory(
            f"{what}: wanted layers that begin and end in a Dense() or a Conv(), with a read-out "
            f"of its own, got {net!r}."
        )
    if walk.view.pooled.shape[0] != 1:
        raise NoTheory(f"{what}: wanted one output of a sample, behind pooling or Flatten().")
    return LayeredNetwork(walk.first, tuple(walk.parts), channels)


class _Walk:
    """The parts collected so far along a network."""

    def __init__(self, program: Program, reading: str, width: int):
        self.reading, self.width = reading, width
        moved = [o.axis for o in program.operations if isinstance(o, MoveChannels)]
        self.channels = moved[0] if moved else None
        self.view = View.of(program.signals[0].space or ())
        self.constants: ConstantsOf
        self.features = 1  # of the data
        self.first: PositionMap | None = None
        self.read: ActivationFunction | None = None
        self.parts: list[Part] = []
        self.neurons = 0  # behind the last affine map

    def through(self, program: Program) -> None:
        """Collect all operations of a program."""
        for step in blocks(program, self.reading):
            self.take(step)

    def take(self, step: Step) -> None:
        """Collect one operation or block."""
        match step.operation:
            case Data():
                pass
            case MoveChannels():
                self.view = View.of(step.signal.space or ())
            case Pool() as pool:
                self.view = self.view.pool(pool)
            case Scale() as scale:
                self.view = self.view.scale(scale)
            case Flatten():
                self.view = self.view.flatten()
            case Affine() as affine if affine.groups == 1:
                self.affine(affine, step)
            case Function(phi=phi, gains=()) if self.read is None and self.first is not None:
                check_derivative(phi, self.reading)
                self.read = phi
            case Sum() if step.residual is not None:
                self.branch(*step.residual, step)
            case operation:
                raise no_rule(self.reading, operation, step.source, KNOWN)

    def affine(self, affine: Affine, step: Step) -> None:
        """Collect an affine map, with the activation before it."""
        fan = affine.window.size if affine.window else 1
        if self.view.flat and not affine.window:
            fan = len(self.view.pooled)
        started = self.first is not None
        if started and self.read is None:
            raise NoTheory(f"{self.reading}: no activation before {step.source}.")
        reading, self.view = self.view.read_by(affine)
        neurons, weight = self.neurons, step.weight
        if not affine.tied and weight.bias_std:
            raise NoTheory(f"{self.reading}: no rule for a bias of each position, {step.source}.")
        its = self.constants(weight, fan * neurons if started else fan * self.features)
        mapped = PositionMap(reading.taps * (its.weight / fan) ** 0.5, its.bias, its.rates)
        self.neurons = int(self.width * weight.width_ratio)
        if not started:
            self.first = mapped
            return
        assert self.read is not None
        self.parts.append(Part((Read(self.read, neurons, mapped),)))
        self.read = None

    def branch(self, skip: Program, branch: Program, step: Step) -> None:
        """Collect a residual branch."""
        whole = len(self.parts)
        if self.first is None or self.read is not None or len(skip.operations) > 1:
            raise NoTheory(
                f"{self.reading}: wanted residual branches behind an affine map or a branch, with "
                f"an identity beside them, got {step.source}."
            )
        self.through(branch)
        inner = tuple(read for part in self.parts[whole:] for read in part.reads)
        if not inner or self.read is not None or any(p.square for p in self.parts[whole:]):
            raise NoTheory(
                f"{self.reading}: wanted branches of activations and affine maps in turn, got "
                f"{step.source}."
            )
        self.parts[whole:] = [Part(inner, self.constants.branch**2)]
