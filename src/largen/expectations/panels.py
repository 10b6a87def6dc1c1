"""Composite Gauss–Legendre quadrature.

For functions with a bend at 0, or with a scale far below the range, the lengths of the panels grow
geometrically from 0 outwards: the distance of a singularity near 0 is then the same in units of
each panel's length.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np


def panels(edges: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss–Legendre nodes and weights on each panel between the edges."""
    x, w = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


_GROWTH = 4.0  # ratio of the lengths of successive graded panels
_OUTER = (1.0, 2.5, 4.5, 6.5, 9.0)  # edges of panels for the normal density


@lru_cache
def graded_nodes(reach: float, order: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Return positive nodes and weights, as ``half_nodes``, from an innermost panel of 1/reach."""
    inner = _GROWTH ** -np.arange(np.ceil(np.log(max(reach, _GROWTH)) / np.log(_GROWTH)), 0, -1)
    z, lengths = panels(np.array([0.0, *inner, *_OUTER]), order)
    return z, 2 * lengths * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


@lru_cache
def graded_unit(reach: float, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on [0, 1], graded towards both ends, symmetric."""
    count = 1 + np.ceil(np.log(16 * reach) / np.log(_GROWTH))
    edges = np.array([0.0, *(0.5 * _GROWTH ** -np.arange(count, -1, -1))])
    x, w = panels(edges, order)
    return np.concatenate([x, 1 - x[::-1]]), np.concatenate([w, w[::-1]])
