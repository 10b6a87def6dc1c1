"""Forward and backward passes of the operations of a network, on fields as coordinates.

Fields are of shape (sample, position, coordinate). Backward fields are g = Nγ₀ ∂(Σ_μ Δ_μ f_μ)/∂h
with weights Δ of the outputs of training samples (where each position has an output, the sum runs
over positions as well). For attention with logits a and weights s = softmax(a) (Bordelon,
Chaudhry and Pehlevan 2024, arXiv 2405.15712, in the limit of infinite key size; r are the numbers
of features per unit of width),

    a_st = c ⟨q_s k_t⟩,            o_s = Σ_t s_st v_t,
    e_st = ⟨g_s v_t⟩,              ȧ_st = s_st (e_st − Σ_u s_su e_su) r_v/r_k,
    g_q,s = c Σ_t ȧ_st k_t,        g_k,t = c Σ_s ȧ_st q_s,        g_v,t = Σ_s s_st g_s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from scipy.special import softmax

from largen.expectations import ActivationFunction
from largen.theories.mean_field.transformer.populations import Population, averages, grown, plus
from largen.theories.mean_field.transformer.program import (
    Attention,
    HiddenMap,
    Nonlinear,
    Normalization,
    OwnAttention,
    Pool,
    ReadIn,
    Skip,
)
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
    """

    def __init__(self, of: Callable[[int], int], make: Callable[[int], Population]):
        self._of, self._make, self._made = of, make, {}
        self.weights: list[Matrix | Vectors] = []
        self.patterns: list[Any] = []

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

    def forward(self, x: Fields) -> Fields:
        self._x = x
        return self._bias.add(self._scale * x @ self._rows.rows)

    def backward(self, g: Fields) -> Fields:
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

    def forward(self, x: Fields) -> Fields:
        y = self._matrix.forward(x.reshape(-1, x.shape[-1]))
        return self._bias.add(y.reshape(*x.shape[:2], -1))

    def backward(self, g: Fields) -> Fields:
        flat = g.reshape(-1, g.shape[-1])
        self._bias.pull(flat)
        return self._matrix.backward(flat).reshape(*g.shape[:2], -1)

    def step(self, step: Descent) -> None:
        self._matrix.step(step)
        self._bias.step(step)


class _Weightless:
    """Base of the operations without weights."""

    def step(self, step: Descent) -> None:
        pass


@pass_of.register
def _(operation: Nonlinear, context: Context) -> Pass:
    return _Activated(operation, context)


class _Activated(_Weightless):
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


class _Normalized(_Weightless):
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


class _Pooled(_Weightless):
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


@pass_of.register
def _(operation: OwnAttention, context: Context) -> Pass:
    return _OfItself(operation, context)


class _OfItself(_Weightless):
    """Attention whose queries, keys and values are its input."""

    def __init__(self, operation: OwnAttention, context: Context):
        self._attention = _Weighted(operation.scale, 1.0, context)

    def forward(self, x: Fields) -> Fields:
        return self._attention.forward(x, x, x)

    def backward(self, g: Fields) -> Fields:
        queries, keys, values = self._attention.backward(g)
        return plus(plus(queries, keys), values)


@pass_of.register
def _(operation: Attention, context: Context) -> Pass:
    return _OfQueriesAndKeys(operation, context)


class _OfQueriesAndKeys:
    """Attention with weights of its own."""

    def __init__(self, operation: Attention, context: Context):
        parts = (operation.queries, operation.keys, operation.values)
        self._parts = [InSequence(part, context) for part in parts]
        self._attention = _Weighted(operation.scale, operation.share, context, operation.causal)

    def forward(self, x: Fields) -> Fields:
        return self._attention.forward(*(part.forward(x) for part in self._parts))

    def backward(self, g: Fields) -> Fields:
        found = self._attention.backward(g)
        queries, keys, values = (
            part.backward(each) for part, each in zip(self._parts, found, strict=True)
        )
        return plus(plus(queries, keys), values)

    def step(self, step: Descent) -> None:
        for part in self._parts:
            part.step(step)


class _Weighted:
    """Sums of values with the weights softmax(c⟨q_s k_t⟩), which are scalars of a population."""

    def __init__(self, scale: float, share: float, context: Context, causal: bool = False):
        self._scale, self._share, self._causal = scale, share, causal
        self._patterns, self._place = context.patterns, len(context.patterns)
        context.patterns.append(None)

    def forward(self, queries: Fields, keys: Fields, values: Fields) -> Fields:
        logits = self._scale * averages(queries, keys)
        if not np.isfinite(logits).all():
            raise Diverged
        if self._causal:
            logits = np.where(np.tri(logits.shape[-1], dtype=bool), logits, -np.inf)
        self._fields, self._weights = (queries, keys, values), softmax(logits, axis=-1)
        self._patterns[self._place] = self._weights
        return self._weights @ values

    def backward(self, g: Fields) -> tuple[Fields, Fields, Fields]:
        """Return the backward fields of queries, keys and values."""
        queries, keys, values = (each[: len(g)] for each in self._fields)
        weights = self._weights[: len(g)]
        e = averages(g, values)
        slope = weights * (e - np.sum(weights * e, -1, keepdims=True)) * self._share * self._scale
        transposed = np.swapaxes(slope, 1, 2)
        return slope @ keys, transposed @ queries, np.swapaxes(weights, 1, 2) @ g
