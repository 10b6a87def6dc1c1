"""Gradient flow in function space for losses without a closed form, by an ODE solver.

As for steps, f = f₀ + Θα, and dα_μ/dt = (η₀/P) Δ_μ: Pehlevan and Bordelon's lecture notes, §2;
with weight decay as in :mod:`largen.kernels.decay`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from largen.kernels.modes import Scalar
from largen.kernels.recursion import residuals, shrunken
from largen.runs import Loss

TOLERANCE = 1e-9
MAX_STEPS = 100_000


@partial(jax.jit, static_argnames=("loss", "scalar", "observe", "degree"))
def flow(
    loss: Loss,
    scalar: bool,
    observe: Callable[[Any, Any], Any],
    times: Float[Array, " time"],
    ntk: Float[Array, "sample sample"],
    ntk_test: Float[Array, "test_sample sample"],
    y: Shaped[Array, "sample *target"],
    f0_train: Float[Array, "seed sample output"],
    f0_test: Float[Array, "seed test_sample output"],
    rate: Scalar,
    decay: Scalar = 0.0,
    degree: int = 1,
) -> tuple[Any, Bool[Array, ""]]:
    """Return what is observed at the times, stacked along a leading axis, and whether it is right.

    Dormand and Prince's method of order 5 with steps of its own choice, at a relative tolerance
    of 1e-9 and an absolute one that is 1e-9 for the outputs. Parameters are those of
    :func:`largen.kernels.recursion.descend`.
    """
    import diffrax

    row_sum = jnp.max(jnp.sum(jnp.abs(ntk), axis=1))

    def left(t):  # of the initial weights
        return jnp.exp(-rate * decay * (t - times[0]))

    def slope(t, alpha, args):
        a = left(t)
        push = residuals(loss, scalar, shrunken(f0_train, ntk, alpha, a, degree), y)
        return rate * (a ** (degree - 1) * push / ntk.shape[0] - decay * alpha)

    def seen(t, alpha, args):
        a = left(t)
        train = shrunken(f0_train, ntk, alpha, a, degree)
        return observe(train, shrunken(f0_test, ntk_test, alpha, a, degree))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        diffrax.Dopri5(),
        t0=times[0],
        t1=times[-1],
        dt0=None,
        y0=jnp.zeros_like(f0_train),
        saveat=diffrax.SaveAt(ts=times, fn=seen),
        stepsize_controller=diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE / row_sum),
        max_steps=MAX_STEPS,
        throw=False,
    )
    return solution.ys, solution.result == diffrax.RESULTS.successful
