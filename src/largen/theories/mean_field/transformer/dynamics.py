"""Gradient descent of the limit: passes through the network and steps of its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.arrays import precision
from largen.interrupts import Pace, check
from largen.parameterizations import momentum_of
from largen.programs import Affine
from largen.runs import Run
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.engine.parallel import one_thread_of_blas
from largen.theories.mean_field.options import NO_KERNELS, WantedKernels
from largen.theories.mean_field.transformer.kernel_records import KernelRecords
from largen.theories.mean_field.transformer.network import PopulatedNetwork
from largen.theories.mean_field.transformer.passes import Context, Passes
from largen.theories.mean_field.transformer.populations import (
    Population,
    SampledPopulation,
    TooFewNeurons,
)
from largen.theories.mean_field.transformer.random_matrix import TOLERANCE, Diverged
from largen.theories.mean_field.transformer.weights import Matrix, Updates


@dataclass(frozen=True)
class AttentionProblem:
    """A run of a network with attention at infinite width."""

    network: PopulatedNetwork
    gamma: float  # γ₀
    samples: int  # P, the number of training samples
    positions: int  # the number of positions of a sample that have an output; 1 for pooled ones
    outputs: int
    updates: Updates = field(default_factory=Updates)  # how weights move

    def enlarged(self, boost: float) -> AttentionProblem:
        """Return the problem with γ₀ times a factor, for movements that are small anyway."""
        updates = self.updates.enlarged(boost)
        return replace(self, gamma=boost * self.gamma, updates=updates)


class Drawn(NamedTuple):
    """How populations are sampled on which activations act."""

    neurons: int  # S, the number of neurons of each of them
    first: int  # the number of Gaussian vectors of a population that are quasi-random
    seed: int | tuple[int, ...]  # the seed of the random numbers
    dtype: Any = np.float64  # the precision of all fields


class Solved(NamedTuple):
    """What training computes."""

    # Outputs, (step, sample, position, output), NaN from a step on at which they are not finite.
    f: np.ndarray
    # Attention weights at the recorded steps, (record, layer, sample, position, position), NaN
    # likewise.
    patterns: np.ndarray
    kernels: dict[str, np.ndarray]  # the recorded kernels by name, likewise
    # The largest number of directions that a matrix has acted on, at one of its sides.
    directions: int
    # The name of the option that ended training: "memory_budget" if the matrices outgrew it,
    # "particles" if fields span the neurons of a sampled population; None if none did.
    stopped: str | None

    @property
    def ended(self) -> bool:
        """Whether training came to its end, with finite outputs."""
        return self.stopped is None and bool(np.isfinite(self.f).all())


class Output:
    """The outputs f_s = σ Σ_i r_i ⟨w_i x_is⟩/(√r γ₀) + b of positions s, with b = 0 initially.

    x_i are the fields that it reads, of r_i N neurons out of rN.
    """

    def __init__(self, outputs: int, gamma: float, context: Context):
        node = context.network.nodes[-1]
        constants, read = context.network.constants(node.operation), context.read_by(node)
        root = sum(each.ratio for each in read) ** 0.5
        assert isinstance(node.operation, Affine)
        name, rate = context.name(node.operation, "weight"), constants.rate
        self._vectors = [
            context.updates.readout(name, outputs, context.population(x), rate) for x in read
        ]
        self._out = [constants.std * each.ratio / root / gamma for each in read]
        self._back = constants.std / root
        self._roots = [share**0.5 for share in context.network.shares(node)]
        context.weights += self._vectors
        self._map = context.affine_map(constants, 1.0)
        self._gamma = gamma
        # In units in which a step of η₀ moves the output by η₀ρσ_b² ΣΔ.
        self._bias_rate = constants.bias_kernel_rate
        bias = context.name(node.operation, "bias")
        self._bias = context.updates.offsets(bias, outputs, self._bias_rate)

    def forward(self, x: Sequence[np.ndarray]) -> np.ndarray:
        """Return f, (sample, position, output), of fields (sample, position, coordinate)."""
        self._x = x
        self._map.reads(x, self._roots)
        parts = zip(self._out, x, self._vectors, strict=True)
        return sum(out * w.read(each) for out, each, w in parts) + self._bias.values

    def backward(self, weights: np.ndarray) -> list[np.ndarray]:
        """Return the backward fields of Σ Δ_μs·f_μs, for weights γ₀Δ/P as f of training samples."""
        self._weights = weights.reshape(-1, weights.shape[-1])
        for each, vectors in zip(self._x, self._vectors, strict=True):
            x = each[: len(weights)].reshape(len(self._weights), -1)
            vectors.pull(self._back * self._weights.T @ x)
        return [self._back * weights @ vectors.backward_rows for vectors in self._vectors]

    @property
    def size(self) -> float:
        """σ rms x of the last fields."""
        squares = [np.mean(np.sum(x.astype(np.float64) ** 2, -1)) for x in self._x]
        parts = zip(self._out, squares, strict=True)
        return float(np.sqrt(sum((out * self._gamma) ** 2 * square for out, square in parts)))

    def restart(self) -> None:
        """Return to the bias before training."""
        self._bias.restart()

    def step(self, step: Step) -> None:
        """Make a step."""
        for vectors in self._vectors:
            vectors.step(step)
        self._bias.move(self._bias_rate * self._weights.sum(0) / self._gamma, step)


class InfiniteNetwork:
    """A network of infinite width, in coordinates of fields in the Gaussian vectors.

    ``drawn``: how populations are sampled on which activations act, or of heads; needed if there
    are any.

    ``context``: its populations, weights and attention patterns; ``dtype``: the precision of
    fields; ``errors``: Δ = −∂ℓ/∂f at the last outputs, (sample, position, output), 0 for test
    samples.
    """

    errors = np.zeros((1, 1, 1))

    def __init__(self, problem: AttentionProblem, drawn: Drawn | None = None):
        populations = problem.network.populations
        rng = None if drawn is None else np.random.default_rng(drawn.seed)

        def make(number: int) -> Population:
            if number not in populations.sampled:
                return Population(self.dtype)
            assert drawn is not None
            assert rng is not None
            size = populations.head_sizes.get(number, 1)
            share = problem.network.ratio_of(number) if problem.updates.stored else 1.0
            neurons = max(1, round(share * drawn.neurons) // size) * size  # of whole heads
            return SampledPopulation(neurons, drawn.first, rng, size, self.dtype)

        self.dtype = np.dtype(np.float64 if drawn is None else drawn.dtype)
        self.context = Context(problem.network, make, problem.updates)
        self._inner = Passes(self.context)
        self._output = Output(problem.outputs, problem.gamma, self.context)
        self._gamma = problem.gamma

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return f, (sample, position, output), of data (sample, position, input)."""
        return self._output.forward(self._inner.forward(x.astype(self.dtype)))

    @property
    def readout_size(self) -> float:
        """σ rms x of the fields x of the last forward pass that the read-out reads."""
        return self._output.size

    def backward(self, weights: np.ndarray) -> None:
        """Pass backward from weights γ₀Δ/P of outputs of the first samples, as f of these."""
        weights = weights.astype(self.dtype)
        for each in self._matrices:
            each.errors = weights.reshape(-1, weights.shape[-1])
        along = np.sum(weights * self.errors[: len(weights)], -1, keepdims=True)
        for each in self.context.maps:
            each.errors = along
        self._inner.backward(self._output.backward(weights))

    def exact_backward(self, weights: np.ndarray) -> None:
        """Pass backward as :meth:`backward`, by the present weights whatever the rule."""
        switched = (*self.context.weights, *self.context.maps)
        for each in switched:
            each.exact = True
        try:
            self.backward(weights)
        finally:
            for each in switched:
                each.exact = False

    def step(self, step: Step) -> None:
        """Make a step of gradient descent along the gradients of the last backward pass."""
        self._inner.step(step)
        self._output.step(step)

    def restart(self, tolerance: float = TOLERANCE) -> None:
        """Return to the network before training, and set the relative size of omitted directions.

        Matrices keep what is known of them, so that the same network is trained again.
        """
        for weights in self.context.weights:
            weights.restart(tolerance)
        self._output.restart()

    @property
    def directions(self) -> int:
        """The largest number of directions that a matrix has acted on, at one of its sides."""
        operators = [operator for each in self._matrices for operator in each.operators]
        sides = [side for each in operators for side in (each.before, each.behind)]
        return max((len(side.directions.array) for side in sides), default=0)

    @property
    def bytes(self) -> int:
        """The number of bytes of all matrices."""
        held = [*self._matrices, *self.context.populations]
        return sum(each.bytes for each in held)

    @property
    def _matrices(self) -> list[Matrix]:
        return [each for each in self.context.weights if isinstance(each, Matrix)]


