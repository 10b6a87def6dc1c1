"""Forward and backward passes of the operations of a network, on fields as coordinates.

Fields are of shape (sample, position, coordinate). Backward fields are g = Nγ₀ ∂(Σ_μ Δ_μ f_μ)/∂h
with weights Δ of the outputs of training samples (where each position has an output, the sum runs
over positions as well).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce, singledispatch
from math import prod
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from largen.expectations import ActivationFunction
from largen.parameterizations.weight_rules import first_fan_in
from largen.programs import BRANCH, Affine, Function, Normalise, Operation, Pool, Product, Sum
from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.transformer.kernel_records import ObservedMap
from largen.theories.mean_field.transformer.network import Node, PopulatedNetwork
from largen.theories.mean_field.transformer.populations import Population, grown, plus
from largen.theories.mean_field.transformer.random_matrix import Diverged
from largen.theories.mean_field.transformer.weights import (
    Bias,
    Connection,
    Matrix,
    Updates,
    Vectors,
)

Fields = np.ndarray


@runtime_checkable
class Pass(Protocol):
    """An operation at work: it keeps what its backward pass needs of its last forward pass."""

    @property
    def forward(self) -> Callable[..., Fields]:
        """The function that returns the fields behind the operation, of those that it reads."""
        ...

    def backward(self, g: Fields) -> Sequence[Fields]:
        """Return the backward fields of what it reads, and keep the gradients of weights."""
        ...

    def step(self, step: Step) -> None:
        """Make a step of gradient descent."""
        ...


class Context:
    """The populations of a network at work, and what is observed of it.

    ``make``: the function that makes the population of a number; ``updates``: how weights move.

    ``weights``: all matrices and vectors, in the order of the network, biases behind the matrices;
    ``patterns``: the attention weights of the last forward pass, in the order of the network;
    ``maps``: the affine maps, in the order of the network.
    """

    def __init__(
        self, network: PopulatedNetwork, make: Callable[[int], Population], updates: Updates
    ):
        self.network, self._make, self._made, self.updates = network, make, {}, updates
        self.weights: list[Matrix | Vectors] = []
        self.patterns: list[Any] = []
        self.maps: list[ObservedMap] = []

    def affine_map(self, constants: MapConstants, ratio: float) -> ObservedMap:
        """Return the record of a new affine map, behind which are ``ratio`` N neurons."""
        before = self.maps[-1] if self.maps else None
        self.maps.append(self.updates.observed(constants, ratio, before))
        return self.maps[-1]

    def bias(self, operation: Affine, population: Population) -> Bias:
        """Return the bias of an affine map."""
        constants, name = self.network.constants(operation), self.name(operation, "bias")
        if not constants.bias_std:
            return Bias(0.0, None)
        vector = self.updates.vectors(name, 1, population, constants.bias_rate)
        return Bias(constants.bias_std, vector)

    def name(self, operation: Affine, kind: str) -> str:
        """Return the name of the weight or of the bias of an affine map in the rule table."""
        return f"{self.network.program.weights[operation.weight].name}.{kind}"

    @property
    def populations(self) -> list[Population]:
        """All populations that are in use."""
        return list(self._made.values())

    def population(self, node: Node) -> Population:
        """Return the population behind an operation."""
        assert node.population is not None
        number = self.network.populations.of(node.population)
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def read_by(self, node: Node) -> list[Node]:
        """Return the operations whose fields another one reads."""
        return [self.network.nodes[read] for read in node.reads]


@singledispatch
def pass_of(operation: Operation, node: Node, context: Context) -> Pass:
    """Return an operation at work."""
    raise NotImplementedError(type(operation).__name__)


class Passes:
    """All operations before the read-out.

    Fields are computed in the order in which the read-out asks for them, and backward fields from
    the read-out on as soon as all readers of a field have theirs.
    """

    def __init__(self, context: Context):
        nodes = context.network.nodes
        self._parts = [pass_of(node.operation, node, context) for node in nodes[1:-1]]
        self._reads = [node.reads for node in nodes]
        self._order = self._forward_order()

    def _forward_order(self) -> list[int]:
        found, stack = {0: None}, list(reversed(self._reads[-1]))
        while stack:
            waiting = [read for read in self._reads[stack[-1]] if read not in found]
            if waiting:
                stack.append(waiting[0])
            else:
                found[stack.pop()] = None
        return list(found)[1:]

    def forward(self, x: Fields) -> list[Fields]:
        """Return the fields that the read-out reads."""
        fields, missing = {0: x}, self._readers()
        for node in self._order:
            reads = self._reads[node]
            fields[node] = self._parts[node - 1].forward(*(fields[read] for read in reads))
            missing.subtract(reads)
            for read in set(reads):
                if not missing[read]:
                    del fields[read]
        return [fields[read] for read in self._reads[-1]]

    def backward(self, g: Sequence[Fields]) -> None:
        """Pass backward from the fields that the read-out reads."""
        missing, fields, ready = self._readers(), {}, [len(self._parts) + 1]
        while ready:
            node = ready.pop()
            if node == 0:
                continue
            if node <= len(self._parts):
                g = self._parts[node - 1].backward(fields.pop(node))
            reads = self._reads[node]
            for read, back in zip(reads, g, strict=True):
                fields[read] = plus(fields[read], back) if read in fields else back
            missing.subtract(reads)
            ready += [read for read in dict.fromkeys(reversed(reads)) if not missing[read]]

    def _readers(self) -> Counter[int]:
        """Return how often the fields of each operation are read."""
        return Counter(read for reads in self._reads for read in reads)

    def step(self, step: Step) -> None:
        """Make a step of gradient descent."""
        for part in self._parts:
            part.step(step)


@pass_of.register
def _(operation: Affine, node: Node, context: Context) -> Pass:
    if context.read_by(node)[0].population is None:
        return _InputMap(operation, node, context)
    return _BetweenPopulations(operation, node, context)


class _InputMap:
    """σ E x/√D + σ_b b, of data x instead of fields."""

    def __init__(self, operation: Affine, node: Node, context: Context):
        population, constants = context.population(node), context.network.constants(operation)
        program = context.network.program
        sample = program.signals[0].sample
        assert sample is not None
        inputs = first_fan_in(sample, program.weights[operation.weight])
        self._scale = constants.std / inputs**0.5
        name = context.name(operation, "weight")
        self._rows = context.updates.vectors(name, inputs, population, constants.rate)
        self._bias = context.bias(operation, population)
        context.weights += [self._rows, *self._bias.weights]
        self._map, self._root = context.affine_map(constants, node.ratio), inputs**0.5

    def forward(self, x: Fields) -> Fields:
        self._x = x
        self._map.reads([x / self._root])
        return self._bias.add(self._scale * x @ self._rows.rows)

    def backward(self, g: Fields) -> Sequence[Fields]:
        g = self._map.receives(g)
        x, flat = self._x[: len(g)], g.reshape(-1, g.shape[-1])
        self._rows.pull(self._scale * x.reshape(-1, x.shape[-1]).T @ flat)
        self._bias.pull(flat)
        return (g[..., :0],)

    def step(self, step: Step) -> None:
        self._rows.step(step)
        self._bias.step(step)


class _BetweenPopulations:
    """σ Σ_i √s_i V_i x_i + σ_b b, of fields with the shares s_i in the neurons that it reads."""

    def __init__(self, operation: Affine, node: Node, context: Context):
        target, constants = context.population(node), context.network.constants(operation)
        self._roots = [share**0.5 for share in context.network.shares(node)]
        self._matrices = [
            context.updates.matrix(
                context.name(operation, "weight"),
                Connection(
                    replace(constants, std=root * constants.std),
                    context.population(source),
                    target,
                    (source.ratio, node.ratio),
                ),
            )
            for root, source in zip(self._roots, context.read_by(node), strict=True)
        ]
        self._bias = context.bias(operation, target)
        context.weights += [*self._matrices, *self._bias.weights]
        self._map = context.affine_map(constants, node.ratio)

    def forward(self, *x: Fields) -> Fields:
        self._map.reads(x, self._roots)
        flat = (each.reshape(-1, each.shape[-1]) for each in x)
        y = reduce(plus, (m.forward(each) for m, each in zip(self._matrices, flat, strict=True)))
        return self._bias.add(y.reshape(*x[0].shape[:2], -1))

    def backward(self, g: Fields) -> Sequence[Fields]:
        g = self._map.receives(g)
        flat = g.reshape(-1, g.shape[-1])
        self._bias.pull(flat)
        return [matrix.backward(flat).reshape(*g.shape[:2], -1) for matrix in self._matrices]

    def step(self, step: Step) -> None:
        for weights in (*self._matrices, self._bias):
            weights.step(step)


class Weightless:
    """Base of the operations without weights."""

    def step(self, step: Step) -> None:
        """Do nothing."""


@pass_of.register
def _(operation: Function, node: Node, context: Context) -> Pass:
    return _Activated(operation, node, context)


class _Activated(Weightless):
    """φ(x) at each neuron; backward φ'(x)g."""

    def __init__(self, operation: Function, node: Node, context: Context):
        self._of = _with_slope(operation.phi)
        self._neurons = context.population(node).size

    def forward(self, x: Fields) -> Fields:
        x = grown(x, (*x.shape[:2], self._neurons))
        y, slope = self._of(self._neurons**0.5 * x)
        self._slope = np.asarray(slope)
        return np.asarray(y) / self._neurons**0.5

    def backward(self, g: Fields) -> Sequence[Fields]:
        return (self._slope[: len(g)] * grown(g, (*g.shape[:2], self._neurons)),)


