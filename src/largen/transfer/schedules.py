"""Schedules s(t) that multiply every group's rate: η_g(t) = η₀·r_g·s(t)."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

from largen.arrays import integer, real
from largen.errors import InvalidInput


def warmup_cosine(steps: int, *, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Return s(t): a linear rise over ``warmup`` steps, then half a cosine down to ``final``.

    s(t) = (t+1)/warmup for t < warmup, then final + (1 − final)(1 + cos πu)/2 with u running
    from 0 to 1. Pass it to ``torch.optim.lr_scheduler.LambdaLR``, or multiply an optax rate by it.

    Parameters
    ----------
    steps
        The length of the whole schedule.
    warmup
        Steps of the rise.
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

    def s(t: int) -> float:
        if t < warmup:
            return (t + 1) / warmup
        u = min((t - warmup) / (steps - warmup), 1.0)
        return final + (1 - final) * (1 + cos(pi * u)) / 2

    return s


def constant(*, warmup: int = 0) -> Callable[[int], float]:
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
    return lambda t: min((t + 1) / warmup, 1.0) if warmup else 1.0