def train(
    network: InfiniteNetwork,
    problem: AttentionProblem,
    run: Run,
    record_at: tuple[int, ...] = (),  # time indices at which attention weights are recorded
    wanted: WantedKernels = NO_KERNELS,  # kernels that are recorded, and their time indices
    budget: float = np.inf,  # the number of bytes that the matrices may take
    tell: Callable[..., Any] | None = None,  # called with numbers of finished and all time indices
    # Outputs before training, ([step,] sample, position, output), which are added to those of the
    # network.
    start: np.ndarray | float = 0.0,
) -> Solved:
    """Return the trajectory of the limit, of training samples followed by test samples.

    Each step passes through the network forward and backward, as in a network of finite width. The
    network is changed.
    """
    x = run.data.x.astype(np.float64)
    x = x.reshape(len(x), problem.network.positions, -1)
    times, last = len(run.times), len(run.times) - 1
    f = np.full((times, len(x), problem.positions, problem.outputs), np.nan)
    start = np.broadcast_to(start, f.shape)
    sides = (problem.network.positions,) * 2
    patterns = np.full((len(record_at), problem.network.attentions, len(x), *sides), np.nan)
    stopped: str | None = None
    residual, momentum = Residuals(run), momentum_of(run.optimizer)
    scalar = not run.output_shape
    kernels = KernelRecords(wanted, network.context.maps, problem.samples, problem.outputs, scalar)
    largest = 0.0

    def advance(t: int) -> bool:
        """Pass through the network, and make a step; return whether there is a next one."""
        nonlocal stopped, largest
        check()
        with kernels.observation(t):
            f[t] = start[t] + network.forward(x)
            if not np.isfinite(f[t]).all():
                raise Diverged
            errors = residual.errors(f[t])
            network.errors = np.concatenate([errors, np.zeros_like(f[t, len(errors) :])])
            weights = problem.gamma * residual.shares(t) * errors if t < last else np.zeros(1)
            largest = max(largest, np.abs(weights).max())
            kernels.meet(t, network.exact_backward, largest or 1.0, network.backward)
        if t in record_at and patterns.size:
            patterns[record_at.index(t)] = network.context.patterns
        if t < last:
            network.backward(weights)
            network.step(Step(float(run.rates[t]), momentum, run.optimizer.weight_decay))
            stopped = "memory_budget" if network.bytes > budget else None
        if tell is not None:
            tell(t + 1, times)
        return stopped is None

    # Products of few columns take longer in several threads, which wait for one another.
    with precision(f), np.errstate(all="ignore"), one_thread_of_blas():
        try:
            for begin, end in Pace().segments(0, times):
                if not all(map(advance, range(begin, end))):
                    break
        except TooFewNeurons:
            stopped = "particles"
        except Diverged:
            f[~np.isfinite(f).all(axis=(1, 2, 3))] = np.nan
    return Solved(f, patterns, kernels.variables(), network.directions, stopped)


