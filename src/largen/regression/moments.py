"""Mean and covariance of test outputs, from kernels and the factor of the training kernel."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular as solve_lower

from largen.interrupts import check
from largen.regression.factor import solve, whiten

BLOCK = 512  # test samples whose covariances with all others are computed together

Own = Float[Array, "test_sample test_sample"] | Float[Array, " test_sample"]

Moments = tuple[Float[Array, "test_sample output"], Own]


@partial(jax.jit, static_argnames="singular")
def posterior_moments(
    # root, singular: the factor's root, and whether A is singular, where A is the training kernel
    # plus noise.
    root: Float[Array, "sample mode"],
    singular: bool,
    weights: Float[Array, "sample output"],  # A⁻¹y
    cross: Float[Array, "test_sample sample"],  # K* from test to training samples
    # K** of all pairs of test samples, or only its diagonal; the result has the same form.
    own: Own,
) -> Moments:
    """Return mean and covariance after Bayesian inference, K*A⁻¹y and K** − K*A⁻¹K*ᵀ."""
    white = whiten(root, singular, cross.T)
    if own.ndim == 1:
        return cross @ weights, jnp.maximum(own - jnp.sum(white**2, axis=0), 0)
    covariance = own - white.T @ white
    return cross @ weights, (covariance + covariance.T) / 2


@partial(jax.jit, static_argnames="singular")
def trained_moments(
    # root, singular, weights, cross: as in posterior_moments, for the tangent kernel.
    root: Float[Array, "sample mode"],
    singular: bool,
    weights: Float[Array, "sample output"],
    cross: Float[Array, "test_sample sample"],
    # own, prior, prior_cross: K**, or its diagonal, K and K*.
    own: Own,
    prior: Float[Array, "sample sample"],
    prior_cross: Float[Array, "test_sample sample"],
) -> Moments:
    """Return mean and covariance of trained networks, By and K** − K*Bᵀ − BK*ᵀ + BKBᵀ.

    B = Θ*A⁻¹, and the covariance is that of f* − Bf, with f* and f a network's initial outputs.
    """
    response = solve(root, singular, cross.T).T
    pushed = response @ prior - prior_cross
    if own.ndim == 1:
        variance = own + jnp.sum((pushed - prior_cross) * response, axis=1)
        return cross @ weights, jnp.maximum(variance, 0)
    covariance = own + pushed @ response.T - response @ prior_cross.T
    return cross @ weights, (covariance + covariance.T) / 2


@jax.jit
def flow_moments(
    # vectors, gained, seen: V, g(t) and Vᵀy.
    vectors: Float[Array, "sample mode"],
    gained: Float[Array, "time mode"],
    seen: Float[Array, "mode output"],
    # cross, own, prior, prior_cross: as in trained_moments.
    cross: Float[Array, "test_sample sample"],
    own: Own,
    prior: Float[Array, "sample sample"],
    prior_cross: Float[Array, "test_sample sample"],
) -> tuple[Array, Array]:
    """As :func:`trained_moments`, with B(t) = Θ*V g(t) Vᵀ, at each time of gradient flow."""
    along, outer = cross @ vectors, prior_cross @ vectors
    inner = vectors.T @ prior @ vectors

    def at(g):
        response = along * g
        pushed = response @ inner - outer
        mean = response @ seen
        if own.ndim == 1:
            return mean, jnp.maximum(own + jnp.sum((pushed - outer) * response, axis=1), 0)
        covariance = own + pushed @ response.T - response @ outer.T
        return mean, (covariance + covariance.T) / 2

    return lax.map(at, gained)


def in_blocks(
    root: np.ndarray,
    singular: bool,
    weights: np.ndarray,
    cross: np.ndarray,
    own: np.ndarray,
    prior: np.ndarray | None,
    prior_cross: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return :func:`posterior_moments`, or :func:`trained_moments` with a prior, by blocks."""
    count = len(cross)
    blocks = [slice(i, min(i + BLOCK, count)) for i in range(0, count, BLOCK)]
    answers = np.empty_like(cross)  # columns of Rᵀ K*ᵀ, or of A⁻¹Θ*ᵀ
    for rows in blocks:
        answers[rows] = _solve(root, singular, cross[rows].T, whole=prior is not None).T
        check()
    covariance = own.copy()
    for rows in blocks:
        if prior is None or prior_cross is None:
            covariance[rows] -= answers[rows] @ answers.T
        else:
            pushed = answers[rows] @ prior - prior_cross[rows]
            covariance[rows] += pushed @ answers.T - answers[rows] @ prior_cross.T
        check()
    return cross @ weights, (covariance + covariance.T) / 2


def _solve(root: np.ndarray, singular: bool, columns: np.ndarray, *, whole: bool) -> np.ndarray:
    """Return Rᵀ times columns, or if ``whole`` A⁻¹ times columns."""
    if singular:
        white = root.T @ columns
        padded = np.pad(white, ((0, len(root) - len(white)), (0, 0)))
        return root @ white if whole else padded
    white = solve_lower(root, columns, lower=True, check_finite=False)
    return solve_lower(root, white, lower=True, trans=1, check_finite=False) if whole else white
