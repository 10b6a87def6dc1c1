"""Mean and covariance of test outputs, from kernels and the factor of the training kernel."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from largen.regression.factor import solve, whiten

Own = Float[Array, "test_sample test_sample"] | Float[Array, " test_sample"]

Moments = tuple[Float[Array, "test_sample output"], Own]


@partial(jax.jit, static_argnames="singular")
def inferred(
    root: Float[Array, "sample mode"],
    singular: bool,
    weights: Float[Array, "sample output"],
    cross: Float[Array, "test_sample sample"],
    own: Own,
) -> Moments:
    """Return mean and covariance after Bayesian inference, K*A⁻¹y and K** − K*A⁻¹K*ᵀ.

    Parameters
    ----------
    root, singular
        Of the factor of A, the training kernel with its noise.
    weights
        A⁻¹y.
    cross
        K* from test to training samples.
    own
        K** of all pairs of test samples, or only its diagonal; the result is of that kind.
    """
    white = whiten(root, singular, cross.T)
    if own.ndim == 1:
        return cross @ weights, jnp.maximum(own - jnp.sum(white**2, axis=0), 0)
    covariance = own - white.T @ white
    return cross @ weights, (covariance + covariance.T) / 2


@partial(jax.jit, static_argnames="singular")
def trained(
    root: Float[Array, "sample mode"],
    singular: bool,
    weights: Float[Array, "sample output"],
    cross: Float[Array, "test_sample sample"],
    own: Own,
    prior: Float[Array, "sample sample"],
    prior_cross: Float[Array, "test_sample sample"],
) -> Moments:
    """Return mean and covariance of trained networks, By and K** − K*Bᵀ − BK*ᵀ + BKBᵀ.

    B = Θ*A⁻¹, and the covariance is that of f* − Bf with a network's own initial outputs f*, f.

    Parameters
    ----------
    root, singular, weights, cross
        As in :func:`inferred`, of the tangent kernel.
    own, prior, prior_cross
        K**, or its diagonal, K and K*.
    """
    response = solve(root, singular, cross.T).T
    pushed = response @ prior - prior_cross
    if own.ndim == 1:
        variance = own + jnp.sum((pushed - prior_cross) * response, axis=1)
        return cross @ weights, jnp.maximum(variance, 0)
    covariance = own + pushed @ response.T - response @ prior_cross.T
    return cross @ weights, (covariance + covariance.T) / 2


@jax.jit
def flowed(
    vectors: Float[Array, "sample mode"],
    gained: Float[Array, "time mode"],
    seen: Float[Array, "mode output"],
    cross: Float[Array, "test_sample sample"],
    own: Own,
    prior: Float[Array, "sample sample"],
    prior_cross: Float[Array, "test_sample sample"],
) -> tuple[Array, Array]:
    """Return mean and covariance at each time of gradient flow, as :func:`trained` with B(t).

    B(t) = Θ*V g(t) Vᵀ.

    Parameters
    ----------
    vectors, gained, seen
        V, g(t) and Vᵀy.
    cross, own, prior, prior_cross
        As in :func:`trained`.
    """
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
