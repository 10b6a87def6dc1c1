"""The choice of the method for a problem, and of the number of neurons.

============  =================================================================================
``"closed"``  the closed equations of linear networks: exact
``"sweep"``   random matrices represented by the directions that they have acted on: a small shift
              of order 1/N (for four linear layers, after three steps, 0.7/N in outputs of order
              one); efficient as long as directions are fewer than neurons
``"dense"``   random matrices that are stored, at two widths, extrapolated in 1/N
============  =================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from largen.errors import InvalidInput
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.sweep.layer_widths import check_divisible, counts, unit_for
from largen.theories.mean_field.deep.sweep.smoothness import smooth_throughout
from largen.theories.mean_field.deep.sweep.start import fewest

Method = Literal["auto", "closed", "sweep", "dense"]
METHODS: tuple[Method, ...] = get_args(Method)
FEWEST_PARTICLES, FEWEST_DENSE = 2048, 1024
# Numbers of directions per sample for smooth activations, as measured for tanh, gelu and erf.
FEATURES, GRADIENTS = 4, 8


def choose_method(
    method: Method,  # the requested method
    # problem, steps: the problem, and the number of training steps.
    problem: Problem,
    steps: int,
    particles: int | None,  # the requested number of neurons of a layer, if any
    sampled: bool,  # whether single neurons are requested, which closed equations do not provide
    fits: bool = True,  # whether closed equations fit into memory
) -> Method:
    """Return the method for a problem, ``"auto"`` resolved."""
    if method == "closed" and not problem.linear:
        raise InvalidInput(
            "method: closed equations exist for linear activations, this network has "
            f"{', '.join(map(str, dict.fromkeys(problem.phi)))}. Use 'sweep', 'dense' or 'auto'."
        )
    if method == "closed" and sampled:
        raise InvalidInput("method: closed equations have no neurons to sample; 'sweep' has.")
    if method != "auto":
        return method
    if problem.linear and not sampled and fits:
        return "closed"
    neurons = particles or wanted_particles("sweep", problem)
    return "dense" if sum(estimated_ranks(problem, steps, neurons)) > neurons else "sweep"


def wanted_particles(method: str, problem: Problem) -> int:
    """Return the default number of neurons, a power of two in the narrowest layer.

    For layers of unequal widths, it is the number per unit of width.
    """
    if method == "dense":
        # Networks of half the width must have integer widths, too.
        return 2 * unit_for(problem, _power_of_two(max(FEWEST_DENSE, fewest(problem))) // 2)
    wanted = max(FEWEST_PARTICLES, 16 * problem.columns, fewest(problem))
    return unit_for(problem, _power_of_two(wanted))


def _power_of_two(number: int) -> int:
    return 2 ** int(np.ceil(np.log2(number)))


def estimated_ranks(problem: Problem, steps: int, neurons: int) -> tuple[int, int]:
    """Return estimates of the numbers of directions that features and gradients will span.

    For smooth activations they span few: 3 to 4 times the number of samples for features, 5 to 10
    for gradients. If φ' jumps, neurons that cross the jump between two steps leave the span, and
    every step adds about one direction per sample.
    """
    features = FEATURES * problem.columns
    gradients = GRADIENTS * problem.training_columns
    if not smooth_throughout(problem):
        gradients = max(gradients, problem.training_columns * (steps + 1))
    return min(features, problem.taps * neurons), min(gradients, neurons)


def records_of(
    problem: Problem, record: str | Sequence[str] | None, sample_neurons: int
) -> str | Sequence[str] | None:
    """Return the names of the records of a problem, given the options; None for all kernels.

    Where a normalisation couples the samples of a batch, there are no gradients of single samples.
    """
    if not problem.coupled:
        return record
    names = ("feature_kernel",) if record is None else record
    if sample_neurons or set(names) - {"feature_kernel"}:
        what = "sample_neurons" if sample_neurons else "record"
        raise InvalidInput(
            f"{what}: a normalisation over the batch couples its samples, so that outputs have no "
            "gradients of a sample of their own; outputs and record='feature_kernel' remain."
        )
    return names


def check_particles(problem: Problem, method: Method, particles: int, sample_neurons: int) -> None:
    """Check that layers have enough neurons for the samples and for the requested ones."""
    check_divisible(problem, particles, 2 if method == "dense" else 1)
    narrowest = min(counts(problem, particles))
    if narrowest < fewest(problem):
        places, least = max(problem.positions), unit_for(problem, fewest(problem))
        each = f" of {places} positions" if places > 1 else ""
        raise InvalidInput(
            f"particles: wanted at least {least} for {problem.total} samples{each}, got "
            f"{particles}."
        )
    if sample_neurons > narrowest:
        raise InvalidInput(
            f"sample_neurons: wanted at most the {narrowest} particles, got {sample_neurons}."
        )
