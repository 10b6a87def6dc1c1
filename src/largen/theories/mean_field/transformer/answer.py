"""The trajectory of a solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.runs import Posed, Run, Trajectory
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.replicates import Mean, Settings


def trajectory(
    posed: Posed[AttentionProblem], theory: str, found: Mean, settings: Settings
) -> Trajectory:
    """Return a solution as a trajectory.

    Parameters
    ----------
    posed, theory
        The problem, and the name of the theory.
    found
        Outputs, attention weights, kernels, and their errors.
    settings
        The recorded times, and the target error.
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
    if posed.problem.program.attentions and settings.record_at:
        axes = ("record", "attention_layer", "sample", "position", "position_2")
        add("attention", axes, found.patterns.astype(dtype), ("", "_test"))
        if found.patterns_error is not None:
            errors = found.patterns_error.astype(dtype)
            add("attention", axes, errors, ("_error", "_test_error"))
        layers = np.arange(1, posed.problem.program.attentions + 1)
        extra["attention_layer"] = (("attention_layer",), layers)
        extra["record_step"] = (("record",), np.array(settings.record_at))
    extra |= _kernels(run, found.kernels, settings)
    note = found.how
    error = found.relative_error
    if found.f_error is not None and not np.isnan(error):
        note = f"{note}; estimated error of the outputs {error:.1e} of their size"
        if error > settings.rtol:
            note += f", more than rtol={settings.rtol:g}: raise max_particles for more"
    f = shaped(found.f)
    return Trajectory.of(
        run, f[:, :p], f[:, p:], theory=theory, reason=posed.reason, extra=extra, notes=(note,)
    )


def _kernels(run: Run, kernels: dict[str, np.ndarray], settings: Settings) -> dict[str, Any]:
    """Return the recorded kernels with their axes, and the coordinates of these."""
    if not kernels:
        return {}
    pair = ("output", "output_2") if run.output_shape else ()
    tokens = ("layer", "sample", "position", "sample_2", "position_2")
    axes = {
        "feature_kernel": ("layer", "sample", "sample_2"),
        "gradient_kernel": ("layer", "sample", "sample_2", *pair),
        "feature_kernel_tokens": tokens,
        "gradient_kernel_tokens": (*tokens, *pair),
        "ntk": ("sample", "sample_2", *pair),
        "ntk_test": ("test_sample", "sample", *pair),
    }
    recorded, extra = settings.wanted.recorded, {}
    if len(recorded.alone):
        extra["record_step"] = (("record",), recorded.alone)
    if len(recorded.pairs):
        extra["pair_step"] = (("pair",), recorded.pairs[:, 0])
        extra["pair_step_2"] = (("pair",), recorded.pairs[:, 1])
    for name, kernel in kernels.items():
        plain = name.removesuffix("_error")
        leading = "pair" if plain.endswith("_pair") else "record"
        named = (leading, *axes[plain.removesuffix("_pair")])
        extra[name] = (named, kernel.astype(run.data.x_train.dtype))
        if "layer" in named:
            extra["layer"] = (("layer",), np.arange(1, kernel.shape[1] + 1))
    return extra
