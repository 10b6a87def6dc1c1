"""The interface of activations with known Gaussian integrals, and the derivatives of these.

Two preactivations (u, v) are jointly Gaussian with variances q1, q2 and covariance q12. The pair
is described by its *gap*, half the mean squared distance,

    gap = E[(u − v)²]/2 = (q1 + q2)/2 − q12 ≥ 0,

and the outputs of a layer by the gap of (φ(u), φ(v)). Near coincidence q12 and q1 agree in nearly
all digits, which formulas in terms of them lose by cancellation; formulas in terms of the gap do
not. The closed forms need only two exact combinations:

    q12 = (q1 + q2)/2 − gap,     q1 q2 − q12² = gap (q1 + q2 − gap) − ((q1 − q2)/2)².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Pair = Callable[[Array, Array, Array], tuple[Array, Array]]
Single = Callable[[Array], Array]


@dataclass(frozen=True)
class ClosedForm:
    """Gaussian integrals of one activation φ in closed form.

    Parameters
    ----------
    pair
        (q1, q2, gap) -> (gap of (φ(u), φ(v)), E[φ'(u)φ'(v)]), differentiable.
    second_moment
        q -> E[φ(u)²].
    derivative_second_moment
        q -> E[φ'(u)²].
    mean
        q -> E[φ(u)].
    jumps
        Whether φ has jumps, so that E[φ'φ'] diverges.
    error
        (q1, q2, gap) -> bounds on the errors of the results of ``pair``; None if they have
        rounding errors only.
    arrays
        Number of arrays over the pairs that ``pair`` holds at a time, in addition to a few.
    slopes
        a, b and φ'(0) of φ(x) = a x + b |x|; None for any other φ.
    """

    pair: Pair
    second_moment: Single
    derivative_second_moment: Single
    mean: Single
    jumps: bool = False
    error: Pair | None = None
    arrays: int = 0
    slopes: tuple[float, float, float] | None = None


def covariance_of(q1: Array, q2: Array, gap: Array) -> Array:
    """Return q12 = (q1 + q2)/2 − gap."""
    return (q1 + q2) / 2 - gap


def determinant_of(q1: Array, q2: Array, gap: Array) -> Array:
    """Return q1 q2 − q12² without cancellation; rounding can leave it slightly below 0."""
    q12 = covariance_of(q1, q2, gap)
    unequal = ((q1 - q2) / 2) ** 2
    # For very unequal variances the first form suffers cancellation, and the second does not.
    return jnp.where(unequal < q1 * q2, gap * (q1 + q2 - gap) - unequal, q1 * q2 - q12 * q12)


def covariance_shortfall(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array, Array, Array]:
    """Return s = √(q1 q2), q12, s − q12 and s² − q12², the last two without cancellation."""
    root, q12 = jnp.sqrt(q1) * jnp.sqrt(q2), covariance_of(q1, q2, gap)
    determinant = jnp.maximum(determinant_of(q1, q2, gap), 0)
    total = root + q12
    same_side = q12 > 0
    shortfall = jnp.where(same_side, determinant / jnp.where(same_side, total, 1), root - q12)
    return root, q12, shortfall, determinant


def of_one_rank(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array, Array]:
    """Return the gap in the shape of all pairs, and variances that broadcast to it."""
    shape = jnp.broadcast_shapes(q1.shape, q2.shape, gap.shape)
    q1, q2 = (q.reshape((1,) * (len(shape) - q.ndim) + q.shape) for q in (q1, q2))
    return q1, q2, jnp.broadcast_to(gap, shape)


def safe_sqrt(x: Array) -> Array:
    """Return √x for x > 0 and 0 elsewhere, with derivative 0 there."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), 0)


def divide(a: Array, b: Array) -> Array:
    """Return a/b, and 0 with derivative 0 where b = 0."""
    nonzero = b != 0
    return jnp.where(nonzero, a / jnp.where(nonzero, b, 1), 0)


def smooth_pair(
    gap_formula: Callable[[Array, Array, Array], Array],
    derivative_formula: Callable[[Array, Array, Array], Array],
    cross_slope: Callable[[Array, Array, Array], Array],
    second_moment: Single,
    both: Pair | None = None,
) -> Pair:
    """Combine formulas for a smooth φ into a differentiable function ``pair``.

    ``both`` returns the results of the first two formulas, if they can be computed together.

    The gap formula may use square roots and clips whose derivatives are wrong where u = v. Its
    derivatives are therefore taken from Price's theorem: at fixed variances the gap grows
    with slope D = E[φ'(u)φ'(v)], and at fixed gap

        ∂gap'/∂q1 = ½ ∂E[φ(u)²]/∂q1 − ∂V/∂q1 − ½ D,     V(q1, q2, q12) = E[φ(u)φ(v)],

    with ∂V/∂q1 = ``cross_slope(q1, q2, q12)`` at fixed q2 and q12.
    """

    @jax.custom_jvp
    def joint(q1, q2, gap):
        if both is not None:
            return both(q1, q2, gap)
        return gap_formula(q1, q2, gap), derivative_formula(q1, q2, gap)

    def slope(q1, q2, gap, derivative):
        one = jnp.ones_like(q1)
        variance_slope = jax.jvp(second_moment, (q1,), (one,))[1]
        q12 = covariance_of(q1, q2, gap)
        return variance_slope / 2 - cross_slope(q1, q2, q12) - derivative / 2

    @joint.defjvp
    def joint_jvp(primals, tangents):
        q1, q2, gap = primals
        dq1, dq2, dgap = tangents
        derivative, tangent = jax.jvp(derivative_formula, primals, tangents)
        gap_tangent = (
            derivative * dgap
            + slope(q1, q2, gap, derivative) * dq1
            + slope(q2, q1, gap, derivative) * dq2
        )
        return joint(q1, q2, gap), (gap_tangent, tangent)

    def pair(q1, q2, gap):
        return joint(*of_one_rank(q1, q2, gap))

    return pair


def slope_of(covariance: Callable[[Array, Array, Array], Array]):
    """Return ∂V/∂q1 of a function V(q1, q2, q12), by autodiff."""

    def cross_slope(q1, q2, q12):
        return jax.jvp(lambda q: covariance(q, q2, q12), (q1,), (jnp.ones_like(q1),))[1]

    return cross_slope


def normal_density(x: Array) -> Array:
    """Return e^(−x²/2)/√(2π)."""
    return jnp.exp(-x * x / 2) / np.sqrt(2 * np.pi)
