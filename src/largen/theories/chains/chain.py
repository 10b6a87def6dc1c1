"""The sequence of affine maps of a network, residual branches included.

Every hidden layer is one preactivation, hˡ⁺¹ = (σ Vˡφ(hˡ) + σ_b b) [+ hˢ], where a skip connection
adds hˢ if a residual branch that begins at layer s ends with this map. A convolution is such a map,
from the positions in its receptive field. It may read φ of the normalised layer (``normalized``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from largen.errors import NoTheory
from largen.expectations import ActivationFunction, as_activation
from largen.programs import (
    BRANCH,
    Affine,
    Flatten,
    Function,
    MoveChannels,
    Normalise,
    Operation,
    Pool,
    Program,
    Scale,
    Source,
    Step,
    Sum,
    Weight,
    blocks,
    check_independent,
    join_elementwise,
    no_rule,
    written_out,
)
from largen.programs.receptive_fields import Reading, View
from largen.programs.refusals import at
from largen.theories.chains.normalized import LayerActivation, NormalizedActivation, couples_samples

READING = "the mean-field limit"
LINEAR = as_activation("linear")


@dataclass(frozen=True)
class AffineChain:
    """A network with L hidden layers."""

    # Activations of the hidden layers, of normalised ones with their normalisation.
    phi: tuple[LayerActivation, ...]
    weights: tuple[Weight, ...]  # the weights of the L + 1 affine maps, the read-in first
    # For each of the L − 1 maps between hidden layers, the hidden layer that a skip connection adds
    # to its output; −1 for none.
    skips: tuple[int, ...]
    readings: tuple[Reading, ...]  # the positions that each of the L + 1 maps reads
    # The axis of the data's channels in a sample, if they are not the last one.
    channels: int | None


def affine_chain(program: Program, branch: float = 1.0) -> AffineChain:
    """Return a network as a chain of affine maps, with the factor of residual branches."""
    program = join_elementwise(written_out(program), branch)
    check_independent(program, READING)
    walk = _Walk(program)
    walk.through(program)
    if not walk.weights or walk.read or not walk.view.fresh:
        last = program.sources[-1]
        raise NoTheory(f"{READING} requires a network that ends in Dense(), got {last}")
    if walk.skips[-1] >= 0:
        raise NoTheory(f"{READING}: the last Dense() must not be part of a residual branch")
    plain = all(reading.plain for reading in walk.readings)
    over_neurons = any(
        isinstance(phi, NormalizedActivation) and not couples_samples(phi) for phi in walk.phi
    )
    if over_neurons or not plain:
        what = "normalised layers" if plain else "convolutions"
        for weight in walk.weights:
            if weight.width_ratio != 1:
                raise NoTheory(
                    f"{READING} of {what} has one width for all hidden layers, got the width "
                    f"ratio {weight.width_ratio} at {weight.name}."
                )
    return AffineChain(
        tuple(walk.phi),
        tuple(walk.weights),
        tuple(walk.skips[1:-1]),
        tuple(walk.readings),
        walk.channels,
    )


class _Walk:
    """The chain collected so far along a network; affine map m produces preactivation m."""

    def __init__(self, program: Program):
        self.view = View.of(program.signals[0].space or ())
        self.phi: list[LayerActivation] = []
        self.weights: list[Weight] = []
        self.skips: list[int] = []
        self.readings: list[Reading] = []
        self.channels: int | None = None
        self.norm: Normalise | None = None  # of the last preactivation, for what reads it next

    @property
    def read(self) -> bool:
        """Whether a normalisation or an activation follows the last affine map collected so far."""
        return self.activated or self.norm is not None

    @property
    def activated(self) -> bool:
        """Whether an activation follows the last affine map collected so far."""
        return len(self.phi) == len(self.weights)

    def activate(self, phi: ActivationFunction) -> None:
        """Add the activation of the last layer, normalised if a normalisation is before it."""
        norm, self.norm = self.norm, None
        if norm is None:
            self.phi.append(phi)
            return
        positions = self.readings[-1].positions
        over = "channels" if norm.over == "sample" and positions == 1 else norm.over
        self.phi.append(NormalizedActivation(phi, norm.centred, norm.eps, over, positions))

    def through(self, program: Program) -> None:
        """Collect all operations of a program."""
        for step in blocks(program, READING):
            follow(step.operation, step, self)

    def past(self, branch: Program, block: Source) -> None:
        """Collect the branch of a residual block."""
        if self.read or not self.view.fresh:
            raise NoTheory(
                f"{READING} requires residual branches that read a preactivation: an affine map or "
                f"another branch before them, got {at(block)}"
            )
        start = len(self.weights) - 1
        self.through(branch)
        end = len(self.weights) - 1
        if end == start or self.read or not self.view.fresh or self.skips[end] >= 0:
            raise NoTheory(
                f"{READING} requires residual branches that end in an affine map, got {at(block)}"
            )
        self.skips[end] = start


@singledispatch
def follow(operation: Operation, step: Step, walk: _Walk) -> None:
    """Add an operation to the chain."""
    raise no_rule(READING, operation, step.source, follow.registry)


@follow.register
def _(operation: Affine, step: Step, walk: _Walk) -> None:
    if operation.groups > 1:
        raise NoTheory(
            f"{READING} has no rule for channels that are split into groups, got {at(step.source)}"
        )
    if not operation.tied and step.weight.bias_std:
        raise NoTheory(
            f"{READING} has no rule for a bias of each position, got {at(step.source)}; without "
            "bias_std there is one."
        )
    if walk.weights and not walk.activated:
        walk.activate(LINEAR)
    walk.weights.append(step.weight)
    walk.skips.append(-1)
    reading, walk.view = walk.view.read_by(operation)
    walk.readings.append(reading)


@follow.register
def _(operation: Pool, step: Step, walk: _Walk) -> None:
    walk.view = walk.view.pool(operation)


@follow.register
def _(operation: Scale, step: Step, walk: _Walk) -> None:
    walk.view = walk.view.scale(operation)


@follow.register
def _(operation: Flatten, step: Step, walk: _Walk) -> None:
    walk.view = walk.view.flatten()


@follow.register
def _(operation: MoveChannels, step: Step, walk: _Walk) -> None:
    walk.channels, walk.view = operation.axis, View.of(step.signal.space or ())


@follow.register
def _(operation: Function, step: Step, walk: _Walk) -> None:
    if walk.activated or not walk.view.fresh:
        raise NoTheory(
            f"{READING} requires a Dense() or a Conv() before each activation, and pooling behind "
            f"it, got {at(step.source)}"
        )
    walk.activate(operation.phi)


@follow.register
def _(operation: Normalise, step: Step, walk: _Walk) -> None:
    if not walk.weights:
        raise NoTheory(
            f"{READING} normalises infinitely many neurons, and before {at(step.source)} are "
            "the inputs; normalise these in the data."
        )
    if walk.read or not walk.view.fresh or walk.view.flat:
        raise NoTheory(
            f"{READING} has normalisations of preactivations, directly behind an affine map or a "
            f"residual stream and before the activation, got {at(step.source)}"
        )
    walk.norm = operation


@follow.register
def _(operation: Sum, step: Step, walk: _Walk) -> None:
    if step.residual is None or step.residual.factor != BRANCH:
        raise no_rule(READING, operation, step.source, follow.registry)
    skip, branch, _ = step.residual
    if len(skip.operations) > 1:
        raise NoTheory(
            f"{READING} of residual branches has no rule for a shortcut with weights or "
            f"activations of its own, got {at(step.source)}"
        )
    walk.past(branch, step.source)
