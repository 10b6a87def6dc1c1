"""Gradient flow in function space for losses without a closed form, by an ODE solver.

As for gradient descent, f = f₀ + Θα, with dα_μ/dt = (η₀/P) Δ_μ (Pehlevan and Bordelon's lecture
notes, §2); for weight decay see :mod:`largen.theories.kernel_limit.decay`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from largen.integration import Integrated, Integration
from largen.interrupts import Pace, interruptible
from largen.kernels.modes import Scalar
from largen.runs import Loss
from largen.theories.kernel_limit.descent import outputs_under_decay, residuals

TOLERANCE = 1e-9
MAX_STEPS = 100_000


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
) -> tuple[Any, bool]:
    """Return the observables at given times, stacked on a leading axis, and whether it converged.

    The solver is Dormand and Prince's method of order 5 with adaptive steps, at a relative
    tolerance of 1e-9 and an absolute tolerance that amounts to 1e-9 in the outputs. Parameters are
    those of :func:`largen.theories.kernel_limit.descent.descend`.
    """
    arrays = (times, ntk, ntk_test, y, f0_train, f0_test, rate, decay)
    fixed = (loss, scalar, observe, degree)
    state = _begun(fixed, arrays)
    with interruptible():
        for _, stop in Pace().segments(0, MAX_STEPS):
            state, ended = _advance(fixed, arrays, state, stop)
            if ended:
                break
    return state.saved[0], bool(state.sound & (state.t >= times[-1]))


@partial(jax.jit, static_argnums=0)
def _begun(fixed: Any, arrays: Any) -> Integrated:
    return _course(fixed, *arrays).begin(jnp.zeros_like(arrays[4]))


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def _advance(fixed: Any, arrays: Any, state: Integrated, stop: Any) -> tuple[Integrated, Any]:
    course = _course(fixed, *arrays)
    state = course.advance(state, stop)
    return state, course.ended(state)


def _course(fixed, times, ntk, ntk_test, y, f0_train, f0_test, rate, decay) -> Integration:
    """Return the differential equation of α, and the observation of outputs at the given times."""
    import diffrax

    loss, scalar, observe, degree = fixed
    row_sum = jnp.max(jnp.sum(jnp.abs(ntk), axis=1))

    def left(t):  # a(t), the factor by which the initial weights have shrunk
        return jnp.exp(-rate * decay * (t - times[0]))

    def slope(t, alpha):
        a = left(t)
        push = residuals(loss, scalar, outputs_under_decay(f0_train, ntk, alpha, a, degree), y)
        return rate * (a ** (degree - 1) * push / ntk.shape[0] - decay * alpha)

    def seen(t, alpha):
        a = left(t)
        train = outputs_under_decay(f0_train, ntk, alpha, a, degree)
        return observe(train, outputs_under_decay(f0_test, ntk_test, alpha, a, degree))

    controller = diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE / row_sum)
    between = (times[0], times[-1])
    return Integration(slope, between, [(times, seen)], diffrax.Dopri5(), controller)
