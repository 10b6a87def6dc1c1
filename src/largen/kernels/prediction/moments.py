"""Mean and covariance of test outputs, from kernels and the factor of the training kernel."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from largen.kernels.prediction.factor import solve, whiten

Own = Float[Array, "test_sample test_sample"] | Float[Array, " test_sample"]


@partial(jax.jit, static_argnames="singular")
def inferred(
    root: Float[Array, "sample mode"],
    singular: bool,
    cross: Float[Array, "test_sample sample"],
    own: Own,
) -> Own:
    """Return the covariance after Bayesian inference, K** − K*A⁻¹K*ᵀ.

    Parameters
    ----------
    root, singular
        Of the factor of A, the training kernel with its noise.
    cross
        K* from test to training samples.
    own
        K** of all pairs of test samples, or only its diagonal; the result is of that kind.
    """
    white = whiten(root, singular, cross.T)
    if own.ndim == 1:
        return own - jnp.sum(white**2, axis=0)
    return own - white.T @ white


@partial(jax.jit, static_argnames="singular")
def trained(
    root: Float[Array, "sample mode"],
    singular: bool,
    cross: Float[Array, "test_sample sample"],
    own: Own,
    prior: Float[Array, "sample sample"],
    prior_cross: Float[Array, "test_sample sample"],
) -> Own:
    """Return the covariance of trained networks, K** − K*Bᵀ − BK*ᵀ + BKBᵀ with B = Θ*A⁻¹.

    It is that of f* − Bf, where f* and f are a network's own initial outputs.

    Parameters
    ----------
    root, singular, cross
        As in :func:`inferred`, of the tangent kernel.
    own, prior, prior_cross
        K**, or its diagonal, K and K*.
    """
    response = solve(root, singular, cross.T).T
    pushed = response @ prior - prior_cross
    if own.ndim == 1:
        return own + jnp.sum((pushed - prior_cross) * response, axis=1)
    return own + pushed @ response.T - response @ prior_cross.T
