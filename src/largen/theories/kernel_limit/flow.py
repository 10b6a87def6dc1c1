"""Gradient flow in function space for losses without a closed form, by an ODE solver.

As for gradient descent, f = f₀ + Θα, with dα_μ/dt = (η₀/P) Δ_μ (Pehlevan and Bordelon's lecture
notes, §2); for weight decay see :mod:`largen.theories.chains.decay`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from largen.integration import Integrated, Integration
from largen.interrupts import Pace, interruptible
from largen.kernels.modes import Scalar
from largen.theories.kernel_limit.descent import Arrays, Problem, outputs_under_decay, residuals

TOLERANCE = 1e-9
MAX_STEPS = 100_000


def flow(
    problem: Problem,
    arrays: Arrays,
    times: Float[Array, " time"],
    rate: Scalar,
    decay: Scalar = 0.0,
) -> tuple[Any, bool]:
    """Return the observables at given times, stacked on a leading axis, and whether it converged.

    By Dormand and Prince's method of order 5, at tolerances of 1e-9 in relation to the outputs.
    """
    given = (arrays, times, rate, decay)
    state = _begun(problem, given)
    with interruptible():
        for _, stop in Pace().segments(0, MAX_STEPS):
            state, ended = _advance(problem, given, state, stop)
            if ended:
                break
    return state.saved[0], bool(state.sound & (state.t >= times[-1]))


@partial(jax.jit, static_argnums=0)
def _begun(problem: Problem, given: Any) -> Integrated:
    return _course(problem, *given).begin(jnp.zeros_like(given[0].f0_train))


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def _advance(problem: Problem, given: Any, state: Integrated, stop: Any) -> tuple[Integrated, Any]:
    course = _course(problem, *given)
    state = course.advance(state, stop)
    return state, course.ended(state)


def _course(problem: Problem, arrays: Arrays, times: Any, rate: Any, decay: Any) -> Integration:
    """Return the differential equation of α, and the observation of outputs at the given times."""
    import diffrax

    row_sum = jnp.max(jnp.sum(jnp.abs(arrays.ntk), axis=1))

    def left(t):  # a(t), the factor by which the initial weights have shrunk
        return jnp.exp(-rate * decay * (t - times[0]))

    def slope(t, alpha):
        a = left(t)
        push = residuals(problem, outputs_under_decay(problem, arrays, alpha, a)[0], arrays.y)
        return rate * (a ** (problem.degree - 1) * push / len(arrays.ntk) - decay * alpha)

    def seen(t, alpha):
        return problem.observe(*outputs_under_decay(problem, arrays, alpha, left(t)))

    controller = diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE / row_sum)
    between = (times[0], times[-1])
    return Integration(slope, between, [(times, seen)], diffrax.Dopri5(), controller)
