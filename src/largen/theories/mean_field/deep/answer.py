"""The trajectory of a solution."""

from __future__ import annotations

import numpy as np

from largen.runs import Posed, Trajectory
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.answers import (
    error_in_words,
    judged,
    kernel_variables,
    output_variables,
    split_outputs,
)
from largen.theories.mean_field.deep.estimation.averages import Estimate
from largen.theories.mean_field.deep.sweep.kernel_records import OUTLIERS
from largen.theories.mean_field.engine.ensembles import Fluctuations
from largen.theories.mean_field.options import WantedKernels


def trajectory(
    # posed, theory: the problem, and the name of the theory.
    posed: Posed[Problem],
    theory: str,
    estimate: Estimate,  # outputs, kernels, fields of single neurons, and their errors
    spread: Fluctuations | None,  # of networks of finite width, if they are known
    wanted: WantedKernels,  # the recorded kernels, and their time indices
    rtol: float,  # the target relative error
    layers: np.ndarray | None = None,  # the coordinates of the axis layer; 1 … L by default
) -> Trajectory:
    """Return an estimate as a trajectory."""
    run, problem = posed.run, posed.problem
    extra = output_variables(run, "error", estimate.f_error)
    if estimate.f_margin is not None:
        extra |= output_variables(run, "margin", estimate.f_margin)
    if estimate.f_std is not None:
        extra |= output_variables(run, "std", estimate.f_std)
    if spread is not None:
        extra |= output_variables(run, "fluctuation", spread.std)
        extra |= output_variables(run, "fluctuation_error", spread.error)
    if estimate.kernels:
        space = ("position",) if max(problem.positions) > 1 else ()
        values, out = ("weight_layer", "value"), run.output_axes
        others = {
            **dict.fromkeys(OUTLIERS[:3], values),
            "bulk_edge": values[:1],
            "neuron_h": ("layer", "neuron", "sample", *space),
            "neuron_g": ("layer", "neuron", "sample", *space, *out),
            "neuron_z": ("layer", "neuron", "sample", *space, *out),
        }
        if layers is None:
            layers = np.arange(1, problem.hidden_layers + 1)
        recorded = estimate.kernels | estimate.sample_neurons
        extra |= kernel_variables(run, recorded, wanted, layers, others)
        if "singular_values" in extra:
            extra["weight_layer"] = (("weight_layer",), layers[1:])
    errors = estimate.f, estimate.f_error, estimate.f_margin, rtol
    note = error_in_words(estimate.how, *errors)
    result = Trajectory.of(
        run,
        *split_outputs(run, estimate.f),
        theory=theory,
        reason=posed.reason,
        extra=extra,
        notes=(note,),
    )
    return judged(result, *errors)
