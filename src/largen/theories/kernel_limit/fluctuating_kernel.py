r"""Training at a constant kernel Θ + δ, to second order in the deviation δ.

Outputs under the squared error are f = f₀ + (Θ + δ)α, and α follows from them, linearly. With
α = α⁰ + α¹ + α² by powers of δ,

    f⁰ = f₀ + Θα⁰,   f¹ = Θα¹ + δα⁰,   f² = Θα² + δα¹,

and α^k is driven by Δ^k = y·[k = 0] − f^k on training samples: f¹ = DF·δ and f² = ½D²F(δ, δ) of the
outputs F. Unlike F(Θ + δ), the sum does not diverge where single kernels pass the critical rate.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from largen.integration import runge_kutta_step
from largen.interrupts import check as check_interrupts
from largen.parameterizations import momentum_of
from largen.runs import Run
from largen.segments import scan_segments

ORDERS = 3
LARGEST_STEP = 0.1  # of λt, in the method of Runge and Kutta: errors of 1e-6


def by_orders(
    run: Run,
    kernel: Float[np.ndarray, "row sample"],
    deviations: Float[np.ndarray, "draw row sample"],
    f0: Float[np.ndarray, "draw row"],
    y: Float[np.ndarray, " sample"],
) -> Float[np.ndarray, "order time draw row"]:
    """Return the outputs at all times by powers of the deviation; rows are train, then test."""
    arrays = tuple(jnp.asarray(a) for a in (kernel, deviations, f0, y))
    alpha = jnp.zeros((ORDERS, len(f0), len(y)))
    if run.steps is None:
        return np.moveaxis(_flow(run, arrays, alpha), 0, 1)
    rates = jnp.asarray(np.append(run.rates, 0.0))
    batches = None if run.batches is None else jnp.asarray(run.batches)
    momentum = momentum_of(run.optimizer)
    given = (*arrays, rates, momentum, batches)
    _, seen = scan_segments(_step, None, (alpha, jnp.zeros_like(alpha)), len(rates), *given)
    return np.moveaxis(np.asarray(seen), 0, 1)


def _outputs(alpha: Array, kernel: Array, deviations: Array, f0: Array) -> Array:
    """Return f^k, (order, draw, row)."""
    moved = alpha @ kernel.T
    bent = jnp.einsum("drs,kds->kdr", deviations, alpha[:-1])
    return moved.at[1:].add(bent).at[0].add(f0)


def _pushes(f: Array, y: Array) -> Array:
    """Return Δ^k on training samples, (order, draw, sample)."""
    return (-f[..., : len(y)]).at[0].add(y)


def _step(fixed, i, carry, kernel, deviations, f0, y, rates, momentum, batches):
    alpha, velocity = carry
    f = _outputs(alpha, kernel, deviations, f0)
    push = _pushes(f, y) / len(y)
    if batches is not None:
        batch = batches[jnp.minimum(i, len(batches) - 1)]
        taken = jnp.zeros(len(y)).at[batch].add(len(y) / batch.shape[0])
        push = push * taken
    velocity = momentum * velocity + rates[i] * push
    return (alpha + velocity, velocity), f


def _flow(run: Run, arrays: Any, alpha: Array) -> np.ndarray:
    kernel, P = arrays[0], alpha.shape[-1]
    times = run.times * (run.optimizer.lr / P)
    largest = float(jnp.linalg.eigvalsh(kernel[:P])[-1])
    seen = [np.asarray(_outputs(alpha, *arrays[:3]))]
    for length in np.diff(times):
        steps = max(1, int(np.ceil(length * largest / LARGEST_STEP)))
        alpha = _integrate(alpha, arrays, length / steps, steps)
        seen.append(np.asarray(_outputs(alpha, *arrays[:3])))
        check_interrupts()
    return np.stack(seen)


@jax.jit
def _integrate(alpha: Array, arrays: Any, h: Any, steps: Any) -> Array:
    kernel, deviations, f0, y = arrays
    given = kernel[: len(y)], deviations[:, : len(y)], f0[:, : len(y)]

    def step(_, alpha):
        return runge_kutta_step(lambda alpha: _pushes(_outputs(alpha, *given), y), alpha, h)

    return jax.lax.fori_loop(0, steps, step, alpha)
