"""What is changed by directions that are too small to be kept.

A network that is trained again with a third of the tolerance finds its earlier questions answered:
what changes is due to the directions that were left out the first time. Of smooth activations much
of it is the same for every set of neurons, so that one trial moves the mean of all replicates.

The outputs' change varies by a tenth to a quarter of itself (three to five layers of tanh, 6 to 50
samples, 512 to 4096 neurons). Their error e falls at least with the first power of the tolerance τ
(there with the 1.6th), and what is left is then at most half of what was moved:

    e(τ/3) ≤ e(τ)/3    ⟹    e(τ/3) ≤ (e(τ) − e(τ/3))/2.

That of kernels, at single times, varies by a third of itself (gradients, tangent kernels) or as
much as itself (features); all of it is told as their error. Where φ' jumps, it hangs on the neurons
that pass the jump, is not known of other replicates, and is nothing but an error.
"""

from __future__ import annotations

import numpy as np

from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.sweep.advance import Swept
from largen.theories.mean_field.deep.sweep.kernel_records import kernel_variables
from largen.theories.mean_field.deep.sweep.smoothness import smooth_throughout

Changes = dict[str, np.ndarray]  # what changes, by the names of averages
FINER = 3  # times, the tolerance of a trial


def values_of(problem: Problem, run: Run, found: Swept) -> dict[str, np.ndarray]:
    """Return the averages of one replicate."""
    kernels = kernel_variables(problem, run.output_shape, found.kernels, found.pairs)
    return {"f": found.outputs} | kernels


def change_of(problem: Problem, run: Run, rough: Swept, fine: Swept) -> Changes:
    """Return what has changed with a finer tolerance."""
    before, after = (values_of(problem, run, one) for one in (rough, fine))
    with np.errstate(invalid="ignore", over="ignore"):
        return {name: (after[name] - before[name]).astype(np.float64) for name in before}


def uncertain(problem: Problem, name: str, change: np.ndarray) -> np.ndarray:
    """Return the error of an average that is left once its change is known."""
    return np.abs(change) / (FINER - 1 if name == "f" and smooth_throughout(problem) else 1)


def added(
    problem: Problem, name: str, mean: np.ndarray, error: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a mean corrected for truncation, and its error; NaN where that is not known."""
    if smooth_throughout(problem):
        mean = mean + np.nan_to_num(change, posinf=0, neginf=0)
    return mean, np.hypot(error, uncertain(problem, name, change))
