"""The state of a network of random matrices, and its constants during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from largen.runs import Loss, Run
from largen.theories.chains.normalized import LayerActivation, couples_samples, pull_back, slopes
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import (
    TOGETHER,
    Matrices,
    Precision,
    Share,
    Side,
)
from largen.theories.mean_field.deep.matrices.by_neurons import NeuronMatrices
from largen.theories.mean_field.deep.matrices.dense import DenseMatrices
from largen.theories.mean_field.deep.matrices.row_buffers import Index, capacity_for
from largen.theories.mean_field.deep.sweep.patches import OnePosition, Positions

AnyMatrices = Matrices | DenseMatrices | NeuronMatrices


class Kept(NamedTuple):
    """Variables that are recorded in addition to the kernels on training samples."""

    test: bool = False  # whether the tangent kernel between test and training samples is recorded
    sample_neurons: int = 0  # the number of neurons whose fields h, g and z are recorded
    outliers: bool = False  # whether singular values of hidden weights are recorded


NOTHING_MORE = Kept()


class SweepModel(NamedTuple):
    """Static arguments of compiled functions."""

    # The different activations, of normalised layers with their normalisation.
    phi: tuple[LayerActivation, ...]
    which: tuple[int, ...]  # the index of the activation of each hidden layer
    # skips, streams: the skip connections and streams of the problem.
    skips: tuple[int, ...]
    streams: tuple[int, ...]
    # loss, output_shape: the loss and the output shape of the run.
    loss: Loss
    output_shape: tuple[int, ...]
    # The kind of sampling of fresh Gaussian vectors; "linear" for unit vectors, "by_neurons" for
    # random numbers that belong to neurons.
    sampling: str
    kept: Kept  # the additional variables at recorded times
    # The number of unit vectors, or of the neurons from which networks choose theirs.
    units: int = 0
    # Whether images of each matrix, and of its transpose, are zero; () if none are.
    muted: tuple[tuple[bool, bool], ...] = ()
    places: int = 1  # the largest number of positions of a layer

    @classmethod
    def of(
        cls, problem: Problem, run: Run, sampling: str, kept: Kept = NOTHING_MORE, units: int = 0
    ) -> SweepModel:
        """Return the model of a run."""
        different = tuple(dict.fromkeys(problem.phi))
        which = tuple(map(different.index, problem.phi))
        streams = problem.streams
        shape, skips = run.output_shape, problem.skips
        muted = tuple(zip(problem.into_stream, problem.from_stream, strict=True))
        muted = muted if problem.quiet else ()
        fixed = different, which, skips, streams, run.loss, shape, sampling, kept, units, muted
        return cls(*fixed, max(problem.positions))

    @property
    def coupled(self) -> bool:
        """Whether outputs depend on other samples."""
        return any(map(couples_samples, self.phi))

    def apply(self, l: Index, h: Float[Array, "k n"]) -> Float[Array, "k n"]:
        """Return φ(hˡ)."""
        return self._switch(l, list(self.phi), h)

    def pull_back(
        self, l: Index, h: Float[Array, "k n"], z: Float[Array, "k n"]
    ) -> Float[Array, "k n"]:
        """Return φ'(hˡ)z, behind a normalisation the gradient through it."""

        def through(phi: LayerActivation):
            return lambda h, z: pull_back(phi, slopes(phi, h), z)

        return self._switch(l, list(map(through, self.phi)), h, z)

    def _switch(self, l: Index, functions: list, *fields):
        shape = fields[0].shape
        fields = [x.reshape(-1, self.places, shape[1]) for x in fields]
        if len(functions) == 1:
            return functions[0](*fields).reshape(shape)
        return lax.switch(jnp.asarray(self.which)[l], functions, *fields).reshape(shape)


class Moving(NamedTuple):
    """Parameters other than hidden matrices, or their momentum."""

    fields: Float[Array, "direction n"]  # the coordinates a of the read-in, with h¹ = F a
    readout: Float[Array, "output tap_n"]  # the read-out weights w
    # The biases b of hidden layers 2 … L; 0 for a layer without bias.
    biases: Float[Array, "matrix n"]
    constant: Float[Array, " output"]  # the read-out's bias, which is 0 at initialisation
    linear: Float[Array, "model sample output"]
    # s, the share of V(0) in each hidden matrix, less than 1 by weight decay.
    scale: Float[Array, " matrix"]


class SweepState(NamedTuple):
    """All variables that change during training."""

    step: Int[Array, ""]  # the number of completed steps
    # params, velocity: the parameters other than hidden matrices, and their momentum; None without
    # momentum.
    params: Moving
    velocity: Moving | None
    # The L − 1 matrices between hidden layers, represented by directions or stored.
    matrices: AnyMatrices
    # For each stream of neurons, the random key (or the count) of its fresh vectors.
    draws: Shaped[Array, " stream"]
    # f of all samples at every step so far: first of the network, then of the models that are
    # linear in their parameters.
    outputs: Float[Array, "step network sample output"]

    def share(self, l: Index) -> Share:
        """Return the share of the initial matrix in a hidden matrix."""
        velocity = None if self.velocity is None else self.velocity.scale[l]
        return Share(self.params.scale[l], velocity)


