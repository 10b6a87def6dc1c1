"""Infinite depth from the causal sweep at several depths.

A residual network of L blocks with branches L^(−1/2) is the Euler-Maruyama scheme, with steps
dτ = 1/L, of the equations of infinite depth (Bordelon, Noci, Li, Hanin and Pehlevan, *Depthwise
hyperparameter transfer in residual networks*, (60)-(75)), noise and responses included, and differs
from their solution by powers of 1/L. Each replicate solves networks of several depths and
extrapolates to 1/L = 0 by the polynomial in 1/L through them. With branches 1/L the network is
Euler's scheme, and the same holds.

The weights of this extrapolation, such as −1 and 2, would make the sampling error larger than that
of one network. Therefore the networks share it: they are driven by the same Brownian motion.
Gaussian vectors of the deepest network at initialisation are added in pairs, over √2, for networks
of half the depth,

    u_m^(L) = (u_2m^(2L) + u_(2m+1)^(2L))/√2,

with a row for each sample rather than for each direction, since the sign of a direction is
arbitrary; stored matrices and their Langevin noise likewise. One program serves all depths:
shallow networks have room for as many matrices as the deepest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.runs import Run
from largen.theories.chains.normalized import elementwise
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.matrices.by_directions import Precision
from largen.theories.mean_field.deep.matrices.dense import stored
from largen.theories.mean_field.deep.restarts.checkpoint import SweepCheckpoint
from largen.theories.mean_field.deep.sweep.advance import Swept, advance, first_capacities
from largen.theories.mean_field.deep.sweep.kernel_records import RecordedKernels
from largen.theories.mean_field.deep.sweep.layer_widths import counts
from largen.theories.mean_field.deep.sweep.schedule import Schedule
from largen.theories.mean_field.deep.sweep.smoothness import smooth
from largen.theories.mean_field.deep.sweep.start import (
    begin,
    gaussian_rows,
    initial_matrices,
    start_from_rows,
)
from largen.theories.mean_field.deep.sweep.state import Start, SweepModel
from largen.theories.mean_field.engine.parallel import Tell, ignore_progress
from largen.theories.mean_field.infinite_depth.problem import EndlessProblem, Stack
from largen.theories.mean_field.record_times import Recorded


@dataclass(frozen=True)
class Depths:
    """Networks of several depths, each of twice the depth of the one before it."""

    stack: Stack  # position of the blocks
    times: tuple[int, ...]  # number of repetitions of the stack in each network
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, endless: EndlessProblem, times: Sequence[int]) -> Depths:
        """Return the networks with these numbers of repetitions of the stack."""
        return cls(endless.stack, tuple(times), tuple(map(endless.finite, times)))

    @property
    def deepest(self) -> Problem:
        """The deepest network; up to the factor of branches, the others are prefixes of it."""
        return self.problems[-1]

    @cached_property
    def recorded_network(self) -> Problem:
        """The network of the layers that are recorded, for which activations count throughout."""
        kept = self.layers(0)
        net = self.problems[0]
        phi = [net.phi[l] for l in kept]
        rough = [each for each in net.phi if not smooth(elementwise(each))]
        return replace(
            net,
            phi=(*rough[:1], *phi[len(rough[:1]) :]),
            positions=tuple(net.positions[l] for l in kept),
            inside=tuple(net.inside[l] for l in kept),
            ratios=tuple(net.ratios[l] for l in kept),
        )

    def layers(self, level: int) -> list[int]:
        """Return the layers of a network that are recorded."""
        return self.stack.layers(self.times[level], self.times[0])

    @cached_property
    def shares(self) -> np.ndarray:
        """τ of each recorded layer: the share of blocks before it."""
        stream = np.linspace(0, 1, self.times[0] + 1)
        return np.concatenate([np.zeros(self.stack.before), stream, np.ones(self.stack.behind)])

    def with_room(self, level: int) -> Problem:
        """Return a network with unused room for as many matrices as the deepest has.

        With layers behind the stack this is impossible, and every network has its own program; also
        if the read-out reads another activation of the stream than the branches do.
        """
        own, deepest = self.problems[level], self.deepest
        if self.stack.behind:
            return own
        more = deepest.maps[len(own.skips) : -1]
        phi = (*own.phi, *deepest.phi[len(own.phi) :])  # the last layer's where this network ends
        return replace(deepest, maps=(*own.maps[:-1], *more, own.maps[-1]), phi=phi)


def coarser(fine: list[np.ndarray], depths: Depths, level: int) -> list[np.ndarray]:
    """Return the Gaussian rows of a network from those of the network of twice its depth."""
    problem, stack = depths.problems[level], depths.stack
    outputs = problem.outputs * problem.maps[-1].reading.number
    columns, directions = problem.columns, problem.fields.shape[1]
    bias, answers = slice(outputs, outputs + 1), slice(len(fine[0]) - columns, None)
    back = slice(outputs + 1, outputs + 1 + problem.taps * columns)
    found = [np.zeros_like(fine[0]) for _ in range(len(problem.skips) + 1)]
    found[0][-max(columns, directions) :] = fine[0][-max(columns, directions) :]
    found[-1][:outputs] = fine[-1][:outputs]
    for m in range(len(problem.skips)):
        twins = _twins(m, stack, depths.times[level], 2)
        root = len(twins) ** 0.5
        for rows, end in ((bias, 1), (answers, 1), (back, 0)):
            found[m + end][rows] = sum(fine[twin + end][rows] for twin in twins) / root
    return found


def _twins(m: int, stack: Stack, times: int, deeper: int) -> list[int]:
    """Return the matrices in a network of several times the depth that correspond to a matrix."""
    inside = m - stack.before
    if inside < 0:
        return [m]
    turn, place = divmod(inside, stack.unit)
    if turn >= times:
        return [m + (deeper - 1) * stack.unit * times]
    first = stack.before + deeper * turn * stack.unit + place
    return [first + stack.unit * more for more in range(deeper)]


class _Shared:
    """Gaussian numbers of stored matrices, of which every depth takes sums of the deepest's."""

    def __init__(self, depths: Depths, level: int, seed: int):
        times, self._seed = depths.times[level], seed
        own, deeper = range(len(depths.problems[level].skips)), depths.times[-1] // times
        self._twins = [_twins(m, depths.stack, times, deeper) for m in own]

    def __call__(self, m: int, shape: tuple[int, int]) -> np.ndarray:
        """Return the numbers of a matrix, those of unused ones too."""
        twins = self._twins[m] if m < len(self._twins) else []
        drawn = (np.random.default_rng([self._seed, twin]) for twin in twins)
        parts = [rng.standard_normal(shape, np.float32) for rng in drawn]
        return sum(parts, np.zeros(shape, np.float32)) / max(len(twins), 1) ** 0.5

    def sums(self, matrices: int) -> np.ndarray:
        """Return the weights of the sums, in a network with room for the deepest's matrices."""
        found = np.zeros((matrices, matrices))
        for weights, twins in zip(found, self._twins, strict=False):
            weights[twins] = len(twins) ** -0.5
        return found


