"""Forward and backward passes of the operations of a network, on fields as coordinates.

Fields are of shape (sample, position, coordinate). Backward fields are g = Nγ₀ ∂(Σ_μ Δ_μ f_μ)/∂h
with weights Δ of the outputs of training samples (where each position has an output, the sum runs
over positions as well).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from largen.expectations import ActivationFunction
from largen.theories.mean_field.transformer.kernel_records import AffineMap
from largen.theories.mean_field.transformer.operations import (
    HiddenMap,
    Nonlinear,
    Normalization,
    Pool,
    ReadIn,
    Skip,
    Weights,
)
from largen.theories.mean_field.transformer.populations import Population, grown, plus
from largen.theories.mean_field.transformer.random_matrix import Diverged
from largen.theories.mean_field.transformer.weights import Bias, Descent, Matrix, Vectors

Fields = np.ndarray


@runtime_checkable
class Pass(Protocol):
    """An operation at work: it keeps what its backward pass needs of its last forward pass."""

    def forward(self, x: Fields) -> Fields:
        """Return the fields behind the operation."""
        ...

    def backward(self, g: Fields) -> Fields:
        """Return the backward fields before the operation, and keep the gradients of weights."""
        ...

    def step(self, step: Descent) -> None:
        """Make a step of gradient descent."""
        ...


class Context:
    """The populations of a network at work, and what is observed of it.

    Parameters
    ----------
    of
        The function that returns a number for all numbers of one population.
    make
        The function that makes the population of a number.

    Attributes
    ----------
    weights
        All matrices and vectors, in the order of the network, biases behind the matrices.
    patterns
        The attention weights of the last forward pass, in the order of the network.
    maps
        The affine maps, in the order of the network.
    """

    def __init__(self, of: Callable[[int], int], make: Callable[[int], Population]):
        self._of, self._make, self._made = of, make, {}
        self.weights: list[Matrix | Vectors] = []
        self.patterns: list[Any] = []
        self.maps: list[AffineMap] = []

    def affine_map(self, weights: Weights, ratio: float) -> AffineMap:
        """Return the record of a new affine map, behind which are ``ratio`` N neurons."""
        self.maps.append(AffineMap(weights, ratio))
        return self.maps[-1]

    @property
    def populations(self) -> list[Population]:
        """All populations that are in use."""
        return list(self._made.values())

    def population(self, number: int) -> Population:
        """Return the population of a number."""
        number = self._of(number)
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]


@singledispatch
def pass_of(operation: Any, context: Context) -> Pass:
    """Return an operation at work."""
    raise NotImplementedError(type(operation).__name__)


class InSequence:
    """Operations one after the other."""

    def __init__(self, operations: tuple[Any, ...], context: Context):
        self._parts = [pass_of(each, context) for each in operations]

    def forward(self, x: Fields) -> Fields:
        """Return the fields behind the last operation."""
        for part in self._parts:
            x = part.forward(x)
        return x

    def backward(self, g: Fields) -> Fields:
        """Return the backward fields before the first operation."""
        for part in reversed(self._parts):
            g = part.backward(g)
        return g

    def step(self, step: Descent) -> None:
        """Make a step of gradient descent."""
        for part in self._parts:
            part.step(step)


@pass_of.register
def _(operation: ReadIn, context: Context) -> Pass:
    return _InputMap(operation, context)


class _InputMap:
    """σ E x/√D + σ_b b, of data x instead of fields."""

    def __init__(self, operation: ReadIn, context: Context):
        population, weights = context.population(operation.population), operation.weights
        self._scale = weights.std / operation.inputs**0.5
        self._rows = Vectors(operation.inputs, population, weights.rate)
        self._bias = Bias(weights, population)
        context.weights += [self._rows, *self._bias.weights]
        self._map, self._root = context.affine_map(weights, operation.behind), operation.inputs**0.5

    def forward(self, x: Fields) -> Fields:
        self._x = x
        self._map.reads(x / self._root)
        return self._bias.add(self._scale * x @ self._rows.rows)

    def backward(self, g: Fields) -> Fields:
        self._map.receives(g)
        x, flat = self._x[: len(g)], g.reshape(-1, g.shape[-1])
        self._rows.pull(self._scale * x.reshape(-1, x.shape[-1]).T @ flat)
        self._bias.pull(flat)
        return g[..., :0]

    def step(self, step: Descent) -> None:
        self._rows.step(step)
        self._bias.step(step)


@pass_of.register
def _(operation: HiddenMap, context: Context) -> Pass:
    return _BetweenPopulations(operation, context)


class _BetweenPopulations:
    """σVx + σ_b b."""

    def __init__(self, operation: HiddenMap, context: Context):
        source, target = (
            context.population(each) for each in (operation.source, operation.population)
        )
        ratio = operation.behind / operation.before
        self._matrix = Matrix(operation.weights, source, target, ratio)
        self._bias = Bias(operation.weights, target)
        context.weights += [self._matrix, *self._bias.weights]
        self._map = context.affine_map(operation.weights, operation.behind)

    def forward(self, x: Fields) -> Fields:
        self._map.reads(x)
        y = self._matrix.forward(x.reshape(-1, x.shape[-1]))
        return self._bias.add(y.reshape(*x.shape[:2], -1))

    def backward(self, g: Fields) -> Fields:
        self._map.receives(g)
        flat = g.reshape(-1, g.shape[-1])
        self._bias.pull(flat)
        return self._matrix.backward(flat).reshape(*g.shape[:2], -1)

    def step(self, step: Descent) -> None:
        self._matrix.step(step)
        self._bias.step(step)


class Weightless:
    """Base of the operations without weights."""

    def step(self, step: Descent) -> None:
        """Do nothing."""


@pass_of.register
def _(operation: Nonlinear, context: Context) -> Pass:
    return _Activated(operation, context)


class _Activated(Weightless):
    """φ(x) at each neuron; backward φ'(x)g."""

    def __init__(self, operation: Nonlinear, context: Context):
        self._of = _with_slope(operation.activation)
        self._neurons = context.population(operation.population).size

    def forward(self, x: Fields) -> Fields:
        x = grown(x, (*x.shape[:2], self._neurons))
        y, slope = self._of(self._neurons**0.5 * x)
        self._slope = np.asarray(slope)
        return np.asarray(y) / self._neurons**0.5

    def backward(self, g: Fields) -> Fields:
        return self._slope[: len(g)] * grown(g, (*g.shape[:2], self._neurons))


