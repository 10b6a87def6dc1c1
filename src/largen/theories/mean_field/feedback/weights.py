"""Weights under feedback alignment: backward fields by fixed matrices B = ρV(0) + √(1 − ρ²) Ṽ.

Ṽ acts on backward fields alone, so that its products with new directions are fresh Gaussian
vectors; those of V(0) and of its transpose are correlated by the responses of fields. Directions of
both are those of pseudo-gradients g̃, along which V moves. Gradients g, by the present matrices, are
observed only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.transformer.populations import Population, averages, grown, plus
from largen.theories.mean_field.transformer.random_matrix import GaussianMatrix
from largen.theories.mean_field.transformer.weights import (
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


class FeedbackMatrix(Matrix):
    """The matrix V of an affine map y = σVx, with a fixed matrix for backward fields."""

    def __init__(
        self,
        constants: MapConstants,
        source: Population,
        target: Population,
        ratio: float,
        rho: float,
    ):
        super().__init__(constants, source, target, ratio)
        self._rho, self._rest = rho, (1 - rho**2) ** 0.5
        self._other = GaussianMatrix(source, target, ratio) if self._rest else None
        # The directions along which V moves.
        self._moved = (self._other or self.operator).behind

    @property
    def operators(self) -> list[GaussianMatrix]:
        """The Gaussian matrices."""
        return [self.operator, *([] if self._other is None else [self._other])]

    def restart(self, tolerance: float) -> None:
        """Return to the matrix before training, for directions with another tolerance."""
        super().restart(tolerance)
        if self._other is not None:
            self._other.restart(tolerance)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return σVx of fields, (column, coordinate)."""
        before = self.operator.before
        c = self._features = before.expand(x, self.operator.behind)
        y = self._kept.values.item() * c @ before.images.array
        return self._std * plus(y, c @ self._change_by().T @ self._moved.directions.array)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return the backward field of x from that of y, of the first columns of the last x."""
        z = self._by_present(g) if self.exact else self._by_feedback(g)
        return self._ratio * self._std * z

    def _by_feedback(self, g: np.ndarray) -> np.ndarray:
        """Return B*g, and note the negative gradient."""
        z = np.zeros((len(g), 0), g.dtype)
        if self._rho:
            z = plus(z, self._rho * self._by_initial(g))
        if self._other is not None:
            d = self._other.behind.expand(g, self._other.before)
            z = plus(z, self._rest * d @ self._other.behind.images.array)
        gradients = averages(g, self._moved.directions.array)
        self._descent = self._std * gradients.T @ self._features[: len(g)]
        return z

    def _by_initial(self, g: np.ndarray) -> np.ndarray:
        """Return V(0)*g."""
        behind = self.operator.behind
        return behind.expand(g, self.operator.before) @ behind.images.array

    def _by_present(self, g: np.ndarray) -> np.ndarray:
        """Return V*g."""
        z = self._kept.values.item() * self._by_initial(g)
        d = averages(g, self._moved.directions.array)
        return plus(z, d @ self._change_by() @ self.operator.before.directions.array)

    def step(self, step: Step) -> None:
        """Make a step along the products of backward and forward fields of the last passes."""
        self._kept.move(np.zeros(1), step)
        self._change.move(self._rate * self._descent, step)

    def _change_by(self) -> np.ndarray:
        """Return the change of V by training, with zeros for directions that are new."""
        shape = len(self._moved.directions.array), len(self.operator.before.directions.array)
        return grown(self._change.values, shape)


@dataclass(frozen=True)
class FeedbackUpdates(Updates):
    """Updates by feedback alignment."""

    rho: float  # ρ

    def readout(self, name: str, number: int, population: Population, rate: float) -> Vectors:
        """Return the weight of a name, of outputs."""
        return FeedbackVectors(number, population, rate, self.rho)

    def matrix(
        self,
        name: str,
        constants: MapConstants,
        source: Population,
        target: Population,
        ratios: tuple[float, float],
    ) -> Matrix:
        """Return the weight of a name, between two populations."""
        return FeedbackMatrix(constants, source, target, ratios[1] / ratios[0], self.rho)
