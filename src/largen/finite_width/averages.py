"""Averages of four values of φ and φ' at up to four inputs, which set the noise of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from largen.errors import NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import kinks_of, values
from largen.finite_width.grids import Grid, grid_for
from largen.finite_width.orthants import HomogeneousAverages, slopes_of
from largen.finite_width.pairs import hermite

_AT_ONCE = 4096  # nodes
_SINGULAR = 1e-8  # of the smallest eigenvalue of correlations


class Fourth(NamedTuple):
    """Averages over a layer's neurons; Greek indices are inputs, and matrices are over pairs."""

    # values, slopes, mixed: E[φ_αφ_β φ_γφ_δ], E[φ'_αφ'_β φ'_γφ'_δ] and E[φ_αφ_β φ'_γφ'_δ], (pair,
    # pair).
    values: np.ndarray
    slopes: np.ndarray
    mixed: np.ndarray
    crossed: np.ndarray  # E[φ_γφ'_α φ'_βφ_δ], (α, γ, β, δ)


class Third(NamedTuple):
    """Averages of the products s = φφ that only the third cumulant needs."""

    central: np.ndarray  # E[(s_a − E s_a)(s_b − E s_b)(s_c − E s_c)], (pair, pair, pair)
    change: np.ndarray  # ∂Cov(s_b, s_c)/∂S_a, (pair a, pair b, pair c)


def pairs_of(inputs: int) -> list[tuple[int, int]]:
    """Return all pairs α ≤ β in the order of the upper triangle."""
    return [(i, j) for i in range(inputs) for j in range(i, inputs)]


def fourth_averages(
    phi: ActivationFunction, kernel: np.ndarray, report: Callable[[int], object] = bool
) -> Fourth:
    """Return the averages: exact for φ of degree one, else from a grid for any four inputs."""
    slopes = slopes_of(phi) if kinks_of(phi) else None
    if slopes is not None:
        return _exact_fourth(HomogeneousAverages(slopes, kernel))
    P = len(kernel)
    index = {pair: n for n, pair in enumerate(pairs_of(P))}
    M = len(index)
    square = np.zeros((3, M, M))
    averages = Fourth(square[0], square[1], square[2], np.zeros((P,) * 4))
    for done, chosen in enumerate(combinations(range(P), min(P, 4)), 1):
        inputs = list(chosen)
        n = len(inputs)
        grid = grid_for(phi, kernel[np.ix_(inputs, inputs)])
        diagonal = pairs_of(n)
        m = len(diagonal)
        one, other = (np.array(each) for each in zip(*diagonal, strict=True))
        row, column = (each.ravel() for each in np.indices((n, n)))
        total = np.zeros((2 * m + n * n,) * 2)
        for points, weights in in_parts(grid):
            value, slope = (f.T for f in values(phi, points))
            # s = φφ, t = φ'φ' and φ'_α φ_γ, with all products of two of them from one product.
            features = np.concatenate(
                [value[one] * value[other], slope[one] * slope[other], slope[row] * value[column]]
            )
            total += (features * weights) @ features.T
        into = np.ix_(*[[index[inputs[i], inputs[j]] for i, j in diagonal]] * 2)
        averages.values[into] = total[:m, :m]
        averages.mixed[into] = total[:m, m : 2 * m]
        averages.slopes[into] = total[m : 2 * m, m : 2 * m]
        averages.crossed[np.ix_(*[inputs] * 4)] = total[2 * m :, 2 * m :].reshape((n,) * 4)
        report(done)
    return averages


def third_averages(phi: ActivationFunction, kernel: np.ndarray) -> Third:
    """Return the averages of three products, for up to four inputs."""
    slopes = slopes_of(phi) if kinks_of(phi) else None
    if slopes is not None:
        return _exact_third(HomogeneousAverages(slopes, kernel))
    grid = grid_for(phi, kernel, 6)
    pairs = pairs_of(len(kernel))
    M = len(pairs)
    one, other = (np.array(each) for each in zip(*pairs, strict=True))
    upper = np.triu_indices(M)
    mean, total = _mean_products(phi, grid, one, other), np.zeros((2 * M, len(upper[0])))
    for points, weights in in_parts(grid):
        value = values(phi, points)[0].T
        # About the mean, so that nothing cancels: Cov(s_b, s_c) changes as E[s̃_b s̃_c] at fixed
        # mean.
        centred = value[one] * value[other] - mean[:, None]
        factors = np.concatenate([centred, scores_of(Grid(points, weights), kernel).T])
        total += (factors * weights) @ (centred[upper[0]] * centred[upper[1]]).T
    whole = np.zeros((2 * M, M, M))
    whole[:, upper[0], upper[1]] = whole[:, upper[1], upper[0]] = total
    return Third(whole[:M], whole[M:])


