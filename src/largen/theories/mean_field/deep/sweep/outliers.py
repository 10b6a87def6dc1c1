r"""The largest singular values of trained hidden weights, from what the causal sweep holds.

A trained matrix is a Gaussian one and a change of finite rank, V/s = V(0) + Q_o M Q_iᵀ/N with the
share s that decay leaves, whose directions depend on V(0). In the bases of the sweep it has the
block A = Â + B̂ + M with

    Â = Ξ_oᵀQ_i/N,   B̂ = Q_oᵀΞ_i/N,

the response functions; conditioned on its products (Bolthausen), the rest of V(0) is Gaussian and
independent of them. Eliminating it by its resolvents leaves, for r_o N × r_i N entries of variance
1/N, the singular values σ above the edge √r_o + √r_i as solutions of λ_k(H(σ)) = σ,

    H(σ) = [[g_i (r_i − ÂÂᵀ), A], [Aᵀ, g_o (r_o − B̂ᵀB̂)]],   g_o = 1/(σ − r_i g_i),
                                                             g_i = 1/(σ − r_o g_o).

Eigenvalues of H fall with σ, so that the k-th singular value lies above the edge if and only if
λ_k(H) does there, and is then the only solution. An eigenvector (a, b) of H(σ) with
aᵀa + bᵀb − (a, b)ᵀH′(a, b) = 2 has the components of the left and the right singular vector.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from largen.compilation import Sooner
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.matrices.by_directions import Matrices
from largen.theories.mean_field.deep.sweep.causal_sweep import Seen, live_features
from largen.theories.mean_field.deep.sweep.state import SweepConstants, SweepModel, SweepState

MOST = 8  # singular values that are recorded of each matrix
ABOVE = 1e-7  # relative distance from the edge of a singular value that is none of the bulk
LEAST_SHARE = 1e-9  # of V(0): below it the bulk is 0


class Small(NamedTuple):
    """A trained matrix in the bases of its directions."""

    # response, back, change: Â, B̂ and M, of V/s.
    response: Float[np.ndarray, "o i"]
    back: Float[np.ndarray, "o i"]
    change: Float[np.ndarray, "o i"]
    # features, gradients: Σ_μ φ(h_μ)y_μ and Σ_μ g_μ y_μ of each output in the bases, over their
    # lengths.
    features: Float[np.ndarray, "i output"]
    gradients: Float[np.ndarray, "o output"]
    # rows, columns: r_o and r_i.
    rows: float
    columns: float


def largest(
    problem: Problem, model: SweepModel, state: SweepState, constants: SweepConstants, seen: Seen
) -> Float[np.ndarray, "matrix four value"]:
    """Return the largest singular values of each matrix, overlaps of their vectors, and edges.

    A singular value that is not above the edge is the edge. The factors of branches are left out.
    """
    matrices = state.matrices
    assert isinstance(matrices, Matrices)
    small = [np.asarray(part, np.float64) for part in _small(model, state, constants, seen)]
    share = np.asarray(state.params.scale, np.float64)
    share = np.where(np.abs(share) < LEAST_SHARE, LEAST_SHARE, share)
    factors = np.asarray(constants.std[:-1], np.float64) * np.abs(share)
    factors = factors / np.where(problem.into_stream, problem.branch, 1.0)
    found = np.zeros((matrices.number, 4, MOST))
    for l, (inputs, outputs) in enumerate(matrices.ranks):
        taps = matrices.inputs.basis.shape[2] // matrices.outputs.basis.shape[2]
        response, back, change = (part[l, :outputs, :inputs] for part in small[:3])
        one = Small(
            response,
            back,
            change / share[l],
            small[3][l, :inputs],
            small[4][l, :outputs],
            float(constants.ratios[l + 1]),
            float(constants.ratios[l]) * taps,
        )
        values, edge = outliers(one)
        found[l, 0], found[l, 3] = factors[l] * edge, factors[l] * edge
        found[l, :3, : len(values)] = values.T * [[factors[l]], [1.0], [1.0]]
    return found


@partial(Sooner, static_argnums=0)
def _small(model: SweepModel, state: SweepState, constants: SweepConstants, seen: Seen):
    """Return Â, B̂, M, and the features and gradients times targets, with rows of zeros."""
    matrices, weight, at = state.matrices, constants.precision.weight, constants.positions
    assert isinstance(matrices, Matrices)
    (inputs, outputs), samples = (matrices.inputs, matrices.outputs), constants.kernels.shape[2]
    y = _targets(model, constants)
    h = seen.h[:, : samples * at.places]
    g = seen.g[:, : samples * at.places * len(state.params.readout)]

    def product(near: Float[Array, "m a n"], far: Float[Array, "m b n"]):
        return weight * jnp.einsum("man,mbn->mab", near, far)

    def directions(l):
        x = at.patches(l, live_features(model, constants, l, h[l]))
        x = x.reshape(samples, -1, x.shape[1]).sum(1)
        back = at.narrow(g[l + 1])
        back = back.reshape(samples, len(state.params.readout), -1, back.shape[1]).sum(2)
        return _unit(y.T @ x, weight), _unit(jnp.einsum("mc,mcn->cn", y, back), weight)

    ends = [directions(l) for l in range(matrices.number)]
    features, gradients = (jnp.stack(rows) for rows in zip(*ends, strict=True))
    return (
        product(outputs.images, inputs.basis),
        product(outputs.basis, inputs.images),
        matrices.change,
        product(inputs.basis, features),
        product(outputs.basis, gradients),
    )


def _unit(rows: Float[Array, "output n"], weight) -> Float[Array, "output n"]:
    size = jnp.sqrt(weight * jnp.sum(rows**2, 1, keepdims=True))
    return rows / jnp.where(size > 0, size, 1)


def _targets(model: SweepModel, constants: SweepConstants) -> Float[Array, "sample output"]:
    """Return the targets of each output; of classes whether a sample is of it, less the mean."""
    y, samples = constants.targets, constants.kernels.shape[2]
    if not jnp.issubdtype(y.dtype, jnp.floating):
        classes = jax.nn.one_hot(y, model.output_shape[0], dtype=constants.fields.dtype)
        return classes - classes.mean(0)
    return y.reshape(samples, -1)


def outliers(small: Small) -> tuple[Float[np.ndarray, "k 3"], float]:
    """Return σ, the right and the left overlap of those above the edge, at most MOST; the edge."""
    from scipy.optimize import brentq

    edge = small.rows**0.5 + small.columns**0.5
    above = edge * (1 + ABOVE)
    if not np.isfinite(small.change).all():
        return np.full((MOST, 3), np.nan), edge

    def eigenvalues(sigma: float) -> np.ndarray:
        return np.linalg.eigvalsh(_block(small, sigma)[0])[::-1]

    tops = eigenvalues(above)
    tops = tops[tops > above][:MOST]
    found = np.zeros((len(tops), 3))
    for k, top in enumerate(tops):
        least = above, top * (1 + ABOVE)
        root: Any = brentq(lambda sigma, k=k: eigenvalues(sigma)[k] - sigma, *least, xtol=1e-10)
        found[k, 0] = root
        found[k, 1:] = _overlaps(small, found[k, 0], k)
    return found, edge


def _overlaps(small: Small, sigma: float, k: int) -> list[float]:
    """Return the lengths of the projections on features and gradients times targets."""
    block, slope = _block(small, sigma)
    vector = np.linalg.eigh(block)[1][:, -1 - k]
    vector = vector * np.sqrt(2 / (1 - vector @ slope @ vector))
    left, right = np.split(vector, [len(small.change)])
    spans = (small.features, right), (small.gradients, left)
    return [float(np.linalg.norm(np.linalg.qr(span)[0].T @ part)) for span, part in spans]


def _block(small: Small, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return H(σ), and H′(σ)."""
    (g_o, slope_o), (g_i, slope_i) = _resolvents(small, sigma)
    a, b = small.response, small.back
    before = small.columns * np.eye(len(a)) - a @ a.T
    behind = small.rows * np.eye(a.shape[1]) - b.T @ b
    middle = a + b + small.change
    none = np.zeros_like(middle)
    block = np.block([[g_i * before, middle], [middle.T, g_o * behind]])
    return block, np.block([[slope_i * before, none], [none.T, slope_o * behind]])


def _resolvents(small: Small, sigma: float) -> list[tuple[float, float]]:
    """Return g_o and g_i with their derivatives: r σ g² − (σ² + r − r′) g + σ = 0."""
    found = []
    for r, other in ((small.rows, small.columns), (small.columns, small.rows)):
        p = sigma**2 + r - other
        root = np.sqrt(max(p * p - 4 * r * sigma**2, 0.0))
        g = (p - root) / (2 * r * sigma)
        found.append((g, (r * g * g - 2 * sigma * g + 1) / max(root, 1e-300)))
    return found
