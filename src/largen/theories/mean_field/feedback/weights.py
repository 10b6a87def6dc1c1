"""Weights under feedback alignment: backward fields by fixed matrices B = ρV(0) + √(1 − ρ²) Ṽ.

Ṽ acts on backward fields alone, so that its products with new directions are fresh Gaussian
vectors; those of V(0) and of its transpose are correlated by the responses of fields. Directions of
both are those of pseudo-gradients g̃, along which V moves. Gradients g, by the present matrices, are
observed only. Hebbian learning has no backward pass: g̃ are errors times the fields that the next
map reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.transformer.kernel_records import ObservedMap
from largen.theories.mean_field.transformer.populations import Population, averages, grown, plus
from largen.theories.mean_field.transformer.random_matrix import GaussianMatrix, Side
from largen.theories.mean_field.transformer.weights import (
    Connection,
    LateVectors,
    Matrix,
    Updates,
    Vectors,
)


class FeedbackVectors(LateVectors):
    """Weights of outputs, with fixed vectors by which errors pass backward."""

    def __init__(self, number: int, population: Population, rate: float, rho: float):
        super().__init__(number, population, rate)
        self._rho = rho

    def draw(self, number: int) -> None:
        """Draw the vectors, and those of the backward pass."""
        super().draw(number)
        self._fixed, rest = self._rho * self.rows, (1 - self._rho**2) ** 0.5
        if rest:
            self._fixed = plus(self._fixed, rest * self.population.fresh(number))

    @property
    def backward_rows(self) -> np.ndarray:
        """The vectors by which errors pass backward."""
        return self.rows if self.exact else self._fixed


class _WithFixedFeedback(Matrix):
    """The matrix V of an affine map y = σVx, which moves along directions of pseudo-gradients."""

    def __init__(
        self,
        joins: Connection,
        moved: Side | None = None,  # the directions; by default those that V(0) acts on
    ):
        super().__init__(joins)
        self._moved = self.operator.behind if moved is None else moved

    def restart(self, tolerance: float) -> None:
        """Return to the matrix before training, for directions with another tolerance."""
        super().restart(tolerance)
        self._moved.tolerance = tolerance

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return σVx of fields, (column, coordinate)."""
        before = self.operator.before
        c = self._features = before.expand(x, self.operator.behind)
        y = self._kept.values.item() * c @ before.images.array
        return self._std * plus(y, c @ self._change_by().T @ self._moved.directions.array)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return the backward field of x from that of y, of the first columns of the last x."""
        if self.exact:
            return self._ratio * self._std * self._by_present(g)
        z = self._by_feedback(g)
        gradients = averages(g, self._moved.directions.array)
        self._descent = self._std * gradients.T @ self._features[: len(g)]
        return z

    def step(self, step: Step) -> None:
        """Make a step along the products of backward and forward fields of the last passes."""
        self._kept.move(np.zeros(1), step)
        self._change.move(self._rate * self._descent, step)

    def _by_feedback(self, g: np.ndarray) -> np.ndarray:
        """Return the backward field of x, after new directions are added."""
        raise NotImplementedError

    def _by_initial(self, g: np.ndarray) -> np.ndarray:
        """Return V(0)*g."""
        behind = self.operator.behind
        return behind.expand(g, self.operator.before) @ behind.images.array

    def _by_present(self, g: np.ndarray) -> np.ndarray:
        """Return V*g."""
        z = self._kept.values.item() * self._by_initial(g)
        d = averages(g, self._moved.directions.array)
        return plus(z, d @ self._change_by() @ self.operator.before.directions.array)

    def _change_by(self) -> np.ndarray:
        """Return the change of V by training, with zeros for directions that are new."""
        shape = len(self._moved.directions.array), len(self.operator.before.directions.array)
        return grown(self._change.values, shape)


class FeedbackMatrix(_WithFixedFeedback):
    """A matrix with the matrix B = ρV(0) + √(1 − ρ²) Ṽ for backward fields."""

    def __init__(self, joins: Connection, rho: float):
        self._rho, self._rest, self._other, moved = rho, (1 - rho**2) ** 0.5, None, None
        if self._rest:
            self._other = GaussianMatrix(joins.source, joins.target, joins.ratio)
            moved = self._other.behind
        super().__init__(joins, moved)

    @property
    def operators(self) -> list[GaussianMatrix]:
        """The Gaussian matrices."""
        return [self.operator, *([] if self._other is None else [self._other])]

    def _by_feedback(self, g: np.ndarray) -> np.ndarray:
        """Return σB*g."""
        z = np.zeros((len(g), 0), g.dtype)
        if self._rho:
            z = plus(z, self._rho * self._by_initial(g))
        if self._other is not None:
            d = self._other.behind.expand(g, self._other.before)
            z = plus(z, self._rest * d @ self._other.behind.images.array)
        return self._ratio * self._std * z


class Directions(Side):
    """Directions without images."""

    def _add(self, new: np.ndarray, other: Side) -> None:
        """Add orthonormal directions to the basis."""
        new = np.linalg.qr(self._beyond(new).T)[0].T
        self.population.meet(new)
        self.directions.append(new)


class DirectMatrix(_WithFixedFeedback):
    """A matrix before which backward fields are those of errors times fixed vectors."""

    def __init__(self, joins: Connection, size: float):  # the factor of the vectors
        super().__init__(joins, Directions(joins.target, 1.0))
        self._source, self._size = joins.source, size
        self._rows: np.ndarray | None = None

    def _by_feedback(self, g: np.ndarray) -> np.ndarray:
        """Return the errors of outputs times the fixed vectors."""
        self._moved.expand(g, self.operator.before)
        if self._rows is None:
            self._rows = self._source.fresh(self.errors.shape[1])
        return self._size * self.errors @ self._rows


class LocalMatrix(_WithFixedFeedback):
    """A matrix before which no backward field is needed."""

    def __init__(self, joins: Connection):
        super().__init__(joins, Directions(joins.target, 1.0))

    def _by_feedback(self, g: np.ndarray) -> np.ndarray:
        """Return 0."""
        self._moved.expand(g, self.operator.before)
        return np.zeros((len(g), 1), g.dtype)


class LocalMap(ObservedMap):
    """An affine map behind which backward fields are errors times what the next map reads."""

    _read: Any = None

    def __init__(self, constants: MapConstants, ratio: float, before: ObservedMap | None):
        super().__init__(constants, ratio)
        self._before = before

    def reads(self, x: Sequence[np.ndarray], roots: Sequence[float] = (1.0,)) -> None:
        """Note the fields that the map reads."""
        super().reads(x, roots)
        if isinstance(self._before, LocalMap):
            (self._before._read,) = x

    def receives(self, g: np.ndarray) -> np.ndarray:
        """Note the backward fields behind the map, and return them."""
        return super().receives(g if self.exact else self.errors * self._read[: len(g)])


class HebbianUpdates(Updates):
    """Updates by error-modulated Hebbian learning."""

    def observed(
        self, constants: MapConstants, ratio: float, before: ObservedMap | None
    ) -> ObservedMap:
        """Return the record of an affine map, which comes behind another one."""
        return LocalMap(constants, ratio, before)

    def matrix(self, name: str, joins: Connection) -> Matrix:
        """Return the weight of a name, between two populations."""
        return LocalMatrix(joins)


@dataclass(frozen=True)
class FeedbackUpdates(Updates):
    """Updates by feedback alignment."""

    rho: float  # ρ
    # The factor of vectors of direct feedback; None if errors pass by matrices.
    direct: float | None = None

    def readout(self, name: str, number: int, population: Population, rate: float) -> Vectors:
        """Return the weight of a name, of outputs."""
        return FeedbackVectors(number, population, rate, self.rho)

    def matrix(self, name: str, joins: Connection) -> Matrix:
        """Return the weight of a name, between two populations."""
        if self.direct is None:
            return FeedbackMatrix(joins, self.rho)
        return DirectMatrix(joins, self.direct)
