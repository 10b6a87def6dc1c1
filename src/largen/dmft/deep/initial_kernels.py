"""Kernels at initialisation, in closed form or by the Hermite series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from largen.dmft.deep.problem import Problem
from largen.expectations import pair_moments, second_moment


def tangent(
    problem: Problem,
    features: Sequence[np.ndarray],
    gradients: Sequence[np.ndarray],
    same: Any = 1.0,
) -> np.ndarray:
    """Return the tangent kernel from the kernels Φ¹ … Φᴸ and G¹ … Gᴸ.

    K = Φᴸ + Σ_l Gˡ Φˡ⁻¹ with the first layer included (Pehlevan and Bordelon's lecture notes,
    (26), whose last term should be G¹Φ⁰), every term with the rate ρσ² of its weights, and with
    those of biases. Shapes ``(..., sample, sample_2)`` that broadcast. Between two outputs there
    are the terms of the gradients only: ``same`` is 1 where both outputs are the same, else 0.
    """
    fields, samples = problem.fields, problem.samples
    rated = (fields * problem.field_rate) @ fields[:samples].T
    kernel = gradients[0] * rated[: gradients[0].shape[-2]]
    for affine, phi, g in zip(problem.maps[:-1], features[:-1], gradients[1:], strict=True):
        kernel = kernel + g * (affine.kernel_rate * phi + affine.bias_kernel_rate)
    readout = problem.maps[-1]
    return kernel + same * (readout.kernel_rate * features[-1] + readout.bias_kernel_rate)


def initial_tangent(problem: Problem) -> np.ndarray:
    """Return the tangent kernel at initialisation, all samples by training samples."""
    samples = problem.samples
    covariances = [problem.fields @ problem.fields.T]
    features, slopes = [], []
    with jax.enable_x64(True):
        for phi, affine, skip in zip(problem.phi, problem.maps, (*problem.skips, -1), strict=True):
            variance = np.diag(covariances[-1])
            gap = (variance[:, None] + variance) / 2 - covariances[-1]
            gap = np.maximum(gap - np.diag(np.diag(gap)), 0)
            moments = pair_moments(phi, variance[:, None], variance[None], gap)
            square = np.asarray(second_moment(phi, variance))
            feature = (square[:, None] + square) / 2 - np.asarray(moments.gap)
            features.append(feature)
            slopes.append(np.asarray(moments.derivative))
            covariance = affine.std**2 * feature + affine.bias_std**2
            # What a branch returns is independent of what it is added to.
            covariances.append(covariance + (covariances[skip] if skip >= 0 else 0))
    gradients = [np.zeros_like(phi) for phi in features]
    behind = np.ones_like(features[-1])
    for l in reversed(range(len(features))):
        gradients[l] = gradients[l] + problem.maps[l].std ** 2 * behind * slopes[l]
        behind = gradients[l]
        if l and problem.skips[l - 1] >= 0:
            gradients[problem.skips[l - 1]] += behind
    return tangent(
        problem, [phi[:, :samples] for phi in features], [g[:, :samples] for g in gradients]
    )
