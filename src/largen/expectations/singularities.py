"""Search by bisection for the points where a function of one variable is not smooth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# No kink given as a short decimal coincides with these ends or with midpoints of the bisection.
_ENDS = (-48.017312934, 48.028541217)
_START = 96  # initial number of intervals
_NODES = 16  # nodes on each interval
_AT_ONCE = 128  # intervals that are sampled in one call, which all have one shape
_SMOOTH = 1e-11  # relative error below which a polynomial reproduces the function
_SHORT = 1e-4  # length of intervals that count as kinks if the function is not smooth on them
_PLACED = 1e-14


def singular_places(
    sample: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], most: int
) -> tuple[float, ...] | None:
    """Return the points in (−48, 48) where φ or φ' is not smooth, or None for more than ``most``.

    Intervals on which a polynomial of degree 15 does not reproduce φ and φ' are halved until they
    are far shorter than any feature. Very sharp features count as kinks. ``sample``, x -> (φ(x),
    φ'(x)), is called with arrays of one shape only.
    """
    edges = np.linspace(*_ENDS, _START + 1)
    intervals = np.stack([edges[:-1], edges[1:]], axis=1)
    brackets: list[tuple[float, float]] = []  # place, half length
    size = None
    while len(intervals):
        rough, sizes = _not_smooth(sample, intervals, size)
        size = sizes if size is None else size
        intervals = intervals[rough]
        if len(intervals) > _AT_ONCE:
            return None
        middle, length = intervals.mean(axis=1), np.diff(intervals, axis=1)[:, 0]
        short = length < _SHORT
        brackets += zip(middle[short], length[short], strict=True)
        longer = length > _PLACED * np.maximum(1, np.abs(middle))
        (low, high), middle = intervals[longer].T, middle[longer]
        intervals = np.stack([[*low, *middle], [*middle, *high]], axis=1)
    places = _clusters(brackets)
    return places if len(places) <= most else None


def _not_smooth(sample, intervals, size):
    """Return on which intervals φ or φ' is not a polynomial, and the maxima of |φ| and |φ'|."""
    # Both ends are nodes: a jump between an end and the first node inside would not be seen.
    angles = np.pi * np.arange(_NODES) / (_NODES - 1)
    nodes = np.cos(angles)
    high = np.linalg.inv(np.cos(np.outer(angles, np.arange(_NODES))))[-3:]
    middle, half = intervals.mean(axis=1)[:, None], np.diff(intervals, axis=1) / 2
    x = middle + half * nodes
    padded = np.zeros((-(-len(x) // _AT_ONCE) * _AT_ONCE, _NODES))
    padded[: len(x)] = x
    both = [
        np.concatenate(parts)[: len(x)]
        for parts in zip(*map(sample, np.split(padded, len(padded) // _AT_ONCE)), strict=True)
    ]
    size = [np.max(np.abs(f)) for f in both] if size is None else size
    rough = np.zeros(len(x), bool)
    for f, largest in zip(both, size, strict=True):
        left = np.max(np.abs(f @ high.T), axis=1)
        scale = np.maximum(np.max(np.abs(f), axis=1), 1e-3 * largest)
        rough |= ~(left <= _SMOOTH * scale)
    return rough, size


def _clusters(intervals) -> tuple[float, ...]:
    """Return one point for each group of neighbouring intervals, from the shortest of them."""
    places: list[tuple[float, float]] = []
    for place, length in sorted(intervals):
        if places and place - places[-1][0] < 2 * _SHORT:
            if length < places[-1][1]:
                places[-1] = (place, length)
        else:
            places.append((place, length))
    # Points are rounded to short decimals where these are compatible with the interval.
    nearest = [round(float(place), 6) for place, _ in places]
    return tuple(
        near if abs(place - near) <= 4 * max(length, 1e-14) else float(place)
        for near, (place, length) in zip(nearest, places, strict=True)
    )
