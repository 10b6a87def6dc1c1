"""Populations of neurons, and their fields as rows of numbers whose products are averages.

Fields that are linear in Gaussian vectors ξ_i with ⟨ξ_i ξ_j⟩ = δ_ij over neurons are known by their
coefficients. Where an activation acts on each neuron, fields are its values at S neurons instead,
divided by √S. In both cases the average ⟨xy⟩ over neurons is the scalar product of two rows, and a
fresh Gaussian vector is a row that is orthonormal to all fields before it: another coordinate, or
random numbers at the neurons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike

from largen.theories.mean_field.deep.matrices.fresh_vectors import initial

BLOCK = 64  # rows and columns by which buffers grow, at least
# What is left of a unit vector beside a span below which it is rounding errors, by precision.
ROUNDING = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 2e-3}


class TooFewNeurons(ArithmeticError):
    """Fields span all directions that the neurons of a population have."""


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


def grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array with zeros at the ends of its axes, as far as they are shorter."""
    extra = [(0, max(0, n - m)) for n, m in zip(shape, array.shape, strict=True)]
    return np.pad(array, extra) if any(after for _, after in extra) else array


class Rows:
    """Rows of coordinates to which rows are added; memory grows in proportion.

    ``dtype``: their precision.
    """

    def __init__(self, dtype: DTypeLike = np.float64):
        self._held, self._used = np.zeros((BLOCK, BLOCK), dtype), (0, 0)

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
            shape = [max(u, 3 * h // 2) if u > h else h for u, h in sizes]
            held = np.zeros(shape, self._held.dtype)
            held[:before, :wide] = self.array
            self._held = held
        self._held[before : used[0], : rows.shape[1]] = rows
        self._used = used


class Population:
    """Neurons whose fields are linear in Gaussian vectors: a coordinate for each of these.

    ``dtype``: the precision of fields; ``sampled``: whether fields are values at neurons.
    """

    sampled = False

    def __init__(self, dtype: DTypeLike = np.float64):
        self.size, self.dtype = 0, np.dtype(dtype)

    @property
    def bytes(self) -> int:
        """The number of bytes that are held."""
        return 0

    def fresh(self, number: int) -> np.ndarray:
        """Return new Gaussian vectors, (vector, coordinate)."""
        before, self.size = self.size, self.size + number
        return np.eye(number, self.size, before, self.dtype)

    def noise(self, number: int) -> np.ndarray:
        """Return independent Gaussian numbers, (row, neuron), divided by √S, if it is sampled."""
        raise NotImplementedError

    def meet(self, directions: np.ndarray) -> None:
        """Note directions of fields, to which later Gaussian vectors are to be orthogonal."""


class SampledPopulation(Population):
    """S neurons that stand for a population on which activations act, or one of heads.

    Fresh Gaussian vectors have the mean zero and are exactly orthonormal to one another and to all
    earlier fields, as they are in the limit. The first ones, those of initialisation, are scrambled
    Sobol points, so that averages of functions of them have small errors; a point has all numbers
    of a head.
    """

    sampled = True

    def __init__(
        self,
        neurons: int,
        first: int,  # the number of the vectors that are Sobol points
        rng: np.random.Generator,  # the source of random numbers
        head_size: int = 1,  # the number of consecutive neurons that are a head, a divisor of S
        dtype: DTypeLike = np.float64,  # the precision of fields
    ):
        super().__init__(dtype)
        self.size = neurons
        self._rng, self._span = rng, Rows(dtype)
        self._span.append(np.full((1, neurons), neurons**-0.5))
        first, heads = min(first, neurons), neurons // head_size
        points = initial(first * head_size, heads, "variance_reduced", rng, self.dtype)
        points = points.reshape(first, head_size, heads)
        self._first = np.swapaxes(points, 1, 2).reshape(first, neurons)

    @property
    def bytes(self) -> int:
        """The number of bytes that are held."""
        return self._span.bytes + self._first.nbytes

    def fresh(self, number: int) -> np.ndarray:
        """Return new Gaussian vectors, (vector, neuron), divided by √S."""
        if 2 * (len(self._span.array) + number) > self.size:
            raise TooFewNeurons
        drawn, self._first = self._first[:number], self._first[number:]
        # Random rows are far from the span: what one projection leaves of it are rounding errors.
        rows = np.concatenate([drawn / self.size**0.5, self.noise(number - len(drawn))])
        rows = self._apart(rows)
        # The nearest orthonormal rows: no order among them, as there would be in Gram-Schmidt.
        left, _, right = np.linalg.svd(rows, full_matrices=False)
        rows = left @ right
        self._span.append(rows)
        return rows

    def noise(self, number: int) -> np.ndarray:
        """Return independent Gaussian numbers, (row, neuron), divided by √S."""
        drawn = self._rng.standard_normal((number, self.size)).astype(self.dtype)
        return drawn / self.size**0.5

    def meet(self, directions: np.ndarray) -> None:
        """Note directions of fields, to which later Gaussian vectors are to be orthogonal."""
        rest = self._apart(directions)
        found: Any = scipy.linalg.qr(rest.T, mode="economic", pivoting=True)
        basis, triangle, _ = found
        new = basis[:, np.abs(np.diag(triangle)) > ROUNDING[self.dtype]].T
        if len(new):
            # Directions of small rests need another projection, now that they are normalised.
            self._span.append(np.linalg.qr(self._apart(new).T)[0].T)

    def _apart(self, rows: np.ndarray) -> np.ndarray:
        """Return what is left of rows beside the span of all fields."""
        known = self._span.array
        return rows - (rows @ known.T) @ known
