"""Schedules s(t) that multiply every group's rate: η_g(t) = η₀·r_g·s(t).

Their argument t is the number of completed steps: an integer or, under ``jax.jit``, a traced array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.callables import takes
from largen.errors import InvalidInput
from largen.scalars import integer, real

Schedule = Callable[[Any], Any]


def warmup_cosine(steps: int, *, warmup: int = 0, final: float = 0.0) -> Schedule:
    """Return s(t): a linear rise over ``warmup`` steps, then half a cosine down to ``final``.

    s(t) = (t+1)/warmup for t < warmup, then final + (1 − final)(1 + cos πu)/2 with u running
    from 0 to 1. Pass it to ``torch.optim.lr_scheduler.LambdaLR``, or to
    :meth:`largen.transfer.jax.JaxPlan.optax`.

    Parameters
    ----------
    steps
        The length of the whole schedule.
    warmup
        Number of steps of the rise.
    final
        The last value, a fraction of the peak.

    Raises
    ------
    InvalidInput
        If the numbers of steps are not integers with 0 ≤ warmup < steps, or ``final`` is
        negative.

    Examples
    --------
    >>> s = warmup_cosine(100, warmup=10, final=0.1)
    >>> s(0), s(9), round(s(100), 3)
    (0.1, 1.0, 0.1)
    """
    integer("steps", steps, at_least=1)
    if integer("warmup", warmup, at_least=0) >= steps:
        raise InvalidInput(f"warmup: wanted less than steps = {steps}, got {warmup}.")
    real("final", final, at_least=0)

    def s(t: Any) -> Any:
        xp = jnp if isinstance(t, jax.Array) else np
        u = xp.clip((t - warmup) / (steps - warmup), 0.0, 1.0)
        fall = final + (1 - final) * (1 + xp.cos(xp.pi * u)) / 2
        return _number(xp.where(t < warmup, (t + 1) / max(warmup, 1), fall))

    return s


def constant(*, warmup: int = 0) -> Schedule:
    """Return s(t): a linear rise over ``warmup`` steps, then 1.

    Raises
    ------
    InvalidInput
        If ``warmup`` is negative.

    Examples
    --------
    >>> s = constant(warmup=4)
    >>> [s(t) for t in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    integer("warmup", warmup, at_least=0)

    def s(t: Any) -> Any:
        xp = jnp if isinstance(t, jax.Array) else np
        return _number(xp.minimum((t + 1) / max(warmup, 1), 1.0))

    return s


def check_factor(schedule: Schedule, steps: int = 10**6) -> None:
    """Raise if a schedule returns absolute rates, far below 1, at steps growing by 10^¼."""
    takes("schedule", schedule, ("step",))
    looked_at = {0, steps - 1, *(round(10 ** (i / 4)) for i in range(25))}
    factors = [factor_at(schedule, t) for t in sorted(looked_at) if t < steps]
    if max(factors) < 0.1:
        raise InvalidInput(
            f"schedule: at step 0 it is {factors[0]:.3g} and it never comes near 1: it "
            "sets absolute rates. Pass the rate as lr=… and the schedule as a factor that "
            "multiplies every group's rate, such as largen.transfer.warmup_cosine(steps, "
            "warmup=…)."
        )


def factor_at(schedule: Schedule, t: int) -> float:
    """Return s(t)."""
    return real(f"schedule({t})", schedule(t), at_least=0)


def _number(value: Any) -> Any:
    return value if isinstance(value, jax.Array) else float(value)
