"""Learning curves measured by regression on random subsets of a pool."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from largen.interrupts import check
from largen.scalars import random_key


class Measured(NamedTuple):
    """Means and standard errors over subsets, (time, size, output)."""

    test: np.ndarray
    test_error: np.ndarray
    train: np.ndarray
    train_error: np.ndarray


def generator(key: Any) -> np.random.Generator:
    """Return a generator of NumPy from a JAX key or an integer."""
    return np.random.default_rng(np.asarray(jax.random.key_data(random_key(key))))


def measure(
    # kernel, y: (sample, sample) and (sample, output).
    kernel: np.ndarray,
    y: np.ndarray,
    # sizes, times: numbers of training samples, less than those of the pool; times of gradient
    # flow, possibly infinite.
    sizes: list[int],
    times: Any,
    # ridge, noise: δ, and the variance of noise that is added to all targets in each draw.
    ridge: float,
    noise: float,
    draws: int,  # number of subsets of each size
    rng: np.random.Generator,
) -> Measured:
    """Train on subsets drawn without replacement; test on all other samples of the pool."""
    times, (M, outputs) = np.atleast_1d(times), y.shape
    squares = np.empty((2, draws, len(times), len(sizes), outputs))
    for i in range(draws):
        for j, n in enumerate(sizes):
            check()
            order = rng.permutation(M)
            targets = y + np.sqrt(noise) * rng.standard_normal(y.shape) if noise else y
            inside, outside = order[:n], order[n:]
            values, vectors = np.linalg.eigh(kernel[np.ix_(inside, inside)])
            seen = vectors.T @ targets[inside]
            cross = kernel[np.ix_(outside, inside)] @ vectors
            for k, time in enumerate(times):
                g = _gained(values, time / n, ridge)[:, None] * seen
                squares[0, i, k, j] = np.mean((targets[outside] - cross @ g) ** 2, axis=0)
                train = seen - values[:, None] * g
                squares[1, i, k, j] = np.mean((vectors @ train) ** 2, axis=0)
    error = np.full(squares.shape[2:], np.nan)
    errors = squares.std(axis=1, ddof=1) / np.sqrt(draws) if draws > 1 else (error, error)
    return Measured(squares[0].mean(0), errors[0], squares[1].mean(0), errors[1])


def _gained(values: np.ndarray, time: float, ridge: float) -> np.ndarray:
    """Return (1 − e^{−(w + δ)t/n})/(w + δ), the pseudo-inverse at infinite time."""
    least = len(values) * np.finfo(float).eps * max(values[-1], 0.0)
    values = np.where(values > least, values, 0.0) + ridge
    usable = values > 0
    safe = np.where(usable, values, 1.0)
    if np.isinf(time):
        return np.where(usable, 1 / safe, 0.0)
    return np.where(usable, -np.expm1(-safe * time) / safe, time)
