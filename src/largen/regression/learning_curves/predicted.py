"""Predicted curves, with standard errors from halves of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from largen.interrupts import check
from largen.regression.learning_curves.blocks import Ratios, ratios
from largen.regression.learning_curves.extrapolation import FEWEST, anchors, power_law
from largen.regression.learning_curves.mean_squares import at_sizes
from largen.regression.learning_curves.pool import Pool, pool_of

_HALVINGS = 3  # ways in which samples are halved
_MANY = 2000  # samples from which two are enough, and for curves fifths, for the sake of time
PARTS = 5


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

    A mean over M samples has the variance of means of disjoint parts over the number of these.
    Where the curve is extrapolated, the squared distance of the parts' mean from it is added.
    """
    M = pool.size
    beyond = (np.asarray(sizes) >= M)[:, None]
    needed = {n for n in sizes if n < M} | (set(anchors(M)) if beyond.any() else set())
    (own,) = rng.spawn(1)
    factors = ratios(pool, kernel, y, needed, times, ridge, own)
    test, train = of_pool(pool, sizes, times, ridge, factors)
    if M < 2 * FEWEST:
        return Predicted(test, np.full_like(test, np.nan), train)
    ways = halves(pool, kernel, y, rng) if M < _MANY else [_parts(pool, kernel, y, rng, PARTS)]
    square = []
    for parts in ways:
        each = np.array([of_pool(part, sizes, times, ridge, factors)[0] for part in parts])
        square.append(each.var(axis=0, ddof=1) / len(each) + (each.mean(0) - test) ** 2 * beyond)
    square = np.mean(square, axis=0) + (test * factors.errors(sizes)) ** 2
    return Predicted(test, np.sqrt(square), train)


def halvings_of(M: int) -> int:
    """Return in how many ways M samples are halved."""
    return _HALVINGS if M < _MANY else 2


def halves(
    pool: Pool, kernel: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[Pool, Pool]]:
    """Yield random halves of a pool."""
    for _ in range(halvings_of(pool.size)):
        first, second = _parts(pool, kernel, y, rng, 2)
        yield first, second


def _parts(
    pool: Pool, kernel: np.ndarray, y: np.ndarray, rng: np.random.Generator, count: int
) -> Iterator[Pool]:
    """Yield disjoint random parts of a pool, one after the other."""
    for rows in np.array_split(rng.permutation(pool.size), count):
        yield pool_of(kernel[np.ix_(rows, rows)], y[rows], pool.noise)


def of_pool(
    pool: Pool, sizes: list[int], times: np.ndarray, ridge: float, factors: Ratios
) -> tuple[np.ndarray, np.ndarray]:
    """Return errors outside and on the training set, (time, size, output)."""
    M = pool.size
    shape = (len(times), len(sizes), pool.amplitudes.shape[1])
    test, train = np.empty(shape), np.full(shape, np.nan)
    within, at = [n for n in sizes if n < M], anchors(M)
    own = sorted({*within, *(at if max(sizes) >= M else ())})
    inside = [own.index(n) for n in within]
    for i, time in enumerate(times):
        check()
        found = zip(at_sizes(pool, own, [ridge] * len(own), time), factors.at(own, i), strict=True)
        outside, seen = (errors * factor for errors, factor in found)
        test[i, : len(within)], train[i, : len(within)] = outside[inside], seen[inside]
        if len(within) < len(sizes):
            law = power_law(at, outside[[own.index(n) for n in at]])
            test[i, len(within) :] = [law.at(n) for n in sizes[len(within) :]]
    return test, train
