"""The trajectory of a solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.runs import Posed, Trajectory
from largen.theories.mean_field.answers import error_in_words, kernel_variables
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.replicates import Mean, Settings


def trajectory(
    posed: Posed[AttentionProblem], theory: str, found: Mean, settings: Settings
) -> Trajectory:
    """Return a solution as a trajectory.

    ``posed``, ``theory``: the problem, and the name of the theory; ``found``: outputs, attention
    weights, kernels, and their errors; ``settings``: the recorded times, and the target error.
    """
    run, p = posed.run, posed.problem.samples
    dtype = run.data.x_train.dtype
    extra: dict[str, Any] = {}

    def shaped(f: np.ndarray) -> np.ndarray:
        return f.reshape(*f.shape[:2], *run.output_shape).astype(dtype)

    def add(name: str, axes: tuple[str, ...], values: np.ndarray, ends: tuple[str, str]) -> None:
        for end, sample, part in zip(ends, ("sample", "test_sample"), (0, 1), strict=True):
            lead = [each if each != "sample" else sample for each in axes]
            at = axes.index("sample")
            extra[name + end] = (tuple(lead), np.split(values, [p], at)[part])

    if found.f_error is not None:
        axes = ("step", "sample", *run.output_axes)
        add("f", axes, shaped(found.f_error), ("_train_error", "_test_error"))
        if found.f_margin is not None:
            add("f", axes, shaped(found.f_margin), ("_train_margin", "_test_margin"))
    if posed.problem.network.attentions and settings.record_at:
        axes = ("record", "attention_layer", "sample", "position", "position_2")
        add("attention", axes, found.patterns.astype(dtype), ("", "_test"))
        if found.patterns_error is not None:
            errors = found.patterns_error.astype(dtype)
            add("attention", axes, errors, ("_error", "_test_error"))
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
    note = found.how
    if found.f_error is not None:
        note = error_in_words(note, found.f, found.f_error, found.f_margin, settings.rtol)
    f = shaped(found.f)
    return Trajectory.of(
        run, f[:, :p], f[:, p:], theory=theory, reason=posed.reason, extra=extra, notes=(note,)
    )
