"""Steps of gradient descent in function space, exact for any loss, batches and momentum.

The weights stay in the span of the initial gradients, θ − θ₀ = Σ_μ α_μ ∇f_μ, and the tangent
kernel does not move, so that outputs are f = f₀ + Θα and a step on the batch b is

    v ← βv + η₀ Σ_{μ∈b} Δ_μ e_μ/|b|,   α ← α + v,   Δ_μ = −∂ℓ/∂f_μ.

With weight decay, initial weights shrink as well: see :mod:`largen.kernels.decay`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from largen.kernels.modes import Scalar
from largen.runs import Loss


def shrunken(f0: Array, kernel: Array, alpha: Array, a: Array, degree: int) -> Array:
    """Return f = a^Λ f₀ + a^(Λ−1) Θα of every network."""
    moved = jnp.einsum("ij,sjc->sic", kernel, alpha)
    return a**degree * f0 + a ** (degree - 1) * moved


@partial(jax.jit, static_argnames=("loss", "scalar", "observe", "degree"))
def descend(
    loss: Loss,
    scalar: bool,
    observe: Callable[[Any, Any], Any],
    ntk: Float[Array, "sample sample"],
    ntk_test: Float[Array, "test_sample sample"],
    y: Shaped[Array, "sample *target"],
    f0_train: Float[Array, "seed sample output"],
    f0_test: Float[Array, "seed test_sample output"],
    rates: Float[Array, " entry"],
    momentum: Scalar,
    batches: Int[Array, "step batch"] | None,
    decay: Scalar = 0.0,
    degree: int = 1,
) -> Any:
    """Return what is observed before every step, stacked along a leading axis.

    Parameters
    ----------
    loss
        ℓ.
    scalar
        Whether the loss sees outputs without their axis, which then has length 1.
    observe
        A function from :mod:`largen.kernels.observables`.
    ntk, ntk_test
        Θ among training samples, and from test to training samples.
    y
        Targets.
    f0_train, f0_test
        Initial outputs of every network.
    rates
        η₀ of every step; the last entry is observed, and its step not taken.
    momentum
        β.
    batches
        Samples of every step; None for all of them.
    decay, degree
        λ and Λ of weight decay.
    """

    samples, still = ntk.shape[0], jnp.zeros_like(f0_train)

    def step(carry, now):
        batch, rate = now
        (alpha, a), (velocity, fall) = carry
        train = shrunken(f0_train, ntk, alpha, a, degree)
        seen = observe(train, shrunken(f0_test, ntk_test, alpha, a, degree))
        if batch is None:
            push = residuals(loss, scalar, train, y) / samples
        else:
            push = residuals(loss, scalar, train[:, batch], y[batch]) / batch.shape[0]
            push = still.at[:, batch].add(push)
        velocity = momentum * velocity + rate * (a ** (degree - 1) * push - decay * alpha)
        fall = momentum * fall + rate * decay * a
        return ((alpha + velocity, a - fall), (velocity, fall)), seen

    if batches is not None:
        batches = jnp.concatenate([batches, batches[:1]])
    one, zero = jnp.ones((), ntk.dtype), jnp.zeros((), ntk.dtype)
    return lax.scan(step, ((still, one), (still, zero)), (batches, rates))[1]


def residuals(
    loss: Loss,
    scalar: bool,
    f: Float[Array, "seed sample output"],
    y: Shaped[Array, "sample *target"],
) -> Float[Array, "seed sample output"]:
    """Return Δ of every network."""
    if scalar:
        return jax.vmap(loss.residual, in_axes=(0, None))(f[..., 0], y)[..., None]
    return jax.vmap(loss.residual, in_axes=(0, None))(f, y)
