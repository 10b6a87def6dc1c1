"""Which hand-written functions are of degree one, a x + b |x|, and so have closed forms.

A function with a kink has a slow Hermite series, and the kink at 0 is by far the most common one:
a relu written by hand, a leaky relu with a slope of one's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.expectations.closed_form import ClosedForm
from largen.expectations.homogeneous import homogeneous

# Twelve decades without any regularity that a function could share.
_POINTS = np.exp(np.linspace(-14, 14, 301) + 0.01 * np.sin(np.arange(301.0) ** 2))


@lru_cache(maxsize=256)
def recognised(function: Callable[[Array], Array]) -> ClosedForm | None:
    """Return the closed form of φ(x) = a x + b |x| if the function is one, or None.

    It is one if φ(±s) = s φ(±1) and φ'(±s) = ±φ(±1) up to rounding at 300 points s between 1e-6
    and 1e6; values at 0 and the derivative there are taken from the function itself.
    """
    try:
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            plus, minus, slope_plus, slope_minus, at_zero = _samples(function)
    except Exception:  # it holds traced values, or does not work at these points
        return None
    right, left = plus[0], -minus[0]
    size = 8 * np.finfo(np.float64).eps * max(abs(right), abs(left))
    linear = (
        np.all(np.abs(plus[1:] / _POINTS - right) <= size)
        and np.all(np.abs(minus[1:] / _POINTS + left) <= size)
        and np.all(np.abs(slope_plus - right) <= size)
        and np.all(np.abs(slope_minus - left) <= size)
    )
    if not linear or at_zero[0] != 0 or size == 0 or not np.isfinite(at_zero[1]):
        return None
    return homogeneous(float(right + left) / 2, float(right - left) / 2, float(at_zero[1]))


def _samples(function):
    """Return φ at 1 and the points, φ at their negatives, φ' at both, and φ(0), φ'(0)."""
    points = np.concatenate([[1.0], _POINTS])
    x = jnp.asarray(np.concatenate([points, -points, [0.0]]))
    value, slope = jax.jit(lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),)))(x)
    value, slope = np.asarray(value), np.asarray(slope)
    n = len(points)
    at_zero = value[-1], slope[-1]
    return value[:n], value[n:-1], slope[:n], slope[n:-1], at_zero