class Noise(NamedTuple):
    """√(2T₀ρ) of the Langevin noise on parameters; for each matrix divided by √N."""

    fields: Float[Array, "direction 1"]
    readout: Float[Array, ""]
    biases: Float[Array, "matrix 1"]
    matrices: Float[Array, " matrix"]
    # The sums of the random numbers of matrices and biases that a network takes, those of a deeper
    # one; None for its own.
    sums: Float[Array, "matrix matrix"] | None = None


class SweepConstants(NamedTuple):
    """Constants of training."""

    # The receptive fields of all maps. Below, a column is a sample, or a position of a sample.
    positions: OnePosition | Positions
    # fields, field_rate: F on all samples, and ρ of its directions.
    fields: Float[Array, "column direction"]
    field_rate: Float[Array, " direction"]
    targets: Shaped[Array, "train *target"]  # the targets y of training samples
    # Fresh vectors of each layer at initialisation, to which later ones are orthogonal; None if
    # they need not be.
    anchors: Float[Array, "layer anchor n"] | None
    # std, rate, bias_std, bias_rate: σ, ρσ, σ_b and ρσ_b of the L affine maps after the first.
    std: Float[Array, " map"]
    rate: Float[Array, " map"]
    bias_std: Float[Array, " map"]
    bias_rate: Float[Array, " map"]
    # The tangent kernels of the linear models that are trained with the network, all samples by
    # training samples.
    kernels: Float[Array, "model sample train"]
    # gamma, momentum: γ₀ and β.
    gamma: Float[Array, ""]
    decay: Moving  # λ₀ of each trained variable; 0 for frozen ones
    momentum: Float[Array, ""]
    rates: Float[Array, " step"]  # η₀ of each step
    precision: Precision  # the numerical parameters of the matrices' bases
    # ratios, live: the number of neurons of each layer per unit of width, and a mask of them: None
    # for all. An entry other than 0 and 1 is the root of the neuron's weight in averages, times N;
    # all variables of a neuron but its preactivations' arguments are multiplied by it.
    ratios: Float[Array, " layer"]
    live: Float[Array, "layer n"] | None
    # Indices of the samples of each step; None for full batches.
    batches: Int[Array, "_ batch"] | None
    noise: Noise | None = None  # the Langevin noise; None without noise
    # The number of matrices of the network, if the buffers are those of a deeper network; None for
    # all of them.
    hidden: Int[Array, ""] | None = None
    # The neurons of each layer among those of a larger network; None for all.
    chosen: Int[Array, "layer n"] | None = None


class Start(NamedTuple):
    """Initial values, as NumPy arrays."""

    # fields, readout, biases: standard Gaussian parameters; biases are 0 for layers 2 … L without a
    # bias.
    fields: np.ndarray
    readout: np.ndarray
    biases: np.ndarray
    # inputs, outputs: directions and images of each matrix at initialisation; those on the input
    # side extend over all its taps.
    inputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    outputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    # All fresh vectors of each layer, and gradients of test samples; None for a finite width.
    anchors: np.ndarray | None
    # The exact tangent kernel at initialisation, and that of these neurons; empty if there are no
    # linear models.
    kernels: np.ndarray
    live: np.ndarray | None = None  # a mask of the neurons of each layer; None for all


def fill_side(
    found: Sequence[tuple[np.ndarray, np.ndarray]], capacity: int, widths: tuple[int, int], dtype
) -> Side:
    """Return sides with the directions and images of each matrix, with given numbers of neurons."""

    def stacked(parts: Sequence[np.ndarray], width: int):
        buffer = np.zeros((len(parts), capacity, width), dtype)
        for rows, part in zip(buffer, parts, strict=True):
            rows[: len(part), : part.shape[1]] = part
        return jnp.asarray(buffer)

    rank = jnp.asarray([len(basis) for basis, _ in found], jnp.int32)
    bases, images = (stacked([part[i] for part in found], width) for i, width in enumerate(widths))
    return Side(bases, images, rank)


def enlarge(state: SweepState, columns: int, samples: int, factor: float) -> SweepState:
    """Return the state with larger capacities for the bases that are full or will be soon."""
    matrices = state.matrices
    assert isinstance(matrices, Matrices)
    features = _larger(matrices.inputs, columns, factor)
    gradients = _larger(matrices.outputs, samples, factor)
    return state._replace(matrices=matrices.enlarged(features, gradients))


def _larger(side: Side, most: int, factor: float) -> int:
    _, capacity, neurons = side.basis.shape
    needed = int(side.rank.max()) + most + TOGETHER
    if 2 * needed <= capacity:
        return capacity
    # There are at most as many directions as neurons, counted over all taps.
    return capacity_for(max(min(int(factor * capacity), neurons + most + TOGETHER), needed))


def has_room(state: SweepState, columns: int, samples: int, model: SweepModel) -> Bool[Array, ""]:
    """Whether every basis has free rows for all the directions of another step."""
    if not isinstance(state.matrices, Matrices):
        return jnp.asarray(True)
    room = state.matrices.has_room(columns + TOGETHER, samples + TOGETHER)
    if model.sampling == "linear":
        layers = jnp.asarray(np.bincount(model.streams))
        taps = state.matrices.inputs.basis.shape[2] // model.units
        most = layers * (columns + TOGETHER + taps * (samples + TOGETHER))
        room &= jnp.all(state.draws + most <= model.units)
    return room
