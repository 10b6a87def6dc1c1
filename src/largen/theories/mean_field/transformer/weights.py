"""Weights in training: gradient descent with momentum and weight decay on coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.engine.descent import Step, moved
from largen.theories.mean_field.transformer.kernel_records import ObservedMap
from largen.theories.mean_field.transformer.populations import Population, averages, grown, plus
from largen.theories.mean_field.transformer.random_matrix import GaussianMatrix


class Trained:
    """Numbers in training, with their velocity; axes grow at their ends."""

    def __init__(self, values: np.ndarray, moves: bool):
        self._initial, self._moves = values, moves
        self.restart()

    def restart(self) -> None:
        """Return to the numbers before training."""
        self.values, self._velocity = self._initial, np.zeros_like(self._initial)

    def move(self, descent: np.ndarray, step: Step) -> None:
        """Make a step with the negative gradient in units of η₀."""
        if not self._moves:  # weights of rate 0 do not decay either
            return
        shape = tuple(map(max, self.values.shape, descent.shape))
        values, velocity = (grown(a, shape) for a in (self.values, self._velocity))
        self.values, self._velocity = moved(values, velocity, grown(descent, shape), step)


class Vectors:
    """Weights between few numbers and the neurons of a population: rows of Gaussian vectors.

    ``exact``: whether backward fields are those of gradients, whatever the rule of learning.
    """

    exact = False

    def __init__(
        self,
        number: int,
        population: Population,
        rate: float,
        make: Callable[[np.ndarray, bool], Trained] = Trained,  # how they move
    ):
        self.population, self._number, self._make = population, number, make
        self._rate, self._trained = rate, make(population.fresh(number), rate > 0)
        self._descent: np.ndarray = np.zeros((number, 0), population.dtype)

    @property
    def rows(self) -> np.ndarray:
        """The vectors, (number, coordinate)."""
        return self._trained.values

    @property
    def backward_rows(self) -> np.ndarray:
        """The vectors by which errors pass backward."""
        return self.rows

    def read(self, x: np.ndarray) -> np.ndarray:
        """Return ⟨x w⟩ of fields (sample, position, coordinate) and each of the vectors."""
        return averages(x, self.rows)

    def restart(self, tolerance: float) -> None:
        """Return to the vectors before training."""
        self._trained.restart()

    def pull(self, descent: np.ndarray) -> None:
        """Note the negative gradient in units of η₀ρ, which :meth:`step` follows."""
        self._descent = descent

    def step(self, step: Step) -> None:
        """Make a step."""
        self._trained.move(self._rate * self._descent, step)


class LateVectors(Vectors):
    """Weights of outputs, which are drawn orthogonal to the fields that they read first.

    Outputs are then exactly 0 at initialisation, as they are in the limit.
    """

    def __init__(
        self,
        number: int,
        population: Population,
        rate: float,
        make: Callable[[np.ndarray, bool], Trained] = Trained,
    ):
        super().__init__(0, population, rate, make)
        self._wanted = number

    def read(self, x: np.ndarray) -> np.ndarray:
        """Return ⟨x w⟩ of fields (sample, position, coordinate) and each of the vectors."""
        if self._wanted:
            self.population.meet(x.reshape(-1, x.shape[-1]))
            self.draw(self._wanted)
            self._wanted = 0
        return super().read(x)

    def draw(self, number: int) -> None:
        """Draw the vectors."""
        self._trained = self._make(self.population.fresh(number), self._rate > 0)


class Connection(NamedTuple):
    """What a matrix joins, and the constants of its map."""

    constants: MapConstants
    source: Population
    target: Population
    ratios: tuple[float, float]  # neurons per unit of width of both

    @property
    def ratio(self) -> float:
        """The number of neurons behind the matrix for each one before it."""
        return self.ratios[1] / self.ratios[0]


class Matrix:
    """The matrix V of an affine map y = σVx between populations.

    ``exact``: as of :class:`Vectors`; ``errors``: the weights of outputs from which the last
    backward pass began, (column, output).
    """

    exact, errors = False, np.zeros((0, 0))

    def __init__(self, joins: Connection):
        constants, self._ratio = joins.constants, joins.ratio
        self.operator = GaussianMatrix(joins.source, joins.target, joins.ratio)
        self._std, self._rate = constants.std, constants.rate
        self._kept = Trained(np.ones(1), constants.rate > 0)
        self._change = Trained(np.zeros((0, 0), joins.source.dtype), constants.rate > 0)
        self._features, self._descent = np.zeros((0, 0)), np.zeros((0, 0))

    @property
    def operators(self) -> list[GaussianMatrix]:
        """The Gaussian matrices."""
        return [self.operator]

    @property
    def bytes(self) -> int:
        """The number of bytes that are held."""
        return sum(each.bytes for each in self.operators)

    def restart(self, tolerance: float) -> None:
        """Return to the matrix before training, for directions with another tolerance."""
        self._kept.restart()
        self._change.restart()
        self.operator.restart(tolerance)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return σVx of fields, (column, coordinate)."""
        y, self._features = self.operator.forward(x)
        return self._std * y

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return the backward field of x from that of y, of the first columns of the last x."""
        z, gradients = self.operator.backward(g)
        self._descent = self._std * gradients.T @ self._features[: len(g)]
        return self._ratio * self._std * z

    def step(self, step: Step) -> None:
        """Make a step along the products of backward and forward fields of the last passes."""
        self._kept.move(np.zeros(1), step)
        self._change.move(self._rate * self._descent, step)
        self.operator.kept, self.operator.change = self._kept.values.item(), self._change.values


class Bias:
    """The bias σ_b b of a population."""

    def __init__(self, std: float, vector: Vectors | None):
        self._std, self._vector = std, vector

    @property
    def weights(self) -> list[Vectors]:
        """The vector b, if there is one."""
        return [] if self._vector is None else [self._vector]

    def add(self, y: np.ndarray) -> np.ndarray:
        """Return y + σ_b b of fields, (…, coordinate)."""
        if self._vector is None:
            return y
        rows = self._std * self._vector.rows
        return plus(y, np.broadcast_to(rows, (*y.shape[:-1], rows.shape[-1])))

    def pull(self, g: np.ndarray) -> None:
        """Note the backward fields of y, (column, coordinate)."""
        if self._vector is not None:
            self._vector.pull(self._std * g.sum(0, keepdims=True))

    def step(self, step: Step) -> None:
        """Make a step."""
        if self._vector is not None:
            self._vector.step(step)


class Updates:
    """How the weights of a network are updated: by gradient descent, or as subclasses say.

    ``stored``: whether matrices are stored, so that the numbers of neurons of two populations have
    to be in proportion to the widths of their layers.
    """

    stored = False

    def enlarged(self, boost: float) -> Updates:
        """Return the updates for γ₀ times a factor, which gradients then contain."""
        return self

    def vectors(self, name: str, number: int, population: Population, rate: float) -> Vectors:
        """Return the weight of a name, between ``number`` numbers and a population."""
        return Vectors(number, population, rate)

    def readout(self, name: str, number: int, population: Population, rate: float) -> Vectors:
        """Return the weight of a name, of outputs."""
        return LateVectors(number, population, rate)

    def offsets(self, name: str, number: int, rate: float) -> Trained:
        """Return the bias of a name, of outputs."""
        return Trained(np.zeros(number), rate > 0)

    def observed(
        self, constants: MapConstants, ratio: float, before: ObservedMap | None
    ) -> ObservedMap:
        """Return the record of an affine map, which comes behind another one."""
        return ObservedMap(constants, ratio)

    def matrix(self, name: str, joins: Connection) -> Matrix:
        """Return the weight of a name, between two populations."""
        return Matrix(joins)
