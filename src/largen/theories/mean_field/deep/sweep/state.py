"""The state of a network of random matrices, and what stands still while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from largen.expectations import ActivationFunction
from largen.runs import Loss, Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import (
    TOGETHER,
    Matrices,
    Precision,
    Side,
)
from largen.theories.mean_field.deep.matrices.dense import DenseMatrices
from largen.theories.mean_field.deep.matrices.row_buffers import Index, capacity_for
from largen.theories.mean_field.deep.sweep.patches import OnePosition, Positions


class Kept(NamedTuple):
    """What is kept at records beside the kernels on training samples.

    Attributes
    ----------
    test
        Whether the tangent kernel of test samples.
    sample_neurons
        The number of neurons whose fields h, g and z are kept.
    """

    test: bool = False
    sample_neurons: int = 0


NOTHING_MORE = Kept()


class Model(NamedTuple):
    """What is compiled in.

    Attributes
    ----------
    phi
        The different activations.
    which
        Which of them each hidden layer has.
    skips, streams
        The skip connections and streams of the problem.
    loss, output_shape
        The loss and the output shape of the run.
    sampling
        How fresh Gaussian vectors are drawn; ``"linear"`` for unit vectors.
    units
        How many unit vectors there are.
    kept
        At records.
    """

    phi: tuple[ActivationFunction, ...]
    which: tuple[int, ...]
    skips: tuple[int, ...]
    streams: tuple[int, ...]
    loss: Loss
    output_shape: tuple[int, ...]
    sampling: str
    kept: Kept
    units: int = 0

    @classmethod
    def of(
        cls, problem: Problem, run: Run, sampling: str, kept: Kept = NOTHING_MORE, units: int = 0
    ) -> Model:
        """Return the model of a run."""
        different = tuple(dict.fromkeys(problem.phi))
        which = tuple(map(different.index, problem.phi))
        streams = problem.streams
        shape, skips = run.output_shape, problem.skips
        return cls(different, which, skips, streams, run.loss, shape, sampling, kept, units)

    def apply(self, l: Index, h: Float[Array, "k n"]) -> Float[Array, "k n"]:
        """Return φ(hˡ)."""
        return self._switch(l, list(self.phi), h)

    def slope(self, l: Index, h: Float[Array, "k n"]) -> Float[Array, "k n"]:
        """Return φ'(hˡ)."""
        return self._switch(l, [phi.derivative for phi in self.phi], h)

    def _switch(self, l: Index, functions: list, h):
        if len(functions) == 1:
            return functions[0](h)
        return lax.switch(jnp.asarray(self.which)[l], functions, h)


class Moving(NamedTuple):
    """Parameters that are stored as they are, or their momentum.

    Attributes
    ----------
    fields
        a, with h¹ = F a.
    readout
        w.
    biases
        b of hidden layers 2 … L; 0 where there is none.
    constant
        The read-out's bias, which is 0 at first.
    linear
        Outputs of the models that are linear in their parameters.
    scale
        s, what weight decay has left of each hidden matrix: V = s (V(0) + Q_o M Q_iᵀ/N).
    """

    fields: Float[Array, "direction n"]
    readout: Float[Array, "output tap_n"]
    biases: Float[Array, "matrix n"]
    constant: Float[Array, " output"]
    linear: Float[Array, "model sample output"]
    scale: Float[Array, " matrix"]


class State(NamedTuple):
    """Everything that changes along training.

    Attributes
    ----------
    step
        How many steps have been made.
    params, velocity
        What moves, and its momentum; None without momentum.
    matrices
        The L − 1 matrices between hidden layers, by their directions or as they are.
    draws
        For each stream of neurons, the random key (or the count) of its fresh vectors.
    outputs
        f of all samples at every step so far: the network's, and behind it those of the models
        that are linear in their parameters.
    """

    step: Int[Array, ""]
    params: Moving
    velocity: Moving | None
    matrices: Matrices | DenseMatrices
    draws: Shaped[Array, " stream"]
    outputs: Float[Array, "entry network sample output"]


class Noise(NamedTuple):
    """√(2T₀ρ) of Langevin noise on what moves; that of matrices over √N, for each of them."""

    fields: Float[Array, "direction 1"]
    readout: Float[Array, ""]
    biases: Float[Array, "matrix 1"]
    matrices: Float[Array, " matrix"]


