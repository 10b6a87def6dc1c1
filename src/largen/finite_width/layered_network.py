"""Networks of convolutions, poolings, attention and branches, with their numbers of neurons.

A preactivation is a value for each sample, position and channel. The samples and positions together
are the inputs of all averages over channels: an affine map takes the covariance Φ of features at
pairs of samples and positions to σ_b² + Σ_k T_k Φ T_kᵀ, with T_k the weight of tap k between
positions (:mod:`largen.programs.receptive_fields`) times σ_w over the root of the fan-in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from largen.architectures import Layer
from largen.errors import NoTheory, instance_of
from largen.expectations import ActivationFunction, as_activation
from largen.finite_width.checks import check_derivative
from largen.finite_width.constants import ConstantsOf
from largen.networks.rules.attention import channels_behind, heads_of
from largen.parameterizations import Parameterization
from largen.programs import (
    Affine,
    Attend,
    Data,
    Flatten,
    Function,
    MoveChannels,
    Pool,
    Program,
    ResidualBlock,
    Scale,
    Source,
    Step,
    Sum,
    Weight,
    blocks,
    check_independent,
    join_elementwise,
    no_rule,
    program_of,
    written_out,
)
from largen.programs.receptive_fields import View
from largen.scalars import integer

KNOWN = (Affine, Attend, Function, Pool, Scale, Flatten, Sum)
LINEAR = as_activation("linear")


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


def _unweighted(pooled: np.ndarray) -> PositionMap:
    """Return a map of positions that leaves channels as they are."""
    return PositionMap(pooled[None], 0.0, (0.0, 0.0))


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
class Heads:
    """Attention to features of the layer before, and the affine map behind it."""

    attention: Attend
    maps: tuple[PositionMap, ...]  # of queries, keys and values; none of features with themselves
    number: int  # of heads, H
    sizes: tuple[int, int]  # queries and values of each head, d and d_v
    seed: int  # of the heads that are drawn for kernels
    map: PositionMap

    @property
    def width(self) -> int:
        """The number of values."""
        return self.number * self.sizes[1]

    @property
    def random(self) -> bool:
        """Whether logits are q·k/√d, and stay random."""
        return not self.attention.concentrated


@dataclass(frozen=True)
class Part:
    """Layers in sequence: one of the network, or those of a branch h ← h + β·branch(h)."""

    reads: tuple[Any, ...]  # Read or Heads
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

    @property
    def attends(self) -> bool:
        """Whether there is attention, behind which tangent kernels are not known."""
        return any(isinstance(read, Heads) for part in self.parts for read in part.reads)

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
    walk.neurons, walk.constants = features, ConstantsOf(net, width, param, shape, what)
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
        self.first: PositionMap | None = None
        # What the next affine map reads: an activation, or attention without its map.
        self.read: ActivationFunction | Heads | None = None
        self.parts: list[Part] = []
        self.neurons = 1  # behind the last affine map, at first features of the data

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
            case Function() if isinstance(self.read, Heads):
                raise NoTheory(
                    f"{self.reading}: wanted an affine map such as Dense() behind attention, got "
                    f"{step.source}."
                )
            case Attend() as attend:
                self.attend(attend, step)
            case Sum() if step.residual is not None:
                self.branch(step.residual, step)
            case operation:
                raise no_rule(self.reading, operation, step.source, KNOWN)

    def affine(self, affine: Affine, step: Step) -> None:
        """Collect an affine map, with the activation before it."""
        if self.first is not None and self.read is None:
            raise NoTheory(f"{self.reading}: no activation before {step.source}.")
        neurons = self.neurons
        mapped, self.view, self.neurons = self.mapped(affine, step.weight, step.source)
        self.add(mapped, neurons)

    def mapped(
        self, affine: Affine, weight: Weight, source: Source
    ) -> tuple[PositionMap, View, int]:
        """Return an affine map of the present values, the view behind it and its width."""
        fan = affine.window.size if affine.window else 1
        if self.view.flat and not affine.window:
            fan = len(self.view.pooled)
        reading, view = self.view.read_by(affine)
        if not affine.tied and weight.bias_std:
            raise NoTheory(f"{self.reading}: no rule for a bias of each position, {source}.")
        its = self.constants(weight, fan * self.neurons)
        taps = reading.taps * (its.weight / fan) ** 0.5
        return PositionMap(taps, its.bias, its.rates), view, int(self.width * weight.width_ratio)

    def add(self, mapped: PositionMap, neurons: int) -> None:
        """Add a map to the network, with what it reads."""
        if self.first is None:
            self.first = mapped
        elif isinstance(self.read, Heads):
            self.parts.append(Part((replace(self.read, map=mapped),)))
        elif self.read is not None:
            self.parts.append(Part((Read(self.read, neurons, mapped),)))
        self.read = None

    def attend(self, attend: Attend, step: Step) -> None:
        """Collect attention, behind a map of features to themselves."""
        number = 0 if attend.reads[0] == attend.reads[1] else 1
        if isinstance(self.read, Heads) or any(
            len(way.operations) != 1 + number
            or any(not isinstance(o, Affine) or o.groups > 1 for o in way.operations[1:])
            for way in step.ways
        ):
            raise NoTheory(
                f"{self.reading}: wanted queries, keys and values that are affine maps of an "
                f"activation or of another affine map, got {step.source}."
            )
        if not attend.concentrated and not (attend.softmax and attend.key_size):
            why = (
                "has heads whose number and size are about the root of the width, so that kernels "
                "deviate by powers of N^-1/2"
                if attend.softmax
                else "has no softmax"
            )
            raise NoTheory(
                f"{self.reading}: {step.source} {why}. Order 1/width is known of heads of a fixed "
                "size with a softmax, lg.layers.MultiHeadAttention(key_size=d), and of "
                "lg.QKVAttention(); lg.networks.monte_carlo_kernel measures networks."
            )
        if self.first is not None and self.read is None:
            self.read = LINEAR
        self.add(_unweighted(self.view.pooled), self.neurons)
        self.view = View.of(step.program.signals[step.start].space or ())
        maps: list[PositionMap] = []
        widths = [self.neurons] * 3
        for place, way in enumerate(step.ways):
            for affine in way.operations[1:]:
                assert isinstance(affine, Affine)
                weight = way.weights[affine.weight]
                its, _, widths[place] = self.mapped(affine, weight, way.sources[-1])
                maps.append(its)
        shapes = [(len(self.view.pooled), n) for n in widths]
        channels_behind(attend, tuple(shapes), step.source)  # raises if heads do not divide them
        self.neurons, number = widths[2], heads_of(attend, widths[0], widths[2])
        seed = 0 if attend.seed is None else step.program.seeds[attend.seed]
        sizes, unset = (widths[0] // number, widths[2] // number), _unweighted(np.eye(1))
        self.read = Heads(attend, tuple(maps), number, sizes, seed, unset)

    def branch(self, block: ResidualBlock, step: Step) -> None:
        """Collect a residual branch."""
        skip, branch, _ = block
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
        self.parts[whole:] = [Part(inner, block.beta(self.constants.branch) ** 2)]
