"""Sets of neurons that represent the distribution of neurons at initialisation.

Averages over the hidden layer are sums over neurons with weights:

* linear φ: a neuron stays a linear function of its initial state, so that all averages are second
  moments, and the unit vectors, with weight 1 each, have exactly those of a standard Gaussian;
* few directions: the trapezoidal rule on a grid, which for φ analytic in a strip converges as
  exp(−c/step), faster than Gauss-Hermite quadrature, whose error decays with its square root;
* otherwise scrambled Sobol points, each with both signs of the read-out weights, so that f(0) = 0.
  Exact second moments would in addition reduce the error by at most 15 %, as measured;
* independent draws, for the particle system of a network of finite width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from largen.expectations.quasi_random import normal_points
from largen.parameterizations.distributions import from_normal
from largen.theories.mean_field.one_hidden_layer.problem import OneLayerProblem

REACH = 7.5  # radius beyond which a Gaussian times a polynomial integrates to less than 1e-10


@dataclass(frozen=True)
class Neurons:
    """A set of neurons at initialisation."""

    directions: np.ndarray  # the coordinates a of the neurons, shape (neuron, direction)
    readout: np.ndarray  # the read-out weights z, shape (neuron, output)
    weights: np.ndarray  # the weight of each neuron in averages, shape (neuron,)

    def __len__(self) -> int:
        return len(self.weights)


def unit_vectors(problem: OneLayerProblem) -> Neurons:
    """Return neurons with the exact second moments of a Gaussian, for linear φ."""
    states = np.eye(problem.dimensions)
    return _split(problem, states, np.ones(len(states)))


def first_step(problem: OneLayerProblem) -> float:
    """Return the step of a coarse grid that is accurate to several digits for smooth φ."""
    return 0.35 if problem.dimensions <= 2 else 0.6


def grid(problem: OneLayerProblem, step: float) -> Neurons:
    """Return the trapezoidal rule with a given step, in all directions and read-out weights.

    The step is in units of the preactivation, on whose scale φ varies: it is shorter in directions
    in which some sample has |F_μi| > 1. Nodes outside a ball of radius ``REACH`` are omitted.
    """
    fields = np.concatenate([problem.train, problem.test])
    stretch = np.concatenate([np.abs(fields).max(0), np.ones(problem.outputs)])
    axes, masses = [], []
    for scale in np.maximum(stretch, 1):
        half = round(REACH * scale / step)
        nodes = (np.arange(-half, half) + 0.5) * (REACH / half)
        axes.append(nodes)
        masses.append(np.exp(-(nodes**2) / 2))
    states = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, problem.dimensions)
    weights = reduce(np.multiply.outer, masses).reshape(-1)
    inside = np.sum(states**2, 1) <= REACH**2
    states, weights = states[inside], weights[inside]
    return _split(problem, states, weights / weights.sum())


def independent(problem: OneLayerProblem, count: int, rng: np.random.Generator) -> Neurons:
    """Return independent neurons, as in a network of width ``count``."""
    return _initial_neurons(problem, rng.standard_normal((count, problem.dimensions)), False)


def quasi_random(problem: OneLayerProblem, count: int, rng: np.random.Generator) -> Neurons:
    """Return ``count`` neurons from a scrambled Sobol sequence; ``count`` is a power of two.

    Read-out weights take the first coordinates of the sequence, which are the most uniform.
    """
    normals = normal_points(count // 2, problem.dimensions, rng)
    return _initial_neurons(problem, normals, True)


def _initial_neurons(problem: OneLayerProblem, normals: np.ndarray, both_signs: bool) -> Neurons:
    """Return neurons of equal weight from Gaussian numbers, those of the read-out first."""
    readout, inner = np.split(normals, [problem.outputs], axis=1)
    if problem.start is not None:
        distributions = np.array(problem.start.distributions)
        for distribution in set(distributions):
            its = distributions == distribution
            inner[:, its] = from_normal(distribution, inner[:, its])
        inner, readout = inner @ problem.start.basis, from_normal(problem.start.readout, readout)
    if both_signs:
        inner, readout = np.tile(inner, (2, 1)), np.concatenate([readout, -readout])
    weights = np.full(len(inner), 1 / len(inner))
    return Neurons(inner, problem.out_std * np.asarray(readout), weights)


def _split(problem: OneLayerProblem, states: np.ndarray, weights: np.ndarray) -> Neurons:
    directions, readout = np.split(states, [problem.directions], axis=1)
    return Neurons(directions, problem.out_std * readout, weights)
