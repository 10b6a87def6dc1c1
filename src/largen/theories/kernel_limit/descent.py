"""Steps of gradient descent in function space, exact for any loss, batches and momentum.

The weights stay in the span of the initial gradients, θ − θ₀ = Σ_μ α_μ ∇f_μ, and the tangent
kernel stays fixed, so that outputs are f = f₀ + Θα and a step on the batch b is

    v ← βv + η₀ Σ_{μ∈b} Δ_μ e_μ/|b|,   α ← α + v,   Δ_μ = −∂ℓ/∂f_μ.

With weight decay, initial weights shrink as well: see :mod:`largen.theories.kernel_limit.decay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from largen.kernels.modes import Scalar
from largen.runs import Loss
from largen.segments import scan_segments


def outputs_under_decay(f0: Array, kernel: Array, alpha: Array, a: Array, degree: int) -> Array:
    """Return the outputs f = a^Λ f₀ + a^(Λ−1) Θα of every network under weight decay."""
    moved = jnp.einsum("ij,sjc->sic", kernel, alpha)
    return a**degree * f0 + a ** (degree - 1) * moved


def descend(
    loss: Loss,
    scalar: bool,
    observe: Callable[[Any, Any], Any],
    ntk: Float[Array, "sample sample"],
    ntk_test: Float[Array, "test_sample sample"],
    y: Shaped[Array, "sample *target"],
    f0_train: Float[Array, "seed sample output"],
    f0_test: Float[Array, "seed test_sample output"],
    rates: Float[Array, " time"],
    momentum: Scalar,
    batches: Int[Array, "step batch"] | None,
    decay: Scalar = 0.0,
    degree: int = 1,
) -> Any:
    """Return the observables before every step, stacked along a leading axis.

    Parameters
    ----------
    loss
        ℓ.
    scalar
        Whether the loss takes outputs without the output axis, which then has length 1.
    observe
        A function from :mod:`largen.theories.kernel_limit.observables`.
    ntk, ntk_test
        Θ between training samples, and between test and training samples.
    y
        Targets.
    f0_train, f0_test
        Initial outputs of every network.
    rates
        η₀ of every step; at the last time index outputs are observed without a further step.
    momentum
        β.
    batches
        Indices of the samples in the minibatch of every step; None for full batches.
    decay, degree
        λ and Λ of weight decay.
    """

    still, one, zero = jnp.zeros_like(f0_train), jnp.ones((), ntk.dtype), jnp.zeros((), ntk.dtype)
    fixed = (loss, scalar, observe, degree)
    carry = ((still, one), (still, zero))
    arrays = (ntk, ntk_test, y, f0_train, f0_test, rates, momentum, batches, decay)
    return scan_segments(_step, fixed, carry, len(rates), *arrays)[1]


def _step(
    fixed, i, carry, ntk, ntk_test, y, f0_train, f0_test, rates, momentum, batches, decay
) -> tuple[Any, Any]:
    """Return α, a and their velocities after a step, and the observables before it."""
    loss, scalar, observe, degree = fixed
    (alpha, a), (velocity, fall) = carry
    train = outputs_under_decay(f0_train, ntk, alpha, a, degree)
    seen = observe(train, outputs_under_decay(f0_test, ntk_test, alpha, a, degree))
    if batches is None:
        push = residuals(loss, scalar, train, y) / ntk.shape[0]
    else:
        batch = batches[jnp.minimum(i, len(batches) - 1)]
        push = residuals(loss, scalar, train[:, batch], y[batch]) / batch.shape[0]
        push = jnp.zeros_like(f0_train).at[:, batch].add(push)
    velocity = momentum * velocity + rates[i] * (a ** (degree - 1) * push - decay * alpha)
    fall = momentum * fall + rates[i] * decay * a
    return ((alpha + velocity, a - fall), (velocity, fall)), seen


def residuals(
    loss: Loss,
    scalar: bool,
    f: Float[Array, "seed sample output"],
    y: Shaped[Array, "sample *target"],
) -> Float[Array, "seed sample output"]:
    """Return the residuals Δ = −∂ℓ/∂f of every network."""
    if scalar:
        return jax.vmap(loss.residual, in_axes=(0, None))(f[..., 0], y)[..., None]
    return jax.vmap(loss.residual, in_axes=(0, None))(f, y)
