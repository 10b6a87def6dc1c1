"""Kernels at initialisation, in closed form or by the Hermite series."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from largen.expectations import pair_moments, second_moment
from largen.theories.chains.normalized import NormalizedActivation, elementwise
from largen.theories.chains.problem import Problem


def tangent(
    problem: Problem, read: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the tangent kernel of one output, all samples by training samples.

    K = Φᴸ + Σ_l Gˡ Φˡ⁻¹ with the first layer included (Pehlevan and Bordelon's lecture notes,
    (26), whose last term should be G¹Φ⁰), every term with the rate ρσ² of its weights, plus the
    terms of the biases. With several positions a term is the sum over pairs of positions,
    Σ_ab Gˡ(a, b) Φˡ⁻¹(a, b), with Φ between the patches that the map reads at a and at b.

    ``read``: Φ of the patches that each map after the first reads, between all of its output
    columns and those of training samples; ``gradients``: G¹ … Gᴸ, with the same axes.
    """
    samples, seen = problem.samples, problem.fields
    rated = (seen * problem.field_rate) @ seen[: samples * problem.positions[0]].T
    terms = [gradients[0] * rated]
    for affine, phi, g in zip(problem.maps[:-1], read[:-1], gradients[1:], strict=True):
        terms.append(g * (affine.kernel_rate * phi + affine.bias_kernel_rate))
    readout = problem.maps[-1]
    kernel = readout.kernel_rate * read[-1] + readout.bias_kernel_rate
    for term, places in zip(terms, problem.positions, strict=True):
        kernel = kernel + term.reshape(-1, places, samples, places).sum((1, 3))
    return kernel


def initial_tangent(problem: Problem) -> np.ndarray:
    """Return the tangent kernel at initialisation, all samples by training samples.

    With normalisations over the batch, it is that of normalisations by one σ for all neurons.
    """
    covariances = [problem.fields @ problem.fields.T]
    read, slopes = [], []
    quiet = [problem.quiet and ends for ends in (*problem.into_stream, False)]
    with jax.enable_x64(True):
        for phi, affine, ratio, skip, muted in zip(
            problem.phi, problem.maps, problem.ratios, (*problem.skips, -1), quiet, strict=True
        ):
            covariance, size = covariances[-1], np.ones(len(covariances[-1]))
            if isinstance(phi, NormalizedActivation):
                # Preactivations have mean zero over neurons, and averages of g vanish.
                variance = np.diag(covariance).reshape(-1, phi.positions)
                axes = {"channels": (), "sample": 1, "batch": (0, 1)}[phi.over]
                variance = np.broadcast_to(variance.mean(axes, keepdims=True), variance.shape)
                size = 1 / np.sqrt(variance.ravel() + phi.eps)
            size = np.multiply.outer(size, size)
            covariance, phi = size * covariance, elementwise(phi)
            variance = np.diag(covariance)
            gap = (variance[:, None] + variance) / 2 - covariance
            gap = np.maximum(gap - np.diag(np.diag(gap)), 0)
            moments = pair_moments(phi, variance[:, None], variance[None], gap)
            square = np.asarray(second_moment(phi, variance))
            feature = float(ratio) * ((square[:, None] + square) / 2 - np.asarray(moments.gap))
            read.append(_sum_over_taps(affine.reading.taps, feature))
            slopes.append(float(ratio) * size * np.asarray(moments.derivative))
            covariance = (affine.std**2 * read[-1] + affine.bias_std**2) * (not muted)
            # At initialisation the output of a branch is independent of the layer it is added to.
            covariances.append(covariance + (covariances[skip] if skip >= 0 else 0))
    gradients = [np.zeros_like(slope) for slope in slopes]
    behind = np.ones_like(read[-1])
    for l in reversed(range(len(gradients))):
        affine = problem.maps[l]
        back = _sum_over_taps(affine.reading.taps.swapaxes(1, 2), behind)
        if not (problem.quiet and (*problem.from_stream, False)[l]):
            gradients[l] = gradients[l] + affine.std**2 * back * slopes[l]
        behind = gradients[l]
        if l and problem.skips[l - 1] >= 0:
            gradients[problem.skips[l - 1]] += behind
    samples = problem.samples
    return tangent(
        problem,
        [
            phi[:, : samples * m.reading.positions]
            for phi, m in zip(read, problem.maps, strict=True)
        ],
        [g[:, : samples * each] for g, each in zip(gradients, problem.positions, strict=True)],
    )


def readout_size(problem: Problem) -> float:
    """Return σ rms φ(hᴸ) of the read-out at initialisation, over training samples.

    Neurons at positions that are pooled count as independent, so that it is rough there.
    """
    variances = [np.sum(problem.fields**2, 1).reshape(problem.total, -1)]
    quiet = [problem.quiet and ends for ends in (*problem.into_stream, False)]
    with jax.enable_x64(True):
        for phi, affine, ratio, skip, muted in zip(
            problem.phi, problem.maps, problem.ratios, (*problem.skips, -1), quiet, strict=True
        ):
            variance = variances[-1]
            if isinstance(phi, NormalizedActivation):
                variance = np.ones_like(variance)
            square = float(ratio) * np.asarray(second_moment(elementwise(phi), variance.ravel()))
            read = np.einsum("kab,sb->sa", affine.reading.taps**2, square.reshape(variance.shape))
            variance = (affine.std**2 * read + affine.bias_std**2) * (not muted)
            variances.append(variance + (variances[skip] if skip >= 0 else 0))
    readout = problem.maps[-1]
    variance = variances[-1][: problem.samples] - readout.bias_std**2
    return float(np.sqrt(np.mean(variance)))


def _sum_over_taps(taps: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return Σ_k T_k K T_kᵀ of a kernel between all columns."""
    _, behind, before = taps.shape
    pairs = kernel.reshape(-1, before, len(kernel) // before, before)
    found = np.einsum("kai,sitj,kbj->satb", taps, pairs, taps, optimize=True)
    return found.reshape(-1, pairs.shape[2] * behind)
