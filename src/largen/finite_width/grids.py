"""Nodes for averages over up to four Gaussians with any covariance.

For smooth functions, the nodes are a lattice in a ball: the trapezoidal rule in several dimensions,
whose error falls exponentially with the inverse of the step. In four dimensions every other point
of the lattice, a checkerboard, is as accurate as all points. The step is the largest with which the
fourth powers of φ and φ' have accurate averages under each single variance, since a lattice is
least accurate for functions of one direction. The ball's radius is the smallest outside of which
powers of φ contribute nothing; it grows with their degree. For functions with kinks, the rule is
Gauss-Legendre quadrature in each dimension, with panels that end where a preactivation is at a
kink.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from largen.errors import NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import kinks_of, nodes_for, values
from largen.expectations.panels import panels

_STEPS = tuple(0.65 * 0.9**i for i in range(20))
# Tolerances of averages along a line, by the number of Gaussians. Averages over the lattice are
# more accurate by three digits or more, since a generic line is no special direction of it.
_TOLERANCE = {1: 1e-10, 2: 1e-9, 3: 1e-6, 4: 2e-5}
_MOST_NODES = 3_000_000
_REACHES = 6.3, 6.8, 7.3, 7.8, 8.3  # radii of the ball in standard deviations
_OUTSIDE = {3: 1e-8, 4: 1e-6}  # of an average, by the number of Gaussians
# Ends of panels and nodes in each, by the number of Gaussians.
_PANELS = {
    1: ((-9.0, -6.5, -4.5, -2.5, -1.0, 1.0, 2.5, 4.5, 6.5, 9.0), 14),
    2: ((-8.5, -5.5, -2.75, 0.0, 2.75, 5.5, 8.5), 12),
    3: ((-7.0, -2.5, 2.5, 7.0), 9),
    4: ((-6.5, -2.2, 2.2, 6.5), 7),
}
PANELS_REACH = {dimensions: ends[-1] for dimensions, (ends, _) in _PANELS.items()}


class Grid(NamedTuple):
    """A rule E[f(u)] ≈ Σ weights f(points)."""

    points: np.ndarray  # preactivations, (node, input)
    weights: np.ndarray  # (node,)


def grid_for(phi: ActivationFunction, kernel: np.ndarray, power: int = 4) -> Grid:
    """Return nodes for products of up to ``power`` values of φ and φ' at Gaussians of a kernel."""
    kinks = kinks_of(phi)
    if kinks:
        return between_kinks(kinks, kernel)
    eigenvalues, vectors = np.linalg.eigh(kernel)
    # Directions without variance take no nodes.
    kept = eigenvalues > 1e-13 * eigenvalues[-1]
    root = vectors[:, kept] * np.sqrt(eigenvalues[kept])
    dimensions = int(kept.sum())
    step = _step(phi, np.diagonal(kernel), power, _TOLERANCE[dimensions])
    reach = 8.5 if dimensions <= 2 else _reach(phi, np.diagonal(kernel), power, dimensions)
    if dimensions > 2 and (2 * reach / step) ** dimensions * 0.16 > _MOST_NODES:
        raise NumericalFailure(
            f"averages of {phi} over {dimensions} Gaussians of variances up to "
            f"{kernel.diagonal().max():.3g} take too many nodes. Take fewer inputs or smaller ones."
        )
    z, weights = lattice(dimensions, step, reach)
    return Grid(z @ root.T, weights)


@lru_cache(maxsize=32)
def lattice(dimensions: int, step: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes in a ball and weights for standard Gaussians, a checkerboard in dimension 4."""
    line = np.arange(-int(reach / step), int(reach / step) + 1, dtype=np.int16)
    most = (reach / step) ** 2
    points, square = line[:, None], line.astype(np.float64) ** 2
    for _ in range(dimensions - 1):
        # Points outside of the ball are left out in each dimension.
        total = square[:, None] + line.astype(np.float64) ** 2
        before, last = np.nonzero(total <= most)
        points = np.column_stack([points[before], line[last]])
        square = total[before, last]
    if dimensions == 4:
        inside = points.sum(axis=1) % 2 == 0
        points, square = points[inside], square[inside]
    weights = np.exp(-(step**2) * square / 2)
    return step * points, weights / weights.sum()


def _reach(phi: ActivationFunction, q: np.ndarray, power: int, dimensions: int) -> float:
    """Return the radius outside of which φ^power is negligible."""
    r = np.linspace(0, 12, 241)
    mass = r ** (dimensions - 1) * np.exp(-(r**2) / 2)
    x = r[:, None] * np.sqrt(q)
    size = mass[:, None] * (values(phi, x)[0] ** power + values(phi, -x)[0] ** power)
    for reach in _REACHES:
        if np.all(size[r > reach].sum(axis=0) <= _OUTSIDE[dimensions] * size.sum(axis=0)):
            return reach
    return _REACHES[-1]


def _step(phi: ActivationFunction, q: np.ndarray, power: int, tolerance: float) -> float:
    nodes = nodes_for(phi, q)
    exact = [np.sum(f**power * nodes.weights, axis=0) for f in values(phi, np.sqrt(q) * nodes.z)]
    for step in _STEPS:
        z = step * np.arange(-int(9 / step), int(9 / step) + 1)
        weights = np.exp(-(z**2) / 2)
        weights = weights / weights.sum()
        moments = [weights @ f**power for f in values(phi, z[:, None] * np.sqrt(q))]
        if all(
            np.all(np.abs(f - e) <= tolerance * np.abs(e))
            for f, e in zip(moments, exact, strict=True)
        ):
            return step
    return _STEPS[-1]


def between_kinks(kinks: tuple[float, ...], kernel: np.ndarray, more: int = 0) -> Grid:
    """Return nodes on panels that end at the kinks of every preactivation.

    With the Cholesky factor L of the kernel, u_i = Σ_{j<i} L_ij z_j + L_ii z_i: the panels of z_i
    end where u_i is at a kink, given those before it.
    """
    P = len(kernel)
    scale = np.sqrt(np.diagonal(kernel))
    correlation = kernel / np.outer(scale, scale)
    factor = scale[:, None] * np.linalg.cholesky(correlation + 1e-14 * np.eye(P))
    whole, order = _PANELS[P]
    node, weight = panels(np.array([0.0, 1.0]), order + more)
    z, weights = np.zeros((1, 0)), np.ones(1)
    for i in range(P):
        mean = z @ factor[i, :i]
        places = (np.asarray(kinks) - mean[:, None]) / factor[i, i]
        fixed = np.broadcast_to(np.array(whole), (len(z), len(whole)))
        edges = np.sort(np.concatenate([fixed, np.clip(places, whole[0], whole[-1])], axis=1))
        lengths = np.diff(edges, axis=1)
        new = edges[:, :-1, None] + lengths[..., None] * node
        density = np.exp(-(new**2) / 2) / np.sqrt(2 * np.pi)
        mass = weights[:, None, None] * lengths[..., None] * weight * density
        before = np.broadcast_to(z[:, None, None], (*new.shape, i))
        z = np.concatenate([before, new[..., None]], axis=-1).reshape(-1, i + 1)
        weights = mass.ravel()
        used = weights > 1e-19
        z, weights = z[used], weights[used]
    return Grid(z @ factor.T, weights / weights.sum())
