"""Steps of a run: those of gradient descent, or small ones that approach gradient flow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.runs import Run


class Schedule(NamedTuple):
    """The steps of a sweep.

    Attributes
    ----------
    rates
        η₀ of each step, the last entry's included; what follows is not used.
    entries
        Steps before which the trajectory's entries are read.
    """

    rates: np.ndarray
    entries: np.ndarray


def course(run: Run) -> np.ndarray:
    """Return η₀ × time between entries: runs that agree in the first of them agree until there."""
    return run.rates if run.steps is not None else run.optimizer.lr * np.diff(run.times)


def descent(run: Run) -> Schedule:
    """Return the steps of gradient descent."""
    entries = np.arange(len(run.times))
    return Schedule(np.append(run.rates, 0.0), entries)


def flow(run: Run, longest: float, halvings: int, spare: int = 0) -> Schedule:
    """Return steps for gradient flow, equal ones between two entries.

    Parameters
    ----------
    run
        The run, with its times.
    longest
        Bound on the length of a step, in units of η₀ × time, before it is halved.
    halvings
        How many times every step is cut in two.
    spare
        Halvings for which room is left, so that one program serves them all.
    """
    spans = run.optimizer.lr * np.diff(run.times)
    counts = np.maximum(np.ceil(spans / longest), 1).astype(int)
    counts, most = counts * 2**halvings, counts * 2 ** max(spare, halvings)
    entries = np.concatenate([[0], np.cumsum(counts)])
    rates = np.zeros(most.sum() + 1)
    rates[: entries[-1]] = np.repeat(spans / counts, counts)
    return Schedule(rates, entries)


def extrapolated(levels: Sequence[Any]) -> Any:
    """Return the limit of vanishing steps from trees for steps that are halved each time.

    Steps of gradient descent miss gradient flow by powers h, h², … of their length; Richardson's
    table removes one power for each halving.
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
