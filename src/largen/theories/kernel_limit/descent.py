"""Steps of gradient descent in function space, exact for any loss, batches and momentum.

The weights stay in the span of the initial gradients, θ − θ₀ = Σ_μ α_μ ∇f_μ, and the tangent
kernel stays fixed, so that outputs are f = f₀ + Θα and a step on the batch b is

    v ← βv + η₀ Σ_{μ∈b} Δ_μ e_μ/|b|,   α ← α + v,   Δ_μ = −∂ℓ/∂f_μ.

With weight decay, initial weights shrink as well: see :mod:`largen.theories.chains.decay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from largen.kernels.modes import Scalar
from largen.runs import Loss
from largen.segments import scan_segments


class Problem(NamedTuple):
    """The static part of the problem, compiled into the programs of descent and flow."""

    loss: Loss
    scalar: bool  # the loss takes outputs without the output axis, which then has length 1
    observe: Callable[[Any, Any], Any]  # of largen.theories.kernel_limit.observables
    degree: int  # Λ of weight decay


class Arrays(NamedTuple):
    """Kernels between training samples, and test and training samples; targets; initial outputs."""

    ntk: Float[Array, "sample sample"]
    ntk_test: Float[Array, "test_sample sample"]
    y: Shaped[Array, "sample *target"]
    f0_train: Float[Array, "seed sample output"]
    f0_test: Float[Array, "seed test_sample output"]


def outputs_under_decay(
    problem: Problem, arrays: Arrays, alpha: Array, a: Array
) -> tuple[Array, Array]:
    """Return the outputs f = a^Λ f₀ + a^(Λ−1) Θα on training and test samples."""

    def outputs(f0: Array, kernel: Array) -> Array:
        moved = jnp.einsum("ij,sjc->sic", kernel, alpha)
        return a**problem.degree * f0 + a ** (problem.degree - 1) * moved

    return outputs(arrays.f0_train, arrays.ntk), outputs(arrays.f0_test, arrays.ntk_test)


def descend(
    problem: Problem,
    arrays: Arrays,
    rates: Float[Array, " time"],
    momentum: Scalar,
    batches: Int[Array, "step batch"] | None,
    decay: Scalar = 0.0,
) -> Any:
    """Return the observables before every step, stacked along a leading axis.

    At the last of the rates no step follows. ``batches``: indices of samples; None for all.
    """
    ntk = arrays.ntk
    still = jnp.zeros_like(arrays.f0_train)
    carry = ((still, jnp.ones((), ntk.dtype)), (still, jnp.zeros((), ntk.dtype)))
    settings = (rates, momentum, batches, decay)
    return scan_segments(_step, problem, carry, len(rates), arrays, *settings)[1]


def _step(problem, i, carry, arrays, rates, momentum, batches, decay) -> tuple[Any, Any]:
    """Return α, a and their velocities after a step, and the observables before it."""
    (alpha, a), (velocity, fall) = carry
    train, test = outputs_under_decay(problem, arrays, alpha, a)
    if batches is None:
        push = residuals(problem, train, arrays.y) / len(arrays.ntk)
    else:
        batch = batches[jnp.minimum(i, len(batches) - 1)]
        push = residuals(problem, train[:, batch], arrays.y[batch]) / batch.shape[0]
        push = jnp.zeros_like(arrays.f0_train).at[:, batch].add(push)
    velocity = momentum * velocity + rates[i] * (a ** (problem.degree - 1) * push - decay * alpha)
    fall = momentum * fall + rates[i] * decay * a
    return ((alpha + velocity, a - fall), (velocity, fall)), problem.observe(train, test)


def residuals(
    problem: Problem, f: Float[Array, "seed sample output"], y: Shaped[Array, "sample *target"]
) -> Float[Array, "seed sample output"]:
    """Return the residuals Δ = −∂ℓ/∂f of every network."""
    residual = jax.vmap(problem.loss.residual, in_axes=(0, None))
    return residual(f[..., 0], y)[..., None] if problem.scalar else residual(f, y)
