"""Which method solves a problem, with how many neurons, and in how much memory.

============  =================================================================================
``"closed"``  the closed equations of linear networks: exact
``"sweep"``   random matrices by the directions that they were asked in: little of a shift of order
              1/N (for four linear layers, after three steps, 0.7/N in outputs of order one);
              pays as long as directions are fewer than neurons
``"dense"``   random matrices that are stored, at two widths, extrapolated in 1/N
============  =================================================================================
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.dmft.deep.advance import COPIES, first_capacities
from largen.dmft.deep.effort import Effort
from largen.dmft.deep.neurons import counts, unit_for
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.start import fewest
from largen.dmft.deep.team import cores
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction

METHODS = ("auto", "closed", "sweep", "dense")
MEMORY_BUDGET = 2.0**32
AT_ONCE = 2.0**30  # bytes, of all replicates that are computed at the same time
FEWEST_PARTICLES, FEWEST_DENSE = 2048, 1024
# Of smooth activations, for each sample; measured for tanh, gelu and erf.
FEATURES, GRADIENTS = 4, 8
REACH = 6.0  # of preactivations, where φ' is looked at


def chosen(method: str, problem: Problem, steps: int, particles: int | None, sampled: bool) -> str:
    """Return the method for a problem, ``"auto"`` resolved.

    Parameters
    ----------
    method
        What was asked for.
    problem, steps
        What is solved, over how many steps.
    particles
        Neurons of a layer, if they were asked for.
    sampled
        Whether single neurons are wanted, so that closed equations are no answer.

    Raises
    ------
    InvalidInput
        If the method that was asked for does not apply.
    """
    if method == "closed" and not problem.linear:
        raise InvalidInput(
            "method: closed equations exist for linear activations, this network has "
            f"{', '.join(map(str, dict.fromkeys(problem.phi)))}. Use 'sweep', 'dense' or 'auto'."
        )
    if method == "closed" and sampled:
        raise InvalidInput(
            "method: closed equations have no neurons to show as sites; 'sweep' has."
        )
    if method != "auto":
        return method
    if problem.linear and not sampled:
        return "closed"
    neurons = particles or wanted_particles("sweep", problem)
    return "dense" if sum(estimated_ranks(problem, steps, neurons)) > neurons else "sweep"


def wanted_particles(method: str, problem: Problem) -> int:
    """Return how many neurons a replicate has by default, a power of two in the narrowest layer.

    Of layers of unequal widths, how many per unit of width.
    """
    if method == "dense":
        # Of networks of half the width, too.
        return 2 * unit_for(problem, _power_of_two(max(FEWEST_DENSE, fewest(problem))) // 2)
    wanted = max(FEWEST_PARTICLES, 16 * problem.columns, fewest(problem))
    return unit_for(problem, _power_of_two(wanted))


def _power_of_two(number: int) -> int:
    return 2 ** int(np.ceil(np.log2(number)))


def estimated_ranks(problem: Problem, steps: int, neurons: int) -> tuple[int, int]:
    """Return how many directions features and gradients will span.

    Smooth activations move within the span of few: 3 to 4 times the samples for features, 5 to 10
    for gradients. Where φ' jumps, neurons that pass the jump between two steps leave the span, and
    every step adds about a direction a sample.
    """
    features = FEATURES * problem.columns
    gradients = GRADIENTS * problem.training_columns
    if not smooth_throughout(problem):
        gradients = max(gradients, problem.training_columns * (steps + 1))
    return min(features, problem.taps * neurons), min(gradients, neurons)


def smooth_throughout(problem: Problem) -> bool:
    """Whether no φ' has a jump."""
    return all(smooth(phi) for phi in problem.phi)


@lru_cache(maxsize=64)
def smooth(phi: ActivationFunction) -> bool:
    """Whether φ' has no jump, found by halving the interval in which it changes most."""
    with jax.enable_x64(True):

        def slope(x: Any) -> np.ndarray:
            return np.asarray(phi.derivative(jnp.asarray(x)), np.float64)

        x = np.linspace(-REACH, REACH, 1024)
        values = slope(x)
        scale = np.abs(values).max()
        while True:
            steps = np.abs(np.diff(values))
            i = int(np.argmax(steps))
            if steps[i] <= 1e-3 * scale:
                return True
            if x[i + 1] - x[i] < 1e-9:
                return False
            x = np.linspace(x[i], x[i + 1], 64)
            values = slope(x)


def check_memory(method: str, problem: Problem, neurons: int, dtype: Any, budget: float) -> None:
    """Check that one replicate fits into a budget.

    Parameters
    ----------
    method
        ``"sweep"`` or ``"dense"``.
    problem, neurons
        What is solved, with how many neurons a layer.
    dtype
        Of the neurons.
    budget
        Bytes.

    Raises
    ------
    InvalidInput
        With what would fit, if anything does.
    """
    needed = _bytes(method, problem, neurons, dtype)
    if needed <= budget:
        return
    least = smaller = unit_for(problem, fewest(problem))
    while _bytes(method, problem, 2 * smaller, dtype) <= budget:
        smaller *= 2
    instead = (
        f"particles={smaller} would fit"
        if _bytes(method, problem, smaller, dtype) <= budget
        else f"{problem.total} samples in {problem.hidden_layers} layers do not fit with the "
        f"fewest neurons, {least}; take fewer samples or raise it"
    )
    raise InvalidInput(
        f"memory_budget: {neurons} neurons a layer take about {needed:.2g} bytes by the method "
        f"{method!r}, and the budget is {budget:.2g}; {instead}."
    )


def replicates_at_once(problem: Problem, effort: Effort) -> int:
    """Return how many replicates are computed at the same time: one a core, as memory allows."""
    if jax.default_backend() != "cpu":
        return 1
    method = "dense" if effort.dense else "sweep"
    each = _bytes(method, problem, effort.particles, effort.dtype)
    return max(1, min(cores(), int(min(effort.budget, AT_ONCE) // each)))


def _bytes(method: str, problem: Problem, neurons: int, dtype: Any) -> float:
    """Return about how much memory one replicate takes, beside the program itself."""
    layers, taps = problem.hidden_layers, problem.taps
    neurons = max(counts(problem, neurons))
    places = max(max(problem.positions), taps * problem.asked)
    passing = 4 * layers * problem.total * places * problem.outputs * neurons
    if method == "dense":
        stored = (layers - 1) * taps * neurons**2
    else:
        rows = first_capacities(problem, neurons)
        stored = (layers - 1) * ((1 + taps) * neurons * sum(rows) + rows[0] * rows[1])
        # Anchors.
        passing += layers * (2 * problem.columns + taps * problem.training_columns) * neurons
    return np.dtype(dtype).itemsize * COPIES * (stored + passing)
