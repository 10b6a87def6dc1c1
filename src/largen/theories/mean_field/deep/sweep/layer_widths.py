"""How many neurons the hidden layers have.

Layers of unequal widths share arrays that are as long as the widest, and live on the first neurons
of them: on the others everything is 0, activations included. Averages are over the unit of width,
1/N times sums, in all of them; of a layer of rN neurons that is r times the mean.
"""

from __future__ import annotations

from math import lcm

import numpy as np

from largen.errors import InvalidInput
from largen.theories.chains.problem import Problem


def counts(problem: Problem, unit: int) -> tuple[int, ...]:
    """Return how many neurons each hidden layer has in a network of width N."""
    return tuple(int(ratio * unit) for ratio in problem.ratios)


def unit_for(problem: Problem, neurons: int) -> int:
    """Return the smallest width at which every hidden layer has at least so many neurons."""
    step = lcm(*(ratio.denominator for ratio in problem.ratios))
    return -(-neurons // (step * min(problem.ratios))) * step


def check_divisible(problem: Problem, unit: int, parts: int = 1) -> None:
    """Check that ratios give integers at a width, and at a part of it.

    Raises
    ------
    InvalidInput
        If they do not.
    """
    step = parts * lcm(*(ratio.denominator for ratio in problem.ratios))
    if problem.unequal and unit % step:
        raise InvalidInput(
            f"particles: {unit} times the ratios {', '.join(map(str, problem.ratios))} of widths "
            f"are no integers; take a multiple of {step}."
        )


def live(problem: Problem, unit: int, dtype) -> np.ndarray | None:
    """Return 1 where a layer has neurons and 0 elsewhere, ``(layer, n)``; None without gaps."""
    if not problem.unequal:
        return None
    own = np.array(counts(problem, unit))
    return (np.arange(own.max()) < own[:, None]).astype(dtype)


def padded(rows: np.ndarray, neurons: int) -> np.ndarray:
    """Return rows with zeros behind, for the neurons that a layer does not have.

    Patches of several taps are longer than any layer, and stay.
    """
    return np.pad(rows, ((0, 0), (0, max(neurons - rows.shape[1], 0))))