@lru_cache(maxsize=16)
def _with_slope(phi: ActivationFunction) -> Callable[..., Any]:
    """Return the function of x that returns φ(x) and φ'(x)."""
    return jax.jit(lambda x: (phi(x), phi.derivative(x)))


@pass_of.register
def _(operation: Normalization, context: Context) -> Pass:
    return _Normalized(operation, context)


class _Normalized(Weightless):
    """x/√(⟨x²⟩ + ε); backward (g − y⟨yg⟩)/√(⟨x²⟩ + ε); x − ⟨x⟩ and g − ⟨g⟩ if there are means."""

    def __init__(self, operation: Normalization, context: Context):
        self._operation = operation
        # Gaussian vectors have the mean zero, and so have fields that are linear in them.
        self._centred = operation.centred and context.population(operation.population).sampled

    def forward(self, x: Fields) -> Fields:
        x = self._beside_mean(x)
        self._root = np.sqrt(self._mean(np.sum(x * x, -1, keepdims=True)) + self._operation.eps)
        if not np.isfinite(self._root).all():
            raise Diverged
        self._y = x / self._root
        return self._y

    def backward(self, g: Fields) -> Fields:
        y, g = self._y[: len(g)], self._beside_mean(g)
        shared = min(y.shape[-1], g.shape[-1])
        along = np.sum(y[..., :shared] * g[..., :shared], -1, keepdims=True)
        return plus(g, -y * self._mean(along)) / self._root[: len(g)]

    def _beside_mean(self, x: Fields) -> Fields:
        return x - self._mean(x.mean(-1, keepdims=True)) if self._centred and x.size else x

    def _mean(self, x: Fields) -> Fields:
        return x.mean(1, keepdims=True) if self._operation.over_space else x


@pass_of.register
def _(operation: Pool, context: Context) -> Pass:
    return _Pooled(operation)


class _Pooled(Weightless):
    """The mean or the sum over positions."""

    def __init__(self, operation: Pool):
        self._mean, self._positions = operation.mean, 1

    def forward(self, x: Fields) -> Fields:
        self._positions = x.shape[1]
        return x.sum(1, keepdims=True) * self._each

    def backward(self, g: Fields) -> Fields:
        return np.repeat(self._each * g, self._positions, axis=1)

    @property
    def _each(self) -> float:
        return 1 / self._positions if self._mean else 1.0


@pass_of.register
def _(operation: Skip, context: Context) -> Pass:
    return _Sum(operation, context)


class _Sum:
    """shortcut(x) + factor · branch(x)."""

    def __init__(self, operation: Skip, context: Context):
        self._branch = InSequence(operation.branch, context)
        self._shortcut = InSequence(operation.shortcut, context)
        self._factor = operation.factor

    def forward(self, x: Fields) -> Fields:
        return plus(self._shortcut.forward(x), self._factor * self._branch.forward(x))

    def backward(self, g: Fields) -> Fields:
        return plus(self._shortcut.backward(g), self._branch.backward(self._factor * g))

    def step(self, step: Descent) -> None:
        self._branch.step(step)
        self._shortcut.step(step)
