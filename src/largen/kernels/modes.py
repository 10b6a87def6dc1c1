"""Training on the squared error in closed form, mode by mode of the tangent kernel.

With Θ = U Λ Uᵀ on the P training samples and the residual y − f of each eigenvector,

    f_train(t) = y − U p(t) Uᵀ (y − f₀),     f_test(t) = f₀* + Θ* U g(t) Uᵀ (y − f₀),

where p is the remaining fraction of the residual and g = (1 − p)/λ its integral over training. Both
are computed without this quotient, so that eigenvalues may be 0 (equal rows).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from largen.segments import scan_segments

Scalar = float | Float[Array, ""]


class Modes(NamedTuple):
    """Eigenvalues λ (P,), eigenvectors U (P, P), and Θ*U (M, P) from train to test."""

    values: Float[Array, " mode"]
    vectors: Float[Array, "sample mode"]
    test: Float[Array, "test_sample mode"]


class Factors(NamedTuple):
    """p and g of every mode at every recorded time, (T, P) each."""

    left: Float[Array, "time mode"]
    integral: Float[Array, "time mode"]


@jax.jit
def decompose(
    ntk: Float[Array, "sample sample"], ntk_test: Float[Array, "test_sample sample"]
) -> Modes:
    """Diagonalise the tangent kernel; negative eigenvalues are rounding and are set to 0."""
    values, vectors = jnp.linalg.eigh(ntk)
    return Modes(jnp.maximum(values, 0), vectors, ntk_test @ vectors)


@jax.jit
def flow_factors(values: Float[Array, " mode"], times: Float[Array, " time"]) -> Factors:
    """Return p = e^(−λt) and g = (1 − e^(−λt))/λ, for times in units of P/η₀.

    Bahri and Hanin, Les Houches lectures, eqs. (87)-(90).
    """
    positive = values > 0
    exponent = times[:, None] * values
    integral = -jnp.expm1(-exponent) / jnp.where(positive, values, 1)
    return Factors(jnp.exp(-exponent), jnp.where(positive, integral, times[:, None]))


@jax.jit
def descent_factors(
    values: Float[Array, " mode"], rates: Float[Array, " entry"], momentum: Scalar
) -> Factors:
    """Return p and g before each step of gradient descent with momentum β.

    With η̂_s = η₀/P at step s, p₀ = 1 and zero initial velocity,

        p_{s+1} = p_s − η̂_sλ p_s + β (p_s − p_{s−1}),   g_{s+1} = g_s + η̂_s p_s + β (g_s − g_{s−1}).
    """

    def step(carry, rate):
        p, p_velocity, g, g_velocity = carry
        p_velocity = momentum * p_velocity - rate * values * p
        g_velocity = momentum * g_velocity + rate * p
        return (p + p_velocity, p_velocity, g + g_velocity, g_velocity), (p, g)

    one, zero = jnp.ones_like(values), jnp.zeros_like(values)
    _, (left, integral) = lax.scan(step, (one, zero, zero, zero), rates)
    return Factors(left, integral)


def critical_rate(largest: float, momentum: float = 0.0) -> float:
    """Return the rate above which the mode with the largest eigenvalue diverges, 2(1 + β)/λ."""
    return 2 * (1 + momentum) / largest if largest > 0 else float("inf")


@jax.jit
def outputs(
    modes: Modes,
    factors: Factors,
    y: Float[Array, "sample output"],
    f0_train: Float[Array, "seed sample output"],
    f0_test: Float[Array, "seed test_sample output"],
) -> tuple[Float[Array, "seed time sample output"], Float[Array, "seed time test_sample output"]]:
    """Return the outputs on training and test samples, given the initial outputs."""

    def one(start):
        train, test = start
        residual = modes.vectors.T @ (y - train)
        gained = factors.integral[:, :, None] * residual  # λg = 1 − p: exact at the start
        return (
            train + jnp.einsum("im,tmc->tic", modes.vectors * modes.values, gained),
            test + jnp.einsum("jm,tmc->tjc", modes.test, gained),
        )

    return lax.map(one, (f0_train, f0_test))


def second_moments(
    modes: Modes,
    factors: Factors,
    root_train: Float[Array, "sample noise"],
    root_test: Float[Array, "test_sample noise"],
    covariance: bool,
) -> tuple[Float[Array, "time sample ..."], Float[Array, "time test_sample ..."]]:
    """Return variances or covariances of the outputs, for initial outputs f₀ = root · N(0, 1)."""
    of_root = _covariance if covariance else _variance
    projected = modes.vectors.T @ root_train
    number = len(factors.left)
    return scan_segments(_at_time, of_root, (), number, modes, factors, projected, root_test)[1]


def _variance(root):
    return jnp.sum(root**2, axis=1)


def _covariance(root):
    return root @ root.T


def _at_time(of_root, i, carry, modes, factors, projected, root_test):
    train = modes.vectors @ (factors.left[i][:, None] * projected)
    test = root_test - modes.test @ (factors.integral[i][:, None] * projected)
    return carry, (of_root(train), of_root(test))