@lru_cache(maxsize=16)
def _with_slope(phi: ActivationFunction) -> Callable[..., Any]:
    """Return the function of x that returns φ(x) and φ'(x)."""
    return jax.jit(lambda x: (phi(x), phi.derivative(x)))


@pass_of.register
def _(operation: Normalise, node: Node, context: Context) -> Pass:
    return _Normalized(operation, node, context)


class _Normalized(Weightless):
    """x/√(⟨x²⟩ + ε); backward (g − y⟨yg⟩)/√(⟨x²⟩ + ε); x − ⟨x⟩ and g − ⟨g⟩ if there are means."""

    def __init__(self, operation: Normalise, node: Node, context: Context):
        self._over_space, self._eps = operation.over == "sample", operation.eps
        # Gaussian vectors have the mean zero, and so have fields that are linear in them.
        self._centred = operation.centred and context.population(node).sampled

    def forward(self, x: Fields) -> Fields:
        x = self._beside_mean(x)
        self._root = np.sqrt(self._mean(np.sum(x * x, -1, keepdims=True)) + self._eps)
        if not np.isfinite(self._root).all():
            raise Diverged
        self._y = x / self._root
        return self._y

    def backward(self, g: Fields) -> Sequence[Fields]:
        y, g = self._y[: len(g)], self._beside_mean(g)
        shared = min(y.shape[-1], g.shape[-1])
        along = np.sum(y[..., :shared] * g[..., :shared], -1, keepdims=True)
        return (plus(g, -y * self._mean(along)) / self._root[: len(g)],)

    def _beside_mean(self, x: Fields) -> Fields:
        return x - self._mean(x.mean(-1, keepdims=True)) if self._centred and x.size else x

    def _mean(self, x: Fields) -> Fields:
        return x.mean(1, keepdims=True) if self._over_space else x


