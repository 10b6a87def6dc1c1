"""The state of a network of random matrices, and what stands still while it trains."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from largen.dmft.deep.matrix import TOGETHER, Matrix, Precision, Side
from largen.dmft.deep.rows import capacity_for
from largen.expectations import ActivationFunction
from largen.runs import Loss


class Model(NamedTuple):
    """What is compiled in.

    Attributes
    ----------
    phi
        Activations of the hidden layers.
    loss, output_shape
        Of the run.
    mode
        :data:`largen.dmft.deep.innovations.Mode`; ``"linear"`` for unit vectors.
    """

    phi: tuple[ActivationFunction, ...]
    loss: Loss
    output_shape: tuple[int, ...]
    mode: str


class Moving(NamedTuple):
    """Parameters that are stored as they are, or their momentum.

    Attributes
    ----------
    fields
        a, with h¹ = F a.
    readout
        w.
    biases
        b of hidden layers 2 … L; an empty axis where there is none.
    frozen
        Outputs of the part of the network whose features stand still: the read-out's bias, and
        the tangent kernel that the neurons are short of at initialisation.
    scale
        s, what weight decay has left of the hidden matrices: V = s (V(0) + Q_o M Q_iᵀ/N).
    """

    fields: Float[Array, "direction n"]
    readout: Float[Array, "output n"]
    biases: tuple[Float[Array, "_ n"], ...]
    frozen: Float[Array, "sample output"]
    scale: Float[Array, ""]


class State(NamedTuple):
    """Everything that changes along training.

    Attributes
    ----------
    step
        How many steps have been made.
    params, velocity
        What moves, and its momentum; None without momentum.
    matrices
        The L − 1 matrices between hidden layers.
    draws
        For each layer, the random key (or the count) of its innovations.
    outputs
        f of all samples at every step so far.
    """

    step: Int[Array, ""]
    params: Moving
    velocity: Moving | None
    matrices: tuple[Matrix, ...]
    draws: tuple[Shaped[Array, "..."], ...]
    outputs: Float[Array, "entry sample output"]


class Constants(NamedTuple):
    """What stands still.

    Attributes
    ----------
    fields, field_rate
        F, all samples, and ρ of its directions.
    targets
        y of training samples.
    anchors
        Initial innovations of each layer; None where later ones need not avoid them.
    std, rate, bias_std, bias_rate
        σ, ρσ, σ_b and ρσ_b of the L affine maps behind the first.
    frozen_kernel
        Tangent kernel of the part whose features stand still, all samples by training samples.
    gamma, decay, momentum
        γ₀, λ₀, β.
    rates
        η₀ of each step.
    precision
        Of the matrices.
    batches
        Samples of each step; None for full batches.
    """

    fields: Float[Array, "sample direction"]
    field_rate: Float[Array, " direction"]
    targets: Shaped[Array, "train *target"]
    anchors: tuple[Float[Array, "_ n"] | None, ...]
    std: Float[Array, " map"]
    rate: Float[Array, " map"]
    bias_std: Float[Array, " map"]
    bias_rate: Float[Array, " map"]
    frozen_kernel: Float[Array, "sample train"]
    gamma: Float[Array, ""]
    decay: Float[Array, ""]
    momentum: Float[Array, ""]
    rates: Float[Array, " step"]
    precision: Precision
    batches: Int[Array, "_ batch"] | None


def empty_side(capacity: int, neurons: int, dtype) -> Side:
    """Return a side without directions."""
    basis, innovations = (jnp.zeros((capacity, neurons), dtype) for _ in range(2))
    return Side(basis, innovations, jnp.zeros((), jnp.int32))


def filled_side(basis: np.ndarray, innovations: np.ndarray, capacity: int) -> Side:
    """Return a side with some directions."""
    short = ((0, capacity - len(basis)), (0, 0))
    rank = jnp.asarray(len(basis), jnp.int32)
    return Side(jnp.asarray(np.pad(basis, short)), jnp.asarray(np.pad(innovations, short)), rank)


def ranks(state: State) -> np.ndarray:
    """Return the ranks of all matrices, shape ``(matrix, 2)``, inputs before outputs."""
    sides = [(int(m.inputs.rank), int(m.outputs.rank)) for m in state.matrices]
    return np.array(sides, int).reshape(-1, 2)


def grown(state: State, columns: int, samples: int, factor: float) -> State:
    """Return the state with larger capacities for the bases that are full or will be soon."""

    def grow(matrix: Matrix) -> Matrix:
        inputs = _larger(matrix.inputs, columns, factor)
        outputs = _larger(matrix.outputs, samples, factor)
        rows, across = matrix.change.shape
        more = ((0, len(outputs.basis) - rows), (0, len(inputs.basis) - across))
        velocity = None if matrix.velocity is None else jnp.pad(matrix.velocity, more)
        return Matrix(inputs, outputs, jnp.pad(matrix.change, more), velocity)

    return state._replace(matrices=tuple(map(grow, state.matrices)))


def _larger(side: Side, most: int, factor: float) -> Side:
    capacity, neurons = side.basis.shape
    needed = int(side.rank) + most + TOGETHER
    if 2 * needed <= capacity:
        return side
    # There are no more directions than neurons.
    wanted = max(min(int(factor * capacity), neurons + most + TOGETHER), needed)
    more = ((0, capacity_for(wanted) - capacity), (0, 0))
    return Side(jnp.pad(side.basis, more), jnp.pad(side.innovations, more), side.rank)


def has_room(state: State, columns: int, samples: int, model: Model) -> Bool[Array, ""]:
    """Whether every basis can take all the directions of another step."""
    room = jnp.asarray(True)
    for matrix in state.matrices:
        for side, most in ((matrix.inputs, columns), (matrix.outputs, samples)):
            room &= side.rank + most + TOGETHER <= len(side.basis)
    if model.mode == "linear":
        for count in state.draws:
            room &= count + columns + samples + 2 * TOGETHER <= state.params.readout.shape[1]
    return room
