"""Populations of neurons as coordinates, and Gaussian matrices between them that are never stored.

Fields of a population are linear combinations of Gaussian vectors that are orthonormal in the
limit, ⟨ξ_i ξ_j⟩ = δ_ij over neurons. A field is the row of its coefficients, and averages over
neurons are scalar products of rows. A Gaussian matrix between two populations is known by its
products with the directions that it has acted on, forward and backward. A product with a new
direction consists of the part that is known from products of the transpose, and a fresh Gaussian
vector: a new coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

# Relative size below which a direction is taken to be spanned by earlier ones: far above rounding
# errors of two projections, and far below all that matters.
TOLERANCE = 1e-12
BLOCK = 64  # rows and columns by which buffers grow, at least


class Diverged(ArithmeticError):
    """A field is not finite."""


class Population:
    """The number of Gaussian vectors that fields of a population have been made of."""

    def __init__(self) -> None:
        self.size = 0

    def fresh(self, number: int) -> slice:
        """Return the coordinates of new Gaussian vectors."""
        self.size += number
        return slice(self.size - number, self.size)


def plus(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the sum of fields of one population, (…, coordinate); missing coordinates are 0."""
    if one.shape[-1] < two.shape[-1]:
        one, two = two, one
    found = one.copy()
    found[..., : two.shape[-1]] += two
    return found


def averages(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return ⟨x_a y_b⟩ of fields (…, a, coordinate) and (…, b, coordinate)."""
    shared = min(one.shape[-1], two.shape[-1])
    return one[..., :shared] @ np.swapaxes(two[..., :shared], -1, -2)


class Rows:
    """Rows of coordinates to which rows are added; memory grows in proportion."""

    def __init__(self) -> None:
        self._held, self._used = np.zeros((BLOCK, BLOCK)), (0, 0)

    @property
    def array(self) -> np.ndarray:
        """All rows, (row, coordinate)."""
        return self._held[: self._used[0], : self._used[1]]

    @property
    def bytes(self) -> int:
        """The number of bytes of the buffer."""
        return self._held.nbytes

    def append(self, rows: np.ndarray) -> None:
        """Add rows, which may have more coordinates than the present ones."""
        before, wide = self._used
        used = before + len(rows), max(wide, rows.shape[1])
        sizes = list(zip(used, self._held.shape, strict=True))
        if any(u > h for u, h in sizes):
            held = np.zeros([max(u, 3 * h // 2) if u > h else h for u, h in sizes])
            held[:before, :wide] = self.array
            self._held = held
        self._held[before : used[0], : rows.shape[1]] = rows
        self._used = used


class Side:
    """The directions of one population that a matrix has acted on, and their images.

    Attributes
    ----------
    population
        The population.
    directions
        An orthonormal basis of the fields so far.
    images
        The product of the initial matrix with each of them, fields of the other population.
    norm
        The norm of the image of a direction, in the limit.
    """

    def __init__(self, population: Population, norm: float):
        self.population, self.norm = population, norm
        self.directions, self.images = Rows(), Rows()
        self._largest = 0.0

    def expand(self, x: np.ndarray, other: Side) -> np.ndarray:
        """Return the coefficients of fields in the basis, after new directions are added to it.

        Parameters
        ----------
        x
            Fields, (column, coordinate).
        other
            The other side of the matrix.

        Raises
        ------
        Diverged
            If a field is not finite.
        """
        sizes = np.linalg.norm(x, axis=1)
        if not np.isfinite(sizes).all():
            raise Diverged
        self._largest = max(self._largest, sizes.max(initial=0.0))
        rest = self._beyond(self._beyond(x))
        if self._largest and rest.size:
            found: Any = scipy.linalg.qr(rest.T, mode="economic", pivoting=True)
            basis, triangle, _ = found
            number = int(np.sum(np.abs(np.diag(triangle)) > TOLERANCE * self._largest))
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
        fresh = other.population.fresh(len(new))
        images = np.zeros((len(new), fresh.stop))
        images[:, fresh] = self.norm * np.eye(len(new))
        known = averages(new, other.images.array) @ other.directions.array
        self.directions.append(new)
        self.images.append(plus(images, known))


class GaussianMatrix:
    """The operator V/√(fan-in) from a population to another, with its change by training.

    With averages over the populations as scalar products, V has an adjoint V*: ⟨g Vx⟩ = ⟨V*g x⟩,
    and the backward field of y = σVx is (r_out/r_in) σ V*g for r neurons per unit of width. The
    current matrix is s V(0) + Σ_ij M_ij p_i q_jᵀ with directions p of backward and q of forward
    fields; s is 1 without weight decay.

    Parameters
    ----------
    source, target
        The populations.
    ratio
        r_out/r_in.
    """

    def __init__(self, source: Population, target: Population, ratio: float):
        self.before, self.behind = Side(source, 1.0), Side(target, ratio**-0.5)
        self.kept, self.change = 1.0, np.zeros((0, 0))

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


def grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array with zeros at the ends of its axes, as far as they are shorter."""
    extra = [(0, max(0, n - m)) for n, m in zip(shape, array.shape, strict=True)]
    return np.pad(array, extra) if any(after for _, after in extra) else array