@pass_of.register
def _(operation: Pool, node: Node, context: Context) -> Pass:
    return _Pooled(operation.total)


class _Pooled(Weightless):
    """The mean or the sum over positions."""

    def __init__(self, total: bool):
        self._total, self._positions = total, 1

    def forward(self, x: Fields) -> Fields:
        self._positions = x.shape[1]
        return x.sum(1, keepdims=True) * self._each

    def backward(self, g: Fields) -> Sequence[Fields]:
        return (np.repeat(self._each * g, self._positions, axis=1),)

    @property
    def _each(self) -> float:
        return 1.0 if self._total else 1 / self._positions


@pass_of.register
def _(operation: Sum, node: Node, context: Context) -> Pass:
    branch = context.network.form.branch
    return _WeightedSum(tuple(branch if f == BRANCH else float(f) for f in operation.factors))


class _WeightedSum(Weightless):
    """Σ_i c_i x_i."""

    def __init__(self, factors: tuple[float, ...]):
        self._factors = factors

    def forward(self, *x: Fields) -> Fields:
        return reduce(plus, map(operator.mul, self._factors, x))

    def backward(self, g: Fields) -> Sequence[Fields]:
        return [factor * g for factor in self._factors]


@pass_of.register
def _(operation: Product, node: Node, context: Context) -> Pass:
    return _Multiplied(context.population(node).size)


class _Multiplied(Weightless):
    """Π_i x_i at each neuron."""

    def __init__(self, neurons: int):
        self._neurons = neurons

    def forward(self, *x: Fields) -> Fields:
        self._x = [self._neurons**0.5 * grown(each, (*each.shape[:2], self._neurons)) for each in x]
        return prod(self._x) / self._neurons**0.5

    def backward(self, g: Fields) -> Sequence[Fields]:
        g = grown(g, (*g.shape[:2], self._neurons))
        x = [each[: len(g)] for each in self._x]
        return [g * prod(x[:i] + x[i + 1 :]) for i in range(len(x))]
