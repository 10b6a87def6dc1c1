"""The trajectory of a solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.runs import Posed, Trajectory
from largen.theories.mean_field.answers import (
    error_in_words,
    judged,
    kernel_variables,
    output_variables,
    split_outputs,
)
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.replicates import Mean, Settings


def trajectory(
    posed: Posed[AttentionProblem], theory: str, found: Mean, settings: Settings
) -> Trajectory:
    """Return a solution as a trajectory."""
    run, p = posed.run, posed.problem.samples
    dtype = run.data.x_train.dtype
    extra: dict[str, Any] = {}
    if found.f_error is not None:
        extra |= output_variables(run, "error", found.f_error)
        if found.f_margin is not None:
            extra |= output_variables(run, "margin", found.f_margin)

    def add(values: np.ndarray, ending: str) -> None:
        axes = ("attention_layer", "sample", "position", "position_2")
        train, test = np.split(values.astype(dtype), [p], 2)
        extra[f"attention{ending}"] = ("record", *axes), train
        axes = ("attention_layer", "test_sample", *axes[2:])
        extra[f"attention_test{ending}"] = ("record", *axes), test

    if posed.problem.network.attentions and settings.record_at:
        add(found.patterns, "")
        if found.patterns_error is not None:
            add(found.patterns_error, "_error")
        layers = np.arange(1, posed.problem.network.attentions + 1)
        extra["attention_layer"] = (("attention_layer",), layers)
        extra["record_step"] = (("record",), np.array(settings.record_at))
    if found.kernels:
        pair = ("output", "output_2") if run.output_shape else ()
        tokens = ("layer", "sample", "position", "sample_2", "position_2")
        more: dict[str, tuple[str, ...]] = {"feature_kernel_tokens": tokens}
        for name in ("gradient_kernel_tokens", "pseudo_gradient_kernel_tokens"):
            more[name] = (*tokens, *pair)
        layers = [x.shape[1] for name, x in found.kernels.items() if "ntk" not in name]
        every = np.arange(1, max(layers, default=0) + 1)
        extra |= kernel_variables(run, found.kernels, settings.wanted, every, more)
    f = split_outputs(run, found.f)
    told = {"theory": theory, "reason": posed.reason, "extra": extra}
    if found.f_error is None:
        return Trajectory.of(run, *f, **told, notes=(found.how,))
    errors = found.f, found.f_error, found.f_margin, settings.rtol
    result = Trajectory.of(run, *f, **told, notes=(error_in_words(found.how, *errors),))
    return judged(result, *errors)
