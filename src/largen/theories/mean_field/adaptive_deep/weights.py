"""Weights under an adaptive optimizer: averages of the gradient of every single weight.

A matrix between two populations is known by its products in the first passes, with Gaussian vectors
that are orthonormal to all fields. The rest of it is then drawn, and all of its entries are stored,
with their two averages: the update of an entry is no sum of products of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.parameterizations import Averages
from largen.theories.mean_field.adaptive_deep.constants import WeightConstants
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.transformer.populations import Population
from largen.theories.mean_field.transformer.weights import (
    Connection,
    LateVectors,
    Matrix,
    Trained,
    Updates,
    Vectors,
)


class Averaged(Trained):
    """Numbers in training, with the averages of their gradients."""

    def __init__(
        self,
        values: np.ndarray,
        moves: bool,
        average: Averages,
        constants: WeightConstants,  # in the units of the numbers and of their gradients
    ):
        self._average, self._constants = average, constants
        super().__init__(values, moves and constants.step > 0)

    def restart(self) -> None:
        """Return to the numbers before training."""
        super().restart()
        self._memory: Any = (np.zeros_like(self.values),) * self._average.memories
        self._count = 0

    def move(self, descent: np.ndarray, step: Step) -> None:
        """Make a step with the negative gradient of passes."""
        if not self._moves:
            return
        self._count += 1
        corrections = self._average.corrections(self._count)
        unit, size = self._constants
        update, self._memory = self._average.update(unit * descent, self._memory, corrections)
        kept = 1 - step.rate * step.decay
        self.values = kept * self.values + step.rate * size * np.asarray(update)


class StoredMatrix(Matrix):
    """The matrix V of an affine map y = σVx, all of whose entries are stored after the first step.

    Fields are rows divided by the root of the number of neurons, of which there are S before and
    S′ = S r_out/r_in behind the matrix.
    """

    def __init__(self, joins: Connection, average: Averages, own: WeightConstants):
        super().__init__(joins)
        self._source, self._target, self._average = joins.source, joins.target, average
        root = (joins.source.size * joins.target.size) ** 0.5
        self._unit, self._size = own.unit * root * joins.constants.std, own.step / root
        self._entries: Any = None  # of V, and the averages of its gradients
        self._gradients, self._count = np.zeros((0, 0)), 0

    @property
    def bytes(self) -> int:
        """The number of bytes that are held, or will be after the first step."""
        entries = self._source.size * self._target.size
        return super().bytes + bytes_per_entry(self._average) * entries

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return σVx of fields, (column, coordinate)."""
        self._features = x
        if self._entries is None:
            return self._std * self.operator.forward(x)[0]
        return self._std * np.asarray(_forward(self._entries[0], _single(x)), float)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return the backward field of x from that of y, of the first columns of the last x."""
        self._gradients = g
        if self._entries is None:
            z = self.operator.backward(g)[0]
        else:
            z = np.asarray(_backward(self._entries[0], _single(g)), float)
        return self._ratio * self._std * z

    def step(self, step: Step) -> None:
        """Make a step along the products of backward and forward fields of the last passes."""
        if self._entries is None:
            entries = _single(self._drawn())
            memory = (jnp.zeros_like(entries) for _ in range(self._average.memories))
            self._entries = (entries, *memory)
        if not self._size:
            return
        self._count += 1
        x = self._features[: len(self._gradients)]
        sizes = step.rate * self._size, 1 - step.rate * step.decay
        sizes = _single(np.array([*sizes, *self._average.corrections(self._count)]))
        # The unit is multiplied first: products of small fields would underflow.
        g = _single(self._unit * self._gradients)
        self._entries = _moved(self._average, self._entries, g, _single(x), sizes)

    def _drawn(self) -> np.ndarray:
        """Return the initial matrix, whose products so far are known, (behind, before)."""
        before, behind = self.operator.before, self.operator.behind
        q, y = before.directions.array, before.images.array
        b, z = behind.directions.array, behind.images.array
        rest = np.swapaxes(self._target.noise(self._source.size), 0, 1)
        if len(q):
            rest = rest - (rest @ q.T) @ q
        if len(b):
            rest = rest - b.T @ (b @ rest)
            z = z - (z @ q.T) @ q if len(q) else z
            rest = rest + b.T @ z
        return rest + y.T @ q if len(q) else rest


def _single(x: np.ndarray) -> jax.Array:
    return jnp.asarray(x, jnp.float32)


def bytes_per_entry(average: Averages) -> int:
    """Return the bytes of an entry and its averages in single precision."""
    return 4 * (1 + average.memories)


@jax.jit
def _forward(entries, x):
    return x @ entries.T


@jax.jit
def _backward(entries, g):
    return g @ entries


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _moved(average: Averages, state, g, x, sizes):
    """Return entries and averages after a step."""
    entries, *before = state
    size, kept, *corrections = sizes
    update, memory = average.update(g.T @ x, tuple(before), tuple(corrections))
    return kept * entries + size * update, *memory


@dataclass(frozen=True)
class AdaptiveUpdates(Updates):
    """Updates by an adaptive optimizer."""

    average: Averages
    constants: dict[str, WeightConstants]
    # The factor of γ₀ for movements that are small anyway: that of steps, for equal gradients.
    boost: float = 1.0
    stored = True

    def enlarged(self, boost: float) -> AdaptiveUpdates:
        """Return the updates for γ₀ times a factor."""
        return replace(self, boost=boost * self.boost)

    def vectors(self, name: str, number: int, population: Population, rate: float) -> Vectors:
        """Return the weight of a name, between ``number`` numbers and a population."""
        return Vectors(number, population, 1.0, self._rows(name, population))

    def readout(self, name: str, number: int, population: Population, rate: float) -> Vectors:
        """Return the weight of a name, of outputs."""
        return LateVectors(number, population, 1.0, self._rows(name, population))

    def offsets(self, name: str, number: int, rate: float) -> Trained:
        """Return the bias of a name, of outputs."""
        if not rate:
            return super().offsets(name, number, rate)
        unit, step = self.constants[name]
        return Averaged(np.zeros(number), True, self.average, WeightConstants(unit / rate, step))

    def matrix(self, name: str, joins: Connection) -> Matrix:
        """Return the weight of a name, between two populations."""
        unit, step = self._enlarged(name)
        root = joins.ratios[0] ** 0.5
        own = WeightConstants(unit / root, step * root)
        return StoredMatrix(joins, self.average, own)

    def _rows(self, name: str, population: Population) -> Callable[..., Trained]:
        """Return the function that makes vectors, which are divided by √S."""
        (unit, step), root = self._enlarged(name), population.size**0.5
        own = WeightConstants(unit * root, step / root)
        return partial(Averaged, average=self.average, constants=own)

    def _enlarged(self, name: str) -> WeightConstants:
        """Return the constants of a weight for the factor of γ₀."""
        unit, step = self.constants[name]
        return WeightConstants(unit / self.boost, step * self.boost)
