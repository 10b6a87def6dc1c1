"""The numbers of neurons of the hidden layers.

Layers of unequal widths share arrays of the length of the widest layer, and occupy the first
neurons; on the others all variables are 0, activations included. Averages are per unit of width,
1/N times sums, in all layers; for a layer of rN neurons this is r times the mean.
"""

from __future__ import annotations

from math import lcm

import numpy as np

from largen.errors import InvalidInput
from largen.theories.chains.problem import Problem


def counts(problem: Problem, unit: int) -> tuple[int, ...]:
    """Return the number of neurons of each hidden layer in a network of width N."""
    return tuple(int(ratio * unit) for ratio in problem.ratios)


def unit_for(problem: Problem, neurons: int) -> int:
    """Return the smallest width at which every hidden layer has at least so many neurons."""
    step = lcm(*(ratio.denominator for ratio in problem.ratios))
    return -(-neurons // (step * min(problem.ratios))) * step


def check_divisible(problem: Problem, unit: int, parts: int = 1, name: str = "particles") -> None:
    """Check that all layers have integer widths at a unit of width, and at a fraction of it.

    ``name`` is the argument that the message names.
    """
    step = parts * lcm(*(ratio.denominator for ratio in problem.ratios))
    if problem.unequal and unit % step:
        raise InvalidInput(
            f"{name}: {unit} times the ratios {', '.join(map(str, problem.ratios))} of widths "
            f"are no integers; take a multiple of {step}."
        )


def live(problem: Problem, unit: int, dtype) -> np.ndarray | None:
    """Return a mask, 1 where a layer has neurons, ``(layer, n)``; None if all layers are full."""
    if not problem.unequal:
        return None
    own = np.array(counts(problem, unit))
    return (np.arange(own.max()) < own[:, None]).astype(dtype)


def pad_neurons(rows: np.ndarray, neurons: int) -> np.ndarray:
    """Return rows padded with zeros for the neurons that a layer does not have.

    Patches of several taps are longer than any layer, and are returned unchanged.
    """
    return np.pad(rows, ((0, 0), (0, max(neurons - rows.shape[1], 0))))
