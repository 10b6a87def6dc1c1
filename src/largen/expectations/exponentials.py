"""Activations whose Gaussian integrals are exponentials: sin, cos and exp.

E[sin u sin v] = (e^(−gap) − e^(−(q1 + q2 − gap)))/2,   E[cos u cos v] = (… + …)/2,
E[e^u e^v] = e^(q1 + q2 − gap).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from largen.expectations.closed_form import ClosedForm, Pair


def _pair(gap_formula: Pair) -> Pair:
    def pair(q1, q2, gap):
        return gap_formula(*jnp.broadcast_arrays(q1, q2, gap))

    return pair


def _exp_difference(x1: Array, x2: Array) -> Array:
    """Return e^x1 − e^x2 to relative precision, also near x1 = x2, and without overflow."""
    above = jnp.exp(x1) * -jnp.expm1(jnp.minimum(x2 - x1, 1))
    below = jnp.exp(x2) * jnp.expm1(jnp.minimum(x1 - x2, 1))
    return jnp.where(x1 >= x2, above, below)


def _waves(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array, Array, Array]:
    """Return e^(−gap), e^(−(q1 + q2 − gap)), 1 − e^(−gap), and ¼(e^(−q1) − e^(−q2))²."""
    far = jnp.exp(gap - q1 - q2)
    return jnp.exp(-gap), far, -jnp.expm1(-gap), _exp_difference(-q1, -q2) ** 2 / 4


@_pair
def _sin_pair(q1, q2, gap):
    near, far, lost, unequal = _waves(q1, q2, gap)
    return lost * (1 + far) / 2 - unequal, (near + far) / 2


@_pair
def _cos_pair(q1, q2, gap):
    _, _, lost, unequal = _waves(q1, q2, gap)
    apart = _exp_difference(-gap, gap - q1 - q2)
    return -lost * jnp.expm1(gap - q1 - q2) / 2 + unequal, apart / 2


@_pair
def _exp_pair(q1, q2, gap):
    unequal = _exp_difference(q1, q2) ** 2 / 2
    return unequal - jnp.exp(q1 + q2) * jnp.expm1(-gap), jnp.exp(q1 + q2 - gap)


SIN = ClosedForm(
    pair=_sin_pair,
    second_moment=lambda q: -jnp.expm1(-2 * q) / 2,
    derivative_second_moment=lambda q: (1 + jnp.exp(-2 * q)) / 2,
    mean=jnp.zeros_like,
)
COS = ClosedForm(
    pair=_cos_pair,
    second_moment=lambda q: (1 + jnp.exp(-2 * q)) / 2,
    derivative_second_moment=lambda q: -jnp.expm1(-2 * q) / 2,
    mean=lambda q: jnp.exp(-q / 2),
)
EXP = ClosedForm(
    pair=_exp_pair,
    second_moment=lambda q: jnp.exp(2 * q),
    derivative_second_moment=lambda q: jnp.exp(2 * q),
    mean=lambda q: jnp.exp(q / 2),
)
