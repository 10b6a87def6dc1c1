"""Gaussian integrals of functions that jump at 0 and are constant elsewhere, as sign and step.

E[sign u sign v] = 1 − 2θ/π with the angle θ between u and v; the covariance of the step is a
quarter of it. φ' is a delta function and E[φ'φ'] diverges: there is an NNGP kernel but no NTK.
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from largen.expectations.closed_form import ClosedForm
from largen.expectations.homogeneous import angle_of


@lru_cache(maxsize=64)
def jump(height: float, mean: float) -> ClosedForm:
    """Return the integrals of a jump of ``height`` at 0 with mean ``mean``, and φ(0) = 0."""
    second = mean**2 + height**2 / 4

    def second_moment(q):
        return jnp.where(q > 0, second, 0).astype(q.dtype)

    def pair(q1, q2, gap):
        q1, q2, gap = jnp.broadcast_arrays(q1, q2, gap)
        both = (q1 > 0) & (q2 > 0)
        safe = (jnp.where(both, x, 1) for x in (q1, q2, gap))
        turned = height**2 / (2 * np.pi) * angle_of(*safe)
        alone = (second_moment(q1) + second_moment(q2)) / 2
        return jnp.where(both, turned, alone), jnp.full_like(gap, jnp.inf)

    return ClosedForm(
        pair=pair,
        second_moment=second_moment,
        derivative_second_moment=lambda q: jnp.full_like(q, jnp.inf),
        mean=lambda q: jnp.where(q > 0, mean, 0).astype(q.dtype),
        jumps=True,
    )


SIGN = jump(2.0, 0.0)
STEP = jump(1.0, 0.5)