def covariance_along(
    phi: ActivationFunction, before: np.ndarray, now: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Cov(s_b, s_a) of pairs b of an earlier and a of a later layer, (b, a).

    And its derivatives in the later covariance, (c, b, a). ``before``, ``now``: covariances of the
    stream, (P, P); between the two layers it has the covariance of the earlier one.
    """
    P = len(now)
    joint = np.block([[before, before], [before, now]])
    scale = np.sqrt(np.diagonal(joint))
    if np.linalg.eigvalsh(joint / np.outer(scale, scale))[0] < _SINGULAR:
        raise NumericalFailure(
            "inputs coincide, or a residual branch adds next to nothing to the stream, so that "
            "its derivatives are not resolved. Leave such inputs or branches out."
        )
    pairs = pairs_of(2 * P)
    early = [n for n, (_, j) in enumerate(pairs) if j < P]
    late = [n for n, (i, _) in enumerate(pairs) if i >= P]
    slopes = slopes_of(phi) if kinks_of(phi) else None
    if slopes is not None:
        averages = HomogeneousAverages(slopes, joint)
        mean = np.array([averages.mean([*pair]) for pair in pairs])
        second = _exact_fourth(averages).values - np.outer(mean, mean)
        return second[np.ix_(early, late)], _exact_third(averages).change[np.ix_(late, early, late)]
    grid = grid_for(phi, joint)
    one, other = (np.array(each) for each in zip(*pairs, strict=True))
    mean = _mean_products(phi, grid, one, other)
    total = np.zeros((1 + len(late), len(early) * len(late)))
    for points, weights in in_parts(grid):
        value = values(phi, points)[0].T
        centred = value[one] * value[other] - mean[:, None]
        products = (centred[early][:, None] * centred[late]).reshape(-1, len(weights))
        factors = np.vstack(
            [np.ones(len(weights)), scores_of(Grid(points, weights), joint).T[late]]
        )
        total += (factors * weights) @ products.T
    whole = total.reshape(1 + len(late), len(early), len(late))
    return whole[0], whole[1:]


def _mean_products(
    phi: ActivationFunction, grid: Grid, one: np.ndarray, other: np.ndarray
) -> np.ndarray:
    """Return E φφ of pairs of inputs, (pair,)."""
    mean = np.zeros(len(one))
    for points, weights in in_parts(grid):
        value = values(phi, points)[0].T
        mean += (value[one] * value[other]) @ weights
    return mean


def in_parts(grid: Grid) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield points and weights in parts whose features fit into a processor's cache."""
    for first in range(0, len(grid.weights), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        yield grid.points[part], grid.weights[part]


def _exact_fourth(averages: HomogeneousAverages) -> Fourth:
    P = averages.inputs
    pairs = pairs_of(P)

    def table(entry: Callable[[list[int], list[int]], float]) -> np.ndarray:
        return np.array([[entry([*a], [*b]) for b in pairs] for a in pairs])

    crossed = np.zeros((P,) * 4)
    for a, c, b, d in np.ndindex(crossed.shape):
        crossed[a, c, b, d] = averages.mean([c, d], [a, b])
    return Fourth(
        values=table(lambda a, b: averages.mean(a + b)),
        slopes=table(lambda a, b: averages.mean([], a + b)),
        mixed=table(averages.mean),
        crossed=crossed,
    )


def _exact_third(averages: HomogeneousAverages) -> Third:
    pairs = [[*pair] for pair in pairs_of(averages.inputs)]
    M = len(pairs)
    mean = np.array([averages.mean(a) for a in pairs])
    slope = np.array([[averages.change(b, *a) for b in pairs] for a in pairs])  # (in, of)
    second = np.array([[averages.mean(a + b) for b in pairs] for a in pairs])
    central, change = np.zeros((M,) * 3), np.zeros((M,) * 3)
    for a, b, c in np.ndindex(central.shape):
        if b <= c:
            raised = averages.change(pairs[b] + pairs[c], *pairs[a])
            raised -= mean[c] * slope[a, b] + mean[b] * slope[a, c]
            change[a, b, c] = change[a, c, b] = raised
            third = averages.mean(pairs[a] + pairs[b] + pairs[c]) + 2 * mean[a] * mean[b] * mean[c]
            third -= mean[a] * second[b, c] + mean[b] * second[a, c] + mean[c] * second[a, b]
            central[a, b, c] = central[a, c, b] = third
    return Third(central, change)


def scores_of(grid: Grid, kernel: np.ndarray) -> np.ndarray:
    """Return ∂log n(u; S)/∂S_a at the nodes, (node, pair): ∂E[f]/∂S_a = E[f · score]."""
    inverse = np.linalg.inv(kernel)
    y = grid.points @ inverse
    return np.stack(
        [hermite(y, inverse, (i, j)) / (2 if i == j else 1) for i, j in pairs_of(len(kernel))],
        axis=1,
    )
