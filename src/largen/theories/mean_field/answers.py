"""What the trajectories of sampled mean-field solutions have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from largen.errors import NumericalFailure
from largen.runs import Run, Trajectory
from largen.runs.status import Status
from largen.theories.mean_field.engine.descent import largest_outputs
from largen.theories.mean_field.engine.statistics import LEVEL, NORMAL, relative
from largen.theories.mean_field.options import WantedKernels

# Replicates are added until their sampling error is rtol; errors that they share may be half of it.
ALL_PARTS = 1.15


def output_variables(run: Run, what: str, f: np.ndarray) -> dict[str, Any]:
    """Return f_train_… and f_test_…, with their axes, of values of all samples at each step."""
    train, test = split_outputs(run, f)
    axes = run.output_axes
    return {
        f"f_train_{what}": (("step", "sample", *axes), train),
        f"f_test_{what}": (("step", "test_sample", *axes), test),
    }


def split_outputs(run: Run, f: np.ndarray) -> list[np.ndarray]:
    """Return values of training and of test samples, in the shape and precision of the run's."""
    f = f.reshape(*f.shape[:2], *run.output_shape).astype(run.data.x_train.dtype)
    return np.split(f, [len(run.data.x_train)], axis=1)


def kernel_variables(
    run: Run,  # the training run
    # Kernels by name, with …_pair between two times and …_error, and a leading axis of records or
    # pairs.
    kernels: Mapping[str, np.ndarray],
    wanted: WantedKernels,  # the recorded kernels, and their time indices
    layers: np.ndarray,  # the coordinates of the axis layer
    # The axes, behind the leading one, of further variables by name.
    more: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """Return the wanted ones of recorded kernels with their axes, and the coordinates of these."""
    recorded = wanted.recorded
    pair = ("output", "output_2") if run.output_shape else ()
    axes = {
        "feature_kernel": ("layer", "sample", "sample_2"),
        "gradient_kernel": ("layer", "sample", "sample_2", *pair),
        "ntk": ("sample", "sample_2", *pair),
        "ntk_test": ("test_sample", "sample", *pair),
        "pseudo_gradient_kernel": ("layer", "sample", "sample_2", *pair),
        "effective_ntk": ("sample", "sample_2", *pair),
        "alignment": ("layer", "sample", *pair[:1]),
        **(more or {}),
    }
    extra: dict[str, Any] = {}
    if len(recorded.alone):
        extra["record_step"] = (("record",), recorded.alone)
    if len(recorded.pairs):
        extra["pair_step"] = (("pair",), recorded.pairs[:, 0])
        extra["pair_step_2"] = (("pair",), recorded.pairs[:, 1])
    for name, kernel in kernels.items():
        if wanted.has(name):
            plain = name.removesuffix("_error")
            leading = "pair" if plain.endswith("_pair") else "record"
            named = (leading, *axes[plain.removesuffix("_pair")])
            extra[name] = (named, kernel.astype(run.data.x_train.dtype))
            if "layer" in named:
                extra["layer"] = (("layer",), layers)
    return extra


def judged(
    result: Trajectory, f: np.ndarray, error: np.ndarray, interval: np.ndarray | None, rtol: float
) -> Trajectory:
    """Return a trajectory with the status that the relative error of its outputs gives it.

    ``interval``: half of the interval of the outputs, if the error is that of replicates. All
    theories with a target error pass through here: a result whose error is larger than that is
    inaccurate, and one whose error is not known is not ok.
    """
    if result.status is not Status.OK:
        return result
    reached = _reached(f, error, interval)
    if np.isnan(reached):
        return result.with_status(Status.ERROR_UNKNOWN)
    return result if reached <= ALL_PARTS * rtol else result.with_status(Status.INACCURATE)


def _reached(f: np.ndarray, error: np.ndarray, interval: np.ndarray | None) -> float:
    """Return the relative error that is held against ``rtol``; NaN if it is not known."""
    told = relative(error, f)
    return told if interval is None or np.isnan(told) else relative(interval, f) / NORMAL


def error_in_words(
    how: str, f: np.ndarray, error: np.ndarray, interval: np.ndarray | None, rtol: float
) -> str:
    """Return what was computed, with the estimated relative error of the outputs if it is known.

    ``interval``: half of the interval of the outputs, if the error is that of replicates.
    """
    told = relative(error, f)
    if np.isnan(told):
        return how
    note = f"{how}; estimated error of the outputs {told:.1e} of their size"
    if interval is not None:
        note += f", {LEVEL:.0%} interval ± {relative(interval, f):.1e}"
    if _reached(f, error, interval) > ALL_PARTS * rtol:
        note += f", more than rtol={rtol:g}: raise max_particles for more"
    return note


def bounded(
    run: Run,
    f: np.ndarray,
    result: Trajectory,
    throw: bool,
    what: str = "the mean-field limit",
    stopped: str | None = None,  # why memory did not suffice, in words
) -> Trajectory:
    """Return the trajectory of outputs whose first axis is time; it says if they diverge or stop.

    Raises NumericalFailure if ``throw`` and they do.
    """
    if stopped is not None:
        result = result.with_status(Status.OUT_OF_MEMORY)
        if throw:
            raise NumericalFailure(f"{stopped} throw=False returns what was computed.", result)
        return result
    sizes = np.abs(f).reshape(len(f), -1).max(axis=1)
    inside = sizes < largest_outputs(run.data.y_train)
    if inside.all():
        return result
    result = result.with_status(Status.DIVERGED)
    if throw:
        first = int(np.argmin(inside))
        raise NumericalFailure(
            f"{what} diverges: outputs escape before time index {first} (time "
            f"{run.times[first]:g}). Lower the learning rate or gamma, or pass throw=False to "
            "get what was computed.",
            result,
        )
    return result
