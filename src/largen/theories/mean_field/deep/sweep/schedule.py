"""The steps of a run: those of gradient descent, or small ones that approach gradient flow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.runs import Run


class Schedule(NamedTuple):
    """The steps of a sweep."""

    # η₀ of each step, including one for the last time index; later values are not used.
    rates: np.ndarray
    steps_at_times: np.ndarray  # for each time index, the step before which its outputs are read


def course(run: Run) -> np.ndarray:
    """Return η₀ × time between time indices; a run extends another if its first values agree."""
    return run.rates if run.steps is not None else run.optimizer.lr * np.diff(run.times)


def descent(run: Run) -> Schedule:
    """Return the steps of gradient descent."""
    steps_at_times = np.arange(len(run.times))
    return Schedule(np.append(run.rates, 0.0), steps_at_times)


def flow(run: Run, longest: float, halvings: int, spare: int = 0) -> Schedule:
    """Return steps for gradient flow, of equal length between successive time indices.

    ``longest``: bound on the length of a step, in units of η₀ × time, before it is halved;
    ``halvings``: the number of times that every step is halved; ``spare``: the number of further
    halvings for which arrays have room, so that one program serves all.
    """
    spans = run.optimizer.lr * np.diff(run.times)
    counts = np.maximum(np.ceil(spans / longest), 1).astype(int)
    counts, most = counts * 2**halvings, counts * 2 ** max(spare, halvings)
    steps_at_times = np.concatenate([[0], np.cumsum(counts)])
    rates = np.zeros(most.sum() + 1)
    rates[: steps_at_times[-1]] = np.repeat(spans / counts, counts)
    return Schedule(rates, steps_at_times)


def extrapolate(levels: Sequence[Any]) -> Any:
    """Return the limit of vanishing steps, from results with successively halved steps.

    Gradient descent deviates from gradient flow by powers h, h², … of the step length; Richardson
    extrapolation removes one power for each halving.
    """
    column = list(levels)
    power = 1
    while len(column) > 1:
        factor = 2.0**power
        column = [
            jax.tree.map(lambda a, b, q=factor: b + (b - a) / (q - 1), coarse, fine)
            for coarse, fine in pairwise(column)
        ]
        power += 1
    return column[0]
