"""Windows of steps over which losses are averaged: a few of equal width in log, or of ten steps."""

from __future__ import annotations

import numpy as np

SHORT = 10  # steps of the shortest window of a run that is watched
SHARE = 0.05  # of the steps so far, the width of later ones


def log_edges(count: int, windows: int) -> np.ndarray:
    """Return edges of windows of equal width in log, among entries 0 … count.

    Entries before a hundredth of all belong to none. An axis of up to twice as many entries stays
    as it is.

    >>> log_edges(200, 8)
    array([  2,   4,   6,  11,  20,  36,  63, 112, 200])
    """
    if count <= 2 * windows:
        return np.arange(count + 1)
    places = np.geomspace(max(1.0, count / 100), count, windows + 1)
    return np.unique(np.round(places).astype(int))


def watch_edges(steps: np.ndarray) -> np.ndarray:
    """Return edges of the windows in which a run is watched, among the entries at some steps.

    Ten steps, or a twentieth of those so far if that is more; single entries if they are not of
    every step.

    >>> watch_edges(np.arange(1, 46))
    array([ 0, 10, 20, 30, 40, 45])
    """
    if len(steps) < SHORT or not np.array_equal(steps, np.arange(1, len(steps) + 1)):
        return np.arange(len(steps) + 1)
    edges = [0]
    while edges[-1] < len(steps):
        edges.append(min(edges[-1] + max(SHORT, int(SHARE * edges[-1])), len(steps)))
    return np.array(edges)


def averaged(losses: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the means (…, window) of losses (…, entry) between edges."""
    sums = np.add.reduceat(losses, edges[:-1], axis=-1, dtype=float)
    if edges[-1] < losses.shape[-1]:
        sums[..., -1] = losses[..., edges[-2] : edges[-1]].sum(-1)
    return sums / np.diff(edges)
