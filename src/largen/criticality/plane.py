"""Limits and convergence rates of correlations over the plane of σ_w and σ_b.

At a fixed variance K the correlation map is a power series with non-negative coefficients,
f(c) = [σ_b² + σ_w² Σ_k a_k² c^k]/K with a_k = E[φ(√K z)h_k(z)], hence convex for c ≥ 0: if
f'(1) = χ_⊥ > 1 it meets the diagonal once more below c = 1.
"""

from __future__ import annotations

import numpy as np

from largen.expectations import ActivationFunction
from largen.expectations.nodes import nodes_for, values

_TERMS = 80  # the last coefficient includes the remainder of the series
_BISECTIONS = 48
_AT_ONCE = 400  # points of the plane computed together


def stationary_correlations(
    phi: ActivationFunction, weight: np.ndarray, bias: np.ndarray, K: np.ndarray, perp: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return c* and the slope of the map there at points σ_w², σ_b², K, χ_⊥, (point,) each."""
    c, slope = np.ones_like(K), perp.copy()
    chaotic = np.flatnonzero((perp > 1) & (K > 0))
    for first in range(0, len(chaotic), _AT_ONCE):
        block = chaotic[first : first + _AT_ONCE]
        b = weight[block] / K[block] * _squares(phi, K[block])
        b[0] += bias[block] / K[block]
        b[-1] += 1 - b.sum(axis=0)
        place = _root(lambda x, b=b: _sum(b, x) - x, _root(lambda x, b=b: 1 - _slope(b, x), 1.0))
        c[block], slope[block] = place, _slope(b, place)
    return c, slope


def _root(excess, last: np.ndarray | float) -> np.ndarray:
    """Return where a function that is positive at 0 first vanishes, up to ``last``."""
    high = last * np.ones_like(excess(0.0))
    low = np.zeros_like(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        positive = excess(middle) > 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    return (low + high) / 2


def _sum(b: np.ndarray, x: np.ndarray | float) -> np.ndarray:
    total = np.zeros(b.shape[1:])
    for each in b[::-1]:
        total = total * x + each
    return total


def _slope(b: np.ndarray, x: np.ndarray | float) -> np.ndarray:
    return _sum(np.arange(1, len(b))[:, None] * b[1:], x)


def _squares(phi: ActivationFunction, K: np.ndarray) -> np.ndarray:
    """Return a_k² for k = 0, 1, …, (term, point)."""
    nodes = nodes_for(phi, K)
    z = nodes.z
    weighted = values(phi, np.sqrt(K) * z)[0] * nodes.weights
    before, now = np.zeros_like(z), np.ones_like(z)
    squares = np.empty((_TERMS, len(K)))
    for k in range(_TERMS):
        squares[k] = np.sum(weighted * now, axis=0) ** 2
        before, now = now, (z * now - np.sqrt(k) * before) / np.sqrt(k + 1)
    return squares