def weights(times: Sequence[int]) -> np.ndarray:
    """Return the weights of Lagrange extrapolation to 1/L = 0 from networks of several depths."""
    h = 1 / np.asarray(times, float)
    return np.array([np.prod([b / (b - a) for b in h if b != a]) for a in h])


def replicate(
    depths: Depths,
    run: Run,
    recorded: Recorded,
    settings: NumericalSettings,
    seed: int,
    schedule: Schedule,
    known: Any = None,
    *,
    tell: Tell = ignore_progress,
    saved: SweepCheckpoint | None = None,
) -> Swept:
    """Return the solution with one set of random matrices for each depth, extrapolated."""
    rng, count = np.random.default_rng(seed), len(depths.times)
    rule = Precision(1 / settings.particles, settings.tolerance)
    deepest = depths.deepest
    found, known = [], known or (None,) * count
    with in_precision(np.zeros((), settings.dtype)):
        raw = gaussian_rows(deepest, settings.sampling, settings.particles, rng, settings.dtype)
        seeds = rng.integers(2**31, size=count)
        if settings.dense:
            seeds[:] = seeds[0]  # of the noise and of stored matrices
        room = 0  # for the fresh Gaussian vectors, of which the deepest network has most
        for level in reversed(range(count)):
            if level + 1 < count:
                raw = coarser(raw, depths, level)
            problem, roomy = depths.problems[level], depths.with_room(level)
            start = start_from_rows(
                problem, raw, settings.sampling, settings.particles, rule, by_sample=True
            )
            start = _with_room(start, len(roomy.skips), room)
            room = 0 if start.anchors is None else start.anchors.shape[1]
            keys = jax.random.split(jax.random.key(seeds[level]), max(roomy.streams) + 1)
            shared = _Shared(depths, level, int(seeds[level]))
            if settings.dense:
                start = start._replace(anchors=None)
                own = settings.particles, start.live, shared, settings.dtype
                matrices = stored(start.inputs, start.outputs, *own)
            else:
                most = max(counts(problem, settings.particles))
                fresh = initial_matrices(start, first_capacities(problem, most))
                matrices = fresh if known[level] is None else known[level]
            hidden = len(problem.skips)
            state, constants = begin(roomy, run, schedule, start, keys, rule, matrices, hidden)
            if constants.noise is not None and len(roomy.skips) == len(deepest.skips):
                sums = jnp.asarray(shared.sums(len(roomy.skips)), settings.dtype)
                constants = constants._replace(noise=constants.noise._replace(sums=sums))
            model = SweepModel.of(roomy, run, settings.sampling, settings.kept)
            place = None
            if saved is not None:
                size = settings.particles, settings.tolerance, depths.times[level]
                fresh = known[level] is None
                place = saved.place(
                    seed, size, schedule, recorded.at(schedule.steps_at_times), fresh
                )
            done = sum(depths.times[level + 1 :]) / sum(depths.times)
            share = depths.times[level] / sum(depths.times)
            swept = advance(
                model,
                state,
                constants,
                roomy,
                schedule,
                recorded,
                budget=settings.budget,
                tell=lambda fraction, done=done, share=share: tell(done + share * fraction),
                keeper=place,
            )
            found.insert(0, swept)
    return _extrapolate(found, depths)


