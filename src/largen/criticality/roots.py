"""All roots of a smooth function on an interval, double roots included.

Between two neighbouring roots of g'' the slope g' is monotone, so that it has at most one root
there; between two neighbouring roots of g' the same holds of g. A root of g' where g vanishes, too,
is a double root, which a search for changes of sign alone would miss.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq


class Root(NamedTuple):
    """A root, and whether g touches zero there without a change of sign."""

    place: float
    double: bool


def sign_changes(f: Callable[[float], float], x: np.ndarray, y: np.ndarray) -> list[float]:
    """Return where f changes sign, given its values y at ascending points x; 0 has no sign."""
    signed = np.flatnonzero(y)
    roots = []
    for i, j in pairwise(signed):
        if y[i] * y[j] < 0:
            low, high = f(x[i]), f(x[j])
            if low * high < 0:
                roots.append(float(brentq(f, x[i], x[j], xtol=1e-14 * x[j], rtol=1e-14)))  # type: ignore[arg-type]
            else:  # the sign differs only by rounding of the grid's values
                roots.append(float(x[i] if abs(low) < abs(high) else x[j]))
    return roots


def all_roots(
    derivatives: Callable[[np.ndarray], np.ndarray],  # x -> (g, g', g''), (3, *x)
    # x, known: the grid, and these three on it.
    x: np.ndarray,
    known: np.ndarray,
    tolerance: float,  # the largest |g|, relative to x, at which a double root (g' = 0) is accepted
) -> list[Root]:
    """Return all roots of g between the ends of a grid that resolves g''."""

    def component(k: int) -> Callable[[float], float]:
        return lambda at: float(derivatives(np.array([at]))[k, 0])

    # If g is linear up to rounding, g'' has no roots to search for.
    straight = np.abs(known[2]) * x < 1e-11 * (1 + np.abs(known[1]))
    bends = sign_changes(component(2), x, np.where(straight, 0, known[2]))
    x, known = _with(derivatives, x, known, bends)
    turns = sign_changes(component(1), x, known[1])
    x, known = _with(derivatives, x, known, turns)
    double = [at for at in turns if abs(component(0)(at)) <= tolerance * at]
    # Near a double root |g| is below the tolerance, so that roots there are artefacts.
    bend = [max(abs(component(2)(at)), 1e-300) for at in double]
    near = [2 * np.sqrt(2 * tolerance * at / each) for at, each in zip(double, bend, strict=True)]

    def apart(at: float) -> bool:
        return all(abs(at - d) > width for d, width in zip(double, near, strict=True))

    single = [at for at in sign_changes(component(0), x, known[0]) if apart(at)]
    return sorted([Root(at, True) for at in double] + [Root(at, False) for at in single])


def _with(derivatives, x: np.ndarray, known: np.ndarray, extra: list[float]):
    if not extra:
        return x, known
    new = np.array(extra)
    places = np.concatenate([x, new])
    order = np.argsort(places)
    return places[order], np.concatenate([known, derivatives(new)], axis=1)[:, order]
