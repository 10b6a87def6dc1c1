"""The loss's Hessian in units of the rate, of one hidden layer: its top, and along the gradient.

In coordinates in which a step of the rate η₀ is −η₀ times the gradient, the Hessian has a block
R_i for each neuron and, by the linearised outputs, a part of finite rank. With κ = γ₀/P, ρ the
rates of dynamics.py, j_μ = (√ρ_out φ(h_μ), √ρ ∘ z φ′(h_μ)F_μ) and sums over samples and outputs,

    R = κ Σ_μ ℓ′_μ [[0, √ρ_out φ′(h_μ)(√ρ ∘ F_μ)ᵀ], [·, z φ″(h_μ)(√ρ ∘ F_μ)(√ρ ∘ F_μ)ᵀ]],

and an eigenvalue λ above those of all R_i solves (a determinant of Schur complements; derived for
largen)

    det(1 − (1/P) √ℓ″ [⟨jᵀ(λ − R)⁻¹j⟩ + ρ_b σ_b²/λ] √ℓ″) = 0.

Along the gradient, with u = ℓ′/P and K = ⟨jᵀj⟩ + ρ_b σ_b²,

    gᵀHg/|g|² = [⟨(ju)ᵀR(ju)⟩ + (1/P)(Ku)ᵀℓ″(Ku)]/uᵀKu.

Eigenvalues of the matrix fall with λ. If the eigenvector is a single neuron's, the eigenvalue grows
with the number of neurons, and there is no limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from largen.memory import check_fits
from largen.theories.mean_field.one_hidden_layer.problem import OneLayerProblem

_BEYOND = 1e-12  # relative distance from the largest eigenvalue of single neurons


class Layer(NamedTuple):
    """Neurons, as in dynamics.py."""

    directions: np.ndarray  # a, (neuron, direction)
    readout: np.ndarray  # z, (neuron, output)
    weights: np.ndarray  # (neuron,)


def hessian_sharpness(
    problem: OneLayerProblem, layer: Layer, first: np.ndarray, second: np.ndarray
) -> tuple[float, float, float]:
    """Return the largest eigenvalue at a rate of 1, its largest fraction in one neuron, gᵀHg/|g|².

    ``first``, ``second``: ℓ′ (sample, output), and ℓ″ (sample, output, output).
    """
    from scipy.optimize import brentq

    samples, outputs = first.shape
    pull = problem.gamma / samples * first
    values, images = _of_neurons(problem, layer, pull)
    along = _along_gradient(problem, layer, (values, images), first, second)
    on = np.linalg.eigh(second)
    root = (on.eigenvectors * np.sqrt(np.maximum(on.eigenvalues, 0))[:, None]) @ np.swapaxes(
        on.eigenvectors, 1, 2
    )
    images = np.einsum("nims,msc->nimc", images, root).reshape(*values.shape, -1)
    images = images / np.sqrt(samples)
    bias = np.einsum("msc,nsd->mcnd", root, root).reshape(samples * outputs, -1)
    bias = bias * problem.out_bias_rate / samples

    def matrix(at: float) -> np.ndarray:
        weighted = images * (layer.weights[:, None] / (at - values))[..., None]
        rows = images.reshape(-1, images.shape[-1])
        return rows.T @ weighted.reshape(rows.shape) + bias / at

    top = max(float(values.max()), 0.0)
    trace = float(np.sum(images**2 * layer.weights[:, None, None]) + np.trace(bias))
    if trace == 0:
        return top, 1.0, along
    low, high = top + _BEYOND * trace, top + 1.001 * trace
    found: Any = low
    if np.linalg.eigvalsh(matrix(low))[-1] > 1:
        found = brentq(lambda at: float(np.linalg.eigvalsh(matrix(at))[-1]) - 1, low, high)
    vector = np.linalg.eigh(matrix(found))[1][:, -1]
    parts = (images @ vector / (found - values)) ** 2
    shares = layer.weights * parts.sum(axis=1)
    whole = shares.sum() + float(vector @ bias @ vector) / found**2
    return float(found), float(shares.max() / whole), along


def _along_gradient(
    problem: OneLayerProblem,
    layer: Layer,
    neurons: tuple[np.ndarray, np.ndarray],
    first: np.ndarray,
    second: np.ndarray,
) -> float:
    """Return gᵀHg/|g|²; 0 if g is 0. ``neurons``: what ``_of_neurons`` returns."""
    values, images = neurons
    samples = len(first)
    slope = first / samples
    parts = np.einsum("nimc,mc->ni", images, slope)  # of the gradient, in each neuron's modes
    weighted = layer.weights[:, None] * parts
    bias = problem.out_bias_rate * slope.sum(axis=0)
    moved = np.einsum("nimc,ni->mc", images, weighted) + bias
    square = float(np.sum(moved * slope))
    bent = float(np.sum(weighted * values * parts))
    bent += float(np.einsum("mc,mcd,md->", moved, second, moved)) / samples
    return bent / square if square > 0 else 0.0


def _of_neurons(
    problem: OneLayerProblem, layer: Layer, pull: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues of R (neuron, mode), and j in its eigenvectors.

    The latter are (neuron, mode, sample, output).
    """
    z, a = layer.readout, layer.directions
    (count, outputs), (samples, directions) = z.shape, problem.train.shape
    size = outputs + directions
    check_fits(
        8.0 * 4 * count * size * samples * outputs,
        f"record: the sharpness of {count} neurons",
        "Pass fewer particles.",
    )
    fields, out = problem.train * np.sqrt(problem.rate), np.sqrt(problem.out_rate)
    h = a @ problem.train.T
    phi = problem.phi
    features, slopes, bends = (np.asarray(f, np.float64) for f in (phi(h), *phi.derivatives(h)))
    R = np.zeros((count, size, size))
    cross = out * np.einsum("nm,mc,md->ncd", slopes, pull, fields)
    R[:, :outputs, outputs:], R[:, outputs:, :outputs] = cross, np.swapaxes(cross, 1, 2)
    bent = bends * (z @ pull.T)
    R[:, outputs:, outputs:] = np.einsum("nm,md,me->nde", bent, fields, fields, optimize=True)
    J = np.zeros((count, size, samples, outputs))
    for c in range(outputs):
        J[:, c, :, c] = out * features
        J[:, outputs:, :, c] = z[:, None, None, c] * slopes[:, None, :] * fields.T
    values, vectors = np.linalg.eigh(R)
    return values, np.einsum("ndi,ndmc->nimc", vectors, J, optimize=True)
