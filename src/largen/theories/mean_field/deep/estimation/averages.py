"""Means over replicates, and their errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.control_variate import correct, fit_error
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.estimation.truncation import Changes, add_remainder, values_of
from largen.theories.mean_field.deep.estimation.width_extrapolation import at_infinite_width
from largen.theories.mean_field.deep.sweep.advance import Swept
from largen.theories.mean_field.deep.sweep.kernel_records import neuron_variables
from largen.theories.mean_field.engine.statistics import NORMAL, margin, mean_and_error

Means = dict[str, tuple[np.ndarray, np.ndarray]]  # by name, the mean and its standard error


class Estimate(NamedTuple):
    """Means over replicates, their errors (``name_error`` for a kernel), a description of the
    method, and the sample neurons of the first replicate."""

    f: np.ndarray
    f_error: np.ndarray
    f_std: np.ndarray | None
    kernels: dict[str, np.ndarray]
    how: str
    sample_neurons: dict[str, np.ndarray]
    f_margin: np.ndarray | None = None  # half of the interval of f; None without replicates
    replicates: int = 1

    def with_errors(self, more: np.ndarray) -> Estimate:
        """Return the estimate with further errors of f, which replicates have in common."""
        margin = None if self.f_margin is None else np.hypot(self.f_margin, NORMAL * more)
        return self._replace(f_error=np.hypot(self.f_error, more), f_margin=margin)


def average(
    # problem, run, found, settings: the problem, the run, the replicates, and their numerical
    # settings.
    problem: Problem,
    run: Run,
    found: list[Swept],
    settings: NumericalSettings,
    stepping: np.ndarray | float = 0.0,  # the error of f by finite time steps
    # The truncation error: the effect of the directions that the replicates do not contain.
    change: Changes | None = None,
) -> Estimate:
    """Return the mean of replicates."""
    widths = settings.widths if len(found) > 1 else settings.widths[:1]
    count = len(found) // len(widths)
    each = "per unit of width" if problem.unequal else "a layer"
    with np.errstate(invalid="ignore", over="ignore"):
        same_width = [found[i :: len(widths)] for i in range(len(widths))]
        levels = [means_and_errors(problem, run, some) for some in same_width]
        if len(levels) > 1:
            means, share = _extrapolated(*levels)
            how = (
                f"{count} dense networks each of {widths[0]} and {widths[1]} neurons {each}, of "
                f"whose difference to 1/N = 0 {share:.0%} is extrapolated"
            )
        else:
            ranks = np.max([one.ranks for one in found], 0)
            rank = f", ranks up to {ranks.max()}" if ranks.size else ""
            means = dict(levels[0])
            drawn = f"({settings.sampling}{rank})"
            how = f"{count} replicates of {settings.particles} neurons {each} {drawn}"
        std, random = levels[0]["f"][1] * count**0.5, means["f"][1]
        for name, moved in (change or {}).items():
            means[name] = add_remainder(problem, name, *means[name], moved)
        f, error = means.pop("f")
        error = np.hypot(error, stepping)
    kernels = {name: mean for name, (mean, _) in means.items()}
    sample_neurons = {}
    if settings.kept.sample_neurons and found[0].kernels:
        sample_neurons = neuron_variables(problem, run.output_shape, found[0].kernels)
    if count == 1:
        how += "; a single one gives no estimate of the error"
        return Estimate(f, error, None, kernels, how, sample_neurons)
    if np.isnan(error).any() and np.isfinite(f).all():
        how += (
            "; the error is not known, since a smaller tolerance of directions needs nearly as "
            "many directions as there are neurons: raise particles, or take method='dense'"
        )
    kernels |= {f"{name}_error": off for name, (_, off) in means.items()}
    one = std if settings.sampling == "finite_width" else None
    return Estimate(
        f, error, one, kernels, how, sample_neurons, margin(error, random, count), count
    )


def _extrapolated(fine: Means, rough: Means) -> tuple[Means, float]:
    """Return means at infinite width, and the share of f's difference that is extrapolated."""
    both = {name: at_infinite_width(fine[name], rough[name]) for name in fine}
    return {name: part[:2] for name, part in both.items()}, both["f"][2]


def extrapolation_error(found: list[Swept]) -> np.ndarray | float:
    """Return the error of f by the extrapolation of each replicate; 0 if none is extrapolated.

    A further term of the extrapolation reduces the error e to e′ ≤ e/3, so that the remaining error
    is at most half of the change: e′ ≤ e/3 ⟹ e′ ≤ (e − e′)/2.
    """
    changes = [one.outputs - one.rougher for one in found if one.rougher is not None]
    return np.abs(np.mean(changes, 0)) / 2 if changes else 0.0


def means_and_errors(problem: Problem, run: Run, found: list[Swept]) -> Means:
    """Return the means of replicates and their standard errors; NaN for a single one."""
    parts = [values_of(problem, run, one) for one in found]
    values = {name: np.stack([part[name] for part in parts]).astype(float) for name in parts[0]}
    means = {}
    if len(found[0].linear_kernels):
        # In double precision, where fourth powers of outputs do not overflow.
        outputs = np.stack([one.linear for one in found]).swapaxes(1, 2).astype(float)
        kernels = np.stack([one.linear_kernels for one in found])[:, :, None].astype(float)
        train, test = np.split(kernels, [problem.samples], 3)
        for name, linear in (("f", outputs), ("ntk", train), ("ntk_test", test)):
            if name in values:
                exact, own = linear.swapaxes(0, 1)
                shape = *exact.shape[:2], *values[name].shape[2:]
                models = exact.reshape(shape), own.reshape(shape)
                corrected = correct(values[name], *models)
                error = fit_error(values.pop(name), corrected, *models)
                means[name] = mean_and_error(corrected)[0], error
    return means | {name: mean_and_error(each) for name, each in values.items()}