class Constants(NamedTuple):
    """What stands still.

    Attributes
    ----------
    positions
        How maps read positions. In what follows a column is a sample, or a position of a sample.
    fields, field_rate
        F, all samples, and ρ of its directions.
    targets
        y of training samples.
    anchors
        Fresh vectors of each layer at initialisation; None if later ones need not avoid them.
    std, rate, bias_std, bias_rate
        σ, ρσ, σ_b and ρσ_b of the L affine maps behind the first.
    kernels
        Those by which linear models train beside the network, all samples by training samples.
    gamma, momentum
        γ₀, β.
    decay
        λ₀ of everything that moves; 0 of what is frozen.
    rates
        η₀ of each step.
    precision
        The precision of the matrices.
    ratios, live
        Numbers of neurons per unit of width, and which neurons each layer has: None for all.
    batches
        Samples of each step; None for full batches.
    noise
        None without.
    hidden
        How many of the matrices the network has, where buffers have room for those of a deeper one;
        None for all of them.
    """

    positions: OnePosition | Positions
    fields: Float[Array, "column direction"]
    field_rate: Float[Array, " direction"]
    targets: Shaped[Array, "train *target"]
    anchors: Float[Array, "layer anchor n"] | None
    std: Float[Array, " map"]
    rate: Float[Array, " map"]
    bias_std: Float[Array, " map"]
    bias_rate: Float[Array, " map"]
    kernels: Float[Array, "model sample train"]
    gamma: Float[Array, ""]
    decay: Moving
    momentum: Float[Array, ""]
    rates: Float[Array, " step"]
    precision: Precision
    ratios: Float[Array, " layer"]
    live: Float[Array, "layer n"] | None
    batches: Int[Array, "_ batch"] | None
    noise: Noise | None = None
    hidden: Int[Array, ""] | None = None


class Start(NamedTuple):
    """Initial values, as NumPy arrays.

    Attributes
    ----------
    fields, readout, biases
        Standard Gaussian parameters; 0 for layers 2 … L without a bias.
    inputs, outputs
        Directions and images of each matrix at initialisation, those on the side of its
        inputs over all its taps.
    anchors
        All fresh vectors of each layer, and gradients of test samples; None for a finite width.
    kernels
        The tangent kernel at initialisation, exact and of these neurons; empty if they are not to
        be compared.
    live
        Which neurons each layer has; None for all.
    """

    fields: np.ndarray
    readout: np.ndarray
    biases: np.ndarray
    inputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    outputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    anchors: np.ndarray | None
    kernels: np.ndarray
    live: np.ndarray | None = None


def filled_side(
    found: Sequence[tuple[np.ndarray, np.ndarray]], capacity: int, widths: tuple[int, int], dtype
) -> Side:
    """Return sides with the directions and images of each matrix, of so many neurons."""

    def stacked(parts: Sequence[np.ndarray], width: int):
        buffer = np.zeros((len(parts), capacity, width), dtype)
        for rows, part in zip(buffer, parts, strict=True):
            rows[: len(part), : part.shape[1]] = part
        return jnp.asarray(buffer)

    rank = jnp.asarray([len(basis) for basis, _ in found], jnp.int32)
    bases, images = (stacked([part[i] for part in found], width) for i, width in enumerate(widths))
    return Side(bases, images, rank)


def grown(state: State, columns: int, samples: int, factor: float) -> State:
    """Return the state with larger capacities for the bases that are full or will be soon."""
    matrices = state.matrices
    assert isinstance(matrices, Matrices)
    inputs = _larger(matrices.inputs, columns, factor)
    outputs = _larger(matrices.outputs, samples, factor)
    _, rows, across = matrices.change.shape
    more = ((0, 0), (0, outputs.basis.shape[1] - rows), (0, inputs.basis.shape[1] - across))
    velocity = None if matrices.velocity is None else jnp.pad(matrices.velocity, more)
    change = jnp.pad(matrices.change, more)
    return state._replace(matrices=Matrices(inputs, outputs, change, velocity))


def _larger(side: Side, most: int, factor: float) -> Side:
    _, capacity, neurons = side.basis.shape
    needed = int(side.rank.max()) + most + TOGETHER
    if 2 * needed <= capacity:
        return side
    # There are no more directions than neurons, over all taps.
    wanted = max(min(int(factor * capacity), neurons + most + TOGETHER), needed)
    more = ((0, 0), (0, capacity_for(wanted) - capacity), (0, 0))
    return Side(jnp.pad(side.basis, more), jnp.pad(side.images, more), side.rank)


def has_room(state: State, columns: int, samples: int, model: Model) -> Bool[Array, ""]:
    """Whether every basis can take all the directions of another step."""
    room = jnp.asarray(True)
    if not isinstance(state.matrices, Matrices):
        return room
    for side, most in ((state.matrices.inputs, columns), (state.matrices.outputs, samples)):
        room &= jnp.all(side.rank + most + TOGETHER <= side.basis.shape[1])
    if model.sampling == "linear":
        layers = jnp.asarray(np.bincount(model.streams))
        taps = state.matrices.inputs.basis.shape[2] // model.units
        most = layers * (columns + TOGETHER + taps * (samples + TOGETHER))
        room &= jnp.all(state.draws + most <= model.units)
    return room
