"""The truncation error: the effect of directions below the tolerance, which are omitted.

A network is trained again, with the same random matrices and a third of the tolerance, so that the
change is due to the directions that were omitted the first time. For smooth activations much of
this change is the same for every replicate, so that one trial corrects the mean of all replicates.

The change of the outputs varies between replicates by a tenth to a quarter of itself (three to five
layers of tanh, 6 to 50 samples, 512 to 4096 neurons). Their truncation error e falls at least with
the first power of the tolerance τ (in these cases with the 1.6th), so that the remaining error is
at most half of the change:

    e(τ/3) ≤ e(τ)/3    ⟹    e(τ/3) ≤ (e(τ) − e(τ/3))/2.

The change of kernels, at single times, varies by a third of itself (gradients, tangent kernels) or
as much as itself (features); all of it is included in their error. If φ' jumps, the change depends
on the neurons that cross the jump and differs between replicates; it is then included in the error
without a correction of the mean.
"""

from __future__ import annotations

import numpy as np

from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.sweep.advance import Swept
from largen.theories.mean_field.deep.sweep.kernel_records import kernel_variables
from largen.theories.mean_field.deep.sweep.smoothness import smooth_throughout

Changes = dict[str, np.ndarray]  # changes by name of the average
FINER = 3  # the factor by which the tolerance of a trial is smaller


def values_of(problem: Problem, run: Run, found: Swept) -> dict[str, np.ndarray]:
    """Return the averages of one replicate."""
    kernels = kernel_variables(problem, run.output_shape, found.kernels, found.pairs)
    return {"f": found.outputs} | kernels


def change_of(problem: Problem, run: Run, rough: Swept, fine: Swept) -> Changes:
    """Return the changes of the averages with a finer tolerance."""
    before, after = (values_of(problem, run, one) for one in (rough, fine))
    with np.errstate(invalid="ignore", over="ignore"):
        return {name: (after[name] - before[name]).astype(np.float64) for name in before}


def uncertain(problem: Problem, name: str, change: np.ndarray) -> np.ndarray:
    """Return the remaining error of an average, given its change."""
    return np.abs(change) / (FINER - 1 if name == "f" and smooth_throughout(problem) else 1)


def add_remainder(
    problem: Problem, name: str, mean: np.ndarray, error: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a mean corrected for truncation, and its error; NaN where that is not known."""
    if smooth_throughout(problem):
        mean = mean + np.nan_to_num(change, posinf=0, neginf=0)
    return mean, np.hypot(error, uncertain(problem, name, change))
