"""The trajectory of a solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.runs import Posed, Trajectory
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.answers import error_in_words, kernel_variables
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
    dtype, p = run.data.x_train.dtype, problem.samples
    out = ("output",) if run.output_shape else ()

    def shaped(f: np.ndarray) -> np.ndarray:
        return f.reshape(*f.shape[:2], *run.output_shape).astype(dtype)

    def named(what: str, f: np.ndarray) -> dict[str, Any]:
        return {
            f"f_train_{what}": (("step", "sample", *out), shaped(f[:, :p])),
            f"f_test_{what}": (("step", "test_sample", *out), shaped(f[:, p:])),
        }

    extra = named("error", estimate.f_error)
    if estimate.f_margin is not None:
        extra |= named("margin", estimate.f_margin)
    if estimate.f_std is not None:
        extra |= named("std", estimate.f_std)
    if spread is not None:
        extra |= named("fluctuation", spread.std) | named("fluctuation_error", spread.error)
    if estimate.kernels:
        space = ("position",) if max(problem.positions) > 1 else ()
        values = ("weight_layer", "value")
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
    note = error_in_words(estimate.how, estimate.f, estimate.f_error, estimate.f_margin, rtol)
    return Trajectory.of(
        run,
        shaped(estimate.f[:, :p]),
        shaped(estimate.f[:, p:]),
        theory=theory,
        reason=posed.reason,
        extra=extra,
        notes=(note,),
    )
