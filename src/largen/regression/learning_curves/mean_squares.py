"""Mean squared errors after ridge regression or gradient flow on n samples of a pool.

Those of ridge regression are in :mod:`largen.regression.learning_curves.medium` for a pool, and in
:mod:`largen.regression.learning_curves.population`. After a
time t of gradient flow on the loss (1/n) Σ ½(f − y)², with a ridge δ, the residual is the inverse
Laplace transform of that of regression with the ridge δ + ns, divided by s, so that the error is

    ∮∮ ds₁ ds₂ e^{(s₁ + s₂)t}/(s₁ s₂ (2πi)²) E(δ + n s₁, δ + n s₂)

with the mean E of products of two residuals. The contour is a parabola, s = m(1 + iu)², with 2N
nodes of a spacing 3/N, and m = πN/(12t) (Weideman and Trefethen 2007).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from largen.interrupts import check
from largen.regression.learning_curves import medium, population
from largen.regression.learning_curves.pool import Pool
from largen.regression.learning_curves.population import Population

NODES = 16  # in each half-plane


class MeanSquares(NamedTuple):
    """Mean squared errors on samples outside of the training set, and on it, (output,)."""

    outside: np.ndarray
    train: np.ndarray


def mean_squares(
    modes: Pool | Population,
    n: float,
    ridge: float,
    time: float = np.inf,
    nodes: int = NODES,
    width: float = np.inf,
) -> MeanSquares:
    """Return the errors after a time η₀t of gradient flow, or of ridge regression if t = ∞.

    ``modes``: a pool of more than n samples, or a population; ``n``, ``ridge``: number of training
    samples, and δ ≥ 0, which is added to the diagonal of their kernel; ``width``: number of random
    features whose kernel it is.
    """
    of_ridges: Any = medium.densities if isinstance(modes, Pool) else population.densities
    if np.isinf(time):
        return MeanSquares(*(f[0, 0] for f in of_ridges(modes, n, np.array([ridge]), width)))
    at, weights = contour(time, nodes)
    density = of_ridges(modes, n, ridge + n * at, width)
    right = np.concatenate([weights, weights.conj()])
    outside, train = (2 * np.einsum("j,jko,k->o", weights, f, right).real for f in density)
    return MeanSquares(outside, np.maximum(train, 0.0))


def at_sizes(pool: Pool, sizes: Any, ridges: Any, time: float = np.inf) -> MeanSquares:
    """Return the errors of many numbers of samples, each with its ridge, (size, output)."""
    if np.isinf(time):
        n, delta = np.asarray(sizes, float), np.asarray(ridges, float)
        return MeanSquares(*medium.of_regression(pool, n, delta))
    each = []
    for n, ridge in zip(sizes, ridges, strict=True):
        check()
        each.append(mean_squares(pool, n, ridge, time))
    return MeanSquares(*(np.array(errors) for errors in zip(*each, strict=True)))


def contour(time: float, nodes: int = NODES) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes s_k of the upper half-plane, and the weights of F in ∮ ds e^{st}F(s)/(2πi s).

    With those of the lower half-plane, their conjugates, the integral of a real transform is
    2 Re Σ weights F(s).
    """
    spacing = 3.0 / nodes
    u = (np.arange(nodes) + 0.5) * spacing
    scale = np.pi * nodes / (12 * time)
    s, slope = scale * (1 + 1j * u) ** 2, 2j * scale * (1 + 1j * u)
    return s, np.exp(s * time) * slope * spacing / (2j * np.pi) / s