def bytes_at_start(problem: AttentionProblem, run: Run, particles: int) -> float:
    """Return roughly the bytes of the fields of one step, which the solution at least takes.

    Each population with activations has ``particles`` neurons.
    """
    columns = len(run.data.x) * problem.network.positions
    sampled = particles * len(problem.network.populations.sampled)
    return 64.0 * columns * (columns + run.data.x.shape[-1] + sampled)


def readout_size(problem: AttentionProblem, run: Run, particles: int) -> float:
    """Return σ rms x of the fields that the read-out reads at initialisation."""
    x = run.data.x.astype(np.float64)
    x = x.reshape(len(x), problem.network.positions, -1)
    while True:
        drawn = None
        if problem.network.populations.sampled:
            drawn = Drawn(particles, len(x) * problem.network.positions, 0)
        try:
            network = InfiniteNetwork(problem, drawn)
            network.forward(x)
        except TooFewNeurons:
            particles *= 2
            continue
        return network.readout_size


class Residuals:
    """The errors Δ of outputs, and the shares of samples in the loss of a step.

    Where each of S positions has an output, the loss is the mean over positions, and Δ of each
    contains 1/S.
    """

    def __init__(self, run: Run):
        self._run = run
        self._slopes = jax.jit(jax.vmap(jax.grad(run.loss.sample)))

    def errors(self, f: np.ndarray) -> np.ndarray:
        """Return Δ of training samples, (sample, position, output), as f of all samples."""
        y = self._run.data.y_train
        trained = f[: len(y)].reshape(len(y), *self._run.output_shape)
        return -np.asarray(self._slopes(trained, y), np.float64).reshape(len(y), *f.shape[1:])

    def shares(self, t: int) -> np.ndarray | float:
        """Return the share of each sample in the loss of a step, 0 outside of its batch."""
        samples = len(self._run.data.x_train)
        if self._run.batches is None:
            return 1 / samples
        batch = self._run.batches[t]
        return np.bincount(batch, minlength=samples)[:, None, None] / len(batch)