def _with_room(start: Start, matrices: int, anchors: int) -> Start:
    """Return an initial state with room for more matrices and more fresh vectors of each layer."""
    more = matrices - len(start.inputs)
    none = [tuple(part[:0] for part in side[-1]) for side in (start.inputs, start.outputs)]
    held = start.anchors
    if held is not None:
        short = max(anchors - held.shape[1], 0)
        held = np.pad(held, ((0, more), (0, short), (0, 0)))
    live = start.live
    return start._replace(
        biases=np.pad(start.biases, ((0, more), (0, 0))),
        inputs=(*start.inputs, *[none[0]] * more),
        outputs=(*start.outputs, *[none[1]] * more),
        anchors=held,
        live=None if live is None else np.concatenate([live, *[live[-1:]] * more]),
    )


def _extrapolate(found: list[Swept], depths: Depths) -> Swept:
    """Return the sweep extrapolated to infinite depth, on the layers common to all networks."""
    some = [_keep_layers(swept, depths.layers(level)) for level, swept in enumerate(found)]

    def mean(levels: list[Any], times: Sequence[int]) -> Any:
        return jax.tree.map(lambda *parts: sum(map(np.multiply, weights(times), parts)), *levels)

    whole = [(one.outputs, one.kernels, one.pairs, one.linear, one.linear_kernels) for one in some]
    with np.errstate(invalid="ignore", over="ignore"):
        f, kernels, pairs, linear, linear_kernels = mean(whole, depths.times)
        rougher = mean([one.outputs for one in some[1:]], depths.times[1:])
    # Later noise differs between depths: the neurons are those of the deepest network.
    kernels = [
        whole._replace(h=last.h, g=last.g, z=last.z)
        for whole, last in zip(kernels, some[-1].kernels, strict=True)
    ]
    return Swept(
        f,
        kernels,
        pairs,
        linear,
        linear_kernels,
        np.concatenate([one.ranks for one in found]),
        tuple(one.matrices for one in found),
        rougher,
    )


def _keep_layers(swept: Swept, layers: list[int]) -> Swept:
    def kept(kernels: RecordedKernels) -> RecordedKernels:
        names = "features", "gradients", "h", "g", "z"
        return kernels._replace(**{name: getattr(kernels, name)[layers] for name in names})

    return swept._replace(
        kernels=list(map(kept, swept.kernels)), pairs=list(map(kept, swept.pairs))
    )
