"""Gaussian matrices between populations of neurons, which are never stored.

A Gaussian matrix between two populations is known by its products with the directions that it has
acted on, forward and backward. A product with a new direction consists of the part that is known
from products of the transpose, and a fresh Gaussian vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from largen.theories.mean_field.transformer.populations import (
    Population,
    Rows,
    averages,
    grown,
    plus,
)

# Relative size below which a direction is taken to be spanned by earlier ones, unless another is
# given: far above rounding errors of two projections, and far below all that matters.
TOLERANCE = 1e-12


class Diverged(ArithmeticError):
    """A field is not finite."""


class Side:
    """The directions of one population that a matrix has acted on, and their images.

    ``directions``: an orthonormal basis of the fields so far; ``images``: the product of the
    initial matrix with each of them, fields of the other population; ``norm``: the norm of the
    image of a direction, in the limit; ``tolerance``: the size below which a direction is omitted,
    relative to the largest field so far.
    """

    def __init__(self, population: Population, norm: float):
        self.population, self.norm, self.tolerance = population, norm, TOLERANCE
        self.directions, self.images = Rows(population.dtype), Rows(population.dtype)
        self._largest = 0.0

    def expand(self, x: np.ndarray, other: Side) -> np.ndarray:
        """Return the coefficients of fields in the basis, after new directions are added to it.

        ``x``: fields, (column, coordinate); ``other``: the other side of the matrix.
        """
        sizes = np.linalg.norm(x, axis=1)
        if not np.isfinite(sizes).all():
            raise Diverged
        self._largest = max(self._largest, sizes.max(initial=0.0))
        rest = self._beyond(self._beyond(x))
        if self._largest and rest.size:
            found: Any = scipy.linalg.qr(rest.T, mode="economic", pivoting=True)
            basis, triangle, _ = found
            number = int(np.sum(np.abs(np.diag(triangle)) > self.tolerance * self._largest))
            if number:
                self._add(basis[:, :number].T, other)
        return averages(x, self.directions.array)

    def _beyond(self, x: np.ndarray) -> np.ndarray:
        """Return the fields without their parts in the basis."""
        known = self.directions.array
        return plus(x, -averages(x, known) @ known)

    def _add(self, new: np.ndarray, other: Side) -> None:
        """Add orthonormal directions, and their images, to the basis."""
        # Directions of small fields need another projection, now that they are normalised.
        new = np.linalg.qr(self._beyond(new).T)[0].T
        images = self.norm * other.population.fresh(len(new))
        known = averages(new, other.images.array) @ other.directions.array
        self.population.meet(new)
        self.directions.append(new)
        self.images.append(plus(images, known))


class GaussianMatrix:
    """The operator V/√(fan-in) from a population to another, with its change by training.

    With averages over the populations as scalar products, V has an adjoint V*: ⟨g Vx⟩ = ⟨V*g x⟩,
    and the backward field of y = σVx is (r_out/r_in) σ V*g for r neurons per unit of width. The
    current matrix is s V(0) + Σ_ij M_ij p_i q_jᵀ with directions p of backward and q of forward
    fields; s is 1 without weight decay.
    """

    def __init__(self, source: Population, target: Population, ratio: float):
        self.before, self.behind = Side(source, 1.0), Side(target, ratio**-0.5)
        self.kept, self.change = 1.0, np.zeros((0, 0), source.dtype)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Vx of fields (column, coordinate), and their coefficients."""
        c = self.before.expand(x, self.behind)
        y = self.kept * c @ self.before.images.array
        return plus(y, c @ self._change().T @ self.behind.directions.array), c

    def backward(self, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return V*g of fields (column, coordinate), and their coefficients."""
        d = self.behind.expand(g, self.before)
        z = self.kept * d @ self.behind.images.array
        return plus(z, d @ self._change() @ self.before.directions.array), d

    def restart(self, tolerance: float) -> None:
        """Undo the change by training, keep what is known of V(0), and set the tolerance."""
        self.kept, self.change = 1.0, self.change[:0, :0]
        self.before.tolerance = self.behind.tolerance = tolerance

    def _change(self) -> np.ndarray:
        """Return M, with zeros for directions that are new."""
        shape = len(self.behind.directions.array), len(self.before.directions.array)
        self.change = grown(self.change, shape)
        return self.change

    @property
    def bytes(self) -> int:
        """The number of bytes that are held."""
        sides = (self.before, self.behind)
        return self.change.nbytes + sum(s.directions.bytes + s.images.bytes for s in sides)
