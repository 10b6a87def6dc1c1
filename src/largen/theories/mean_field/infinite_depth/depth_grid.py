"""Nodes of the depth τ ∈ [0, 1], and polynomials through them.

Fields, kernels and responses are analytic in τ if no noise enters; with noise, kernels still are.
Polynomials through Gaussian nodes therefore converge exponentially. The nodes are those of
Gauss-Legendre or, with both ends, of Gauss-Lobatto quadrature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial import legendre


class DepthGrid(NamedTuple):
    """Nodes of depth."""

    nodes: Float[np.ndarray, " node"]  # τ, shape (node,)
    # Matrix from values at the nodes to integrals from 0 to each node.
    rise: Float[np.ndarray, "node node"]
    whole: Float[np.ndarray, " node"]  # vector from values at the nodes to the integral from 0 to 1

    @property
    def fall(self) -> Float[np.ndarray, "node node"]:
        """Matrix from values at the nodes to integrals from each node to 1."""
        return self.whole - self.rise

    def at(self, tau: Float[np.ndarray, " point"]) -> Float[np.ndarray, "point node"]:
        """Return the matrix from values at the nodes to those of the polynomial at other depths."""
        degree = len(self.nodes) - 1
        values = legendre.legvander(2 * self.nodes - 1, degree)
        return np.linalg.solve(values.T, legendre.legvander(2 * tau - 1, degree).T).T


def gauss(count: int) -> DepthGrid:
    """Return ``count`` inner nodes, whose integrals from 0 to 1 are exact to degree 2 count − 1."""
    return _grid(legendre.leggauss(count)[0])


def lobatto(count: int) -> DepthGrid:
    """Return ``count`` nodes, including both ends."""
    inner = legendre.legroots(legendre.legder([0] * (count - 1) + [1]))
    return _grid(np.concatenate([[-1.0], inner, [1.0]]))


def _grid(points: np.ndarray) -> DepthGrid:
    degree = len(points) - 1
    # ∫ P_k from −1 to x, a polynomial of one degree more.
    integrals = np.stack(
        [
            legendre.legval(points, legendre.legint(row, lbnd=-1), tensor=False)
            for row in np.eye(degree + 1)
        ],
        axis=1,
    )
    inverse = np.linalg.inv(legendre.legvander(points, degree))
    whole = np.zeros(degree + 1)
    whole[0] = 1.0
    return DepthGrid((1 + points) / 2, integrals @ inverse / 2, whole @ inverse)
