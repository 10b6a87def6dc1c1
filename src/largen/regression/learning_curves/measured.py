"""Learning curves measured by regression on random subsets of a pool."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from largen.interrupts import check
from largen.regression.learning_curves.inputs import Entries, Matrix
from largen.regression.learning_curves.pool import Pool
from largen.scalars import random_key


class Measured(NamedTuple):
    """Means and standard errors over subsets, (time, size[, width], output)."""

    test: np.ndarray
    test_error: np.ndarray
    train: np.ndarray
    train_error: np.ndarray


def generator(key: Any) -> np.random.Generator:
    """Return a generator of NumPy from a JAX key or an integer."""
    return np.random.default_rng(np.asarray(jax.random.key_data(random_key(key))))


def measure(
    kernel: Entries,  # (sample, sample)
    # y: (sample, output).
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
            values, vectors = np.linalg.eigh(kernel.within(inside))
            seen = vectors.T @ targets[inside]
            cross = kernel.columns(inside)[outside] @ vectors
            for k, time in enumerate(times):
                g = gained(values, time / n, ridge)[:, None] * seen
                squares[0, i, k, j] = np.mean((targets[outside] - cross @ g) ** 2, axis=0)
                train = seen - values[:, None] * g
                squares[1, i, k, j] = np.mean((vectors @ train) ** 2, axis=0)
    return _over_draws(squares)


def measure_features(
    pool: Pool,
    y: np.ndarray,  # (sample, output)
    sizes: list[int],
    widths: list[int],
    times: np.ndarray,
    ridge: float,
    draws: int,
    rng: np.random.Generator,
) -> Measured:
    """Train on subsets with Gaussian features of the pool's kernel, (time, size, width, output)."""
    root, columns = pool.vectors * np.sqrt(pool.values), []
    for width in widths:
        found = []
        for _ in range(draws):
            features = root @ rng.standard_normal((pool.size, width)) / np.sqrt(width)
            kernel = Matrix(features @ features.T)
            one = measure(kernel, y, sizes, times, ridge, pool.noise, 1, rng)
            found.append((one.test, one.train))
        columns.append(np.moveaxis(np.array(found), 0, 1))
    squares = np.stack(columns, axis=4)
    return _over_draws(squares)


def _over_draws(squares: np.ndarray) -> Measured:
    """Return means and standard errors of mean squares (test and train, draw, ...)."""
    draws, error = squares.shape[1], np.full(squares.shape[2:], np.nan)
    errors = squares.std(axis=1, ddof=1) / np.sqrt(draws) if draws > 1 else (error, error)
    return Measured(squares[0].mean(0), errors[0], squares[1].mean(0), errors[1])


def gained(values: np.ndarray, time: float, ridge: float) -> np.ndarray:
    """Return (1 − e^{−(w + δ)t/n})/(w + δ), the pseudo-inverse at infinite time."""
    least = len(values) * np.finfo(float).eps * max(values[-1], 0.0)
    values = np.where(values > least, values, 0.0) + ridge
    usable = values > 0
    safe = np.where(usable, values, 1.0)
    if np.isinf(time):
        return np.where(usable, 1 / safe, 0.0)
    return np.where(usable, -np.expm1(-safe * time) / safe, time)
