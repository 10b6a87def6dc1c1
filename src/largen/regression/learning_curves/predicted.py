"""Predicted curves, with standard errors from halves of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from largen.interrupts import check
from largen.regression.learning_curves.differing import Ratios, ratios
from largen.regression.learning_curves.extrapolation import FEWEST, anchors, power_law
from largen.regression.learning_curves.mean_squares import MeanSquares, mean_squares
from largen.regression.learning_curves.pool import Pool, pool_of

_HALVINGS = 3  # ways in which samples are halved
_MANY = 2000  # samples from which two are enough, for the sake of time


class Predicted(NamedTuple):
    """Errors outside of the training set with standard errors, and on it, (time, size, output)."""

    test: np.ndarray
    test_error: np.ndarray
    train: np.ndarray


def predict(
    pool: Pool,
    kernel: np.ndarray,
    y: np.ndarray,
    sizes: list[int],
    times: np.ndarray,
    ridge: float,
    rng: np.random.Generator,
) -> Predicted:
    """Return the curve of a pool, whose kernel (sample, sample) and targets are given as well.

    A mean over M samples has the variance of half the difference of the means of two halves. Where
    the curve is extrapolated, the squared distance of the halves' mean from it is added.
    """
    M = pool.size
    beyond = (np.asarray(sizes) >= M)[:, None]
    needed = {n for n in sizes if n < M}
    if beyond.any():
        needed |= set(anchors(M))
    (own,) = rng.spawn(1)
    factors = ratios(pool, kernel, y, sorted(needed), times, ridge, own)
    test, train = _curve(pool, sizes, times, ridge, factors)
    if M < 2 * FEWEST:
        return Predicted(test, np.full_like(test, np.nan), train)
    square = np.zeros_like(test)
    halvings = halvings_of(M)
    for pair in halves(pool, kernel, y, rng):
        first, second = (_curve(half, sizes, times, ridge, factors)[0] for half in pair)
        square += (first - second) ** 2 / 4 / halvings
        square += (first / 2 + second / 2 - test) ** 2 / halvings * beyond
    return Predicted(test, np.sqrt(square), train)


def halvings_of(M: int) -> int:
    """Return in how many ways M samples are halved."""
    return _HALVINGS if M < _MANY else 2


def halves(
    pool: Pool, kernel: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[Pool, Pool]]:
    """Yield random halves of a pool."""
    M = pool.size
    for _ in range(halvings_of(M)):
        order = rng.permutation(M)
        first, second = (
            pool_of(kernel[np.ix_(rows, rows)], y[rows], pool.noise)
            for rows in (order[: M // 2], order[M // 2 :])
        )
        yield first, second


def _curve(
    pool: Pool, sizes: list[int], times: np.ndarray, ridge: float, factors: Ratios
) -> tuple[np.ndarray, np.ndarray]:
    """Return errors outside and on the training set, (time, size, output)."""
    shape = (len(times), len(sizes), pool.amplitudes.shape[1])
    test, train = np.empty(shape), np.full(shape, np.nan)
    for i, time in enumerate(times):

        def errors(n: int, i: int = i, time: float = time) -> MeanSquares:
            check()
            found = zip(mean_squares(pool, n, ridge, time), factors.at(n, i), strict=True)
            return MeanSquares(*(error * factor for error, factor in found))

        for j, n in enumerate(sizes):
            if n < pool.size:
                test[i, j], train[i, j] = errors(n)
        if max(sizes) >= pool.size:
            at = anchors(pool.size)
            law = power_law(at, np.array([errors(n).outside for n in at]))
            for j, n in enumerate(sizes):
                if n >= pool.size:
                    test[i, j] = law.at(n)
    return test, train
