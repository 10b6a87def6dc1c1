"""A linear network with one hidden layer and a single sample: exact equations for f and λ."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from largen.errors import InvalidInput, NoTheory
from largen.finite_width.training import many_samples, two_layers
from largen.runs import Run

WHAT = "lg.training.catapult"


class OneSample(NamedTuple):
    """The constants of the recursion for a network."""

    coupling: float  # c = κ|x|²; 0 where the kernel is constant in the limit
    kernel: float  # λ of wide networks at initialisation


class Path(NamedTuple):
    """The recursion at all times; after divergence, the last values before it are repeated."""

    # outputs, kernels, losses: f, λ and ℓ, (step,).
    outputs: Any
    kernels: Any
    losses: Any
    sound: Any  # whether the recursion reached this step before it diverged, (step,)


def check(run: Run) -> None:
    """Check that a run has closed equations for f and λ."""
    two_layers.check(run, WHAT)
    if run.output_shape not in ((), (1,)):
        raise NoTheory(f"{WHAT}: wanted one output, this run has {run.output_shape[0]}.")
    if len(run.data.x_train) != 1:
        raise InvalidInput(
            f"run: {WHAT} closes for one training sample, got {len(run.data.x_train)}; "
            "lg.training.linear_training has any number."
        )


def at_width(run: Run, width: int) -> OneSample:
    """Return c and the mean of λ at a width."""
    return _of_sample(run, two_layers.at_width(run, width))


def at_infinite_width(run: Run) -> OneSample:
    """Return the limits of c and λ."""
    return _of_sample(run, two_layers.at_infinite_width(run, WHAT))


def _of_sample(run: Run, constants: two_layers.Constants) -> OneSample:
    square = float(np.sum(np.asarray(run.data.x_train, np.float64) ** 2))
    return OneSample(square * constants.coupling, square * (constants.first + constants.last))


def recursion(run: Run, coupling: float, f0: float, kernel0: float) -> Path:
    """Return the training of a network with given initial output and kernel.

    f and λ = A + KB close by themselves (Bahri and Hanin, Les Houches lectures, (110) and (112),
    corrected), for any parts of λ: here all of λ is A, κ contains c, and K = 1.
    """
    unit = np.ones((1, 1))
    start = many_samples.State(f0 * unit, kernel0 * unit, 0 * unit)
    path, _ = many_samples.from_start(run, unit, coupling, start)
    outputs = path.outputs.reshape(-1, 1, *run.output_shape)
    losses = many_samples.losses(run, outputs, run.data.y_train)
    return Path(path.outputs[:, 0, 0], path.curvatures, losses, path.sound)
