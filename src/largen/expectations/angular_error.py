"""Bounds on the errors of the tables of ``angular``, from independent integrals."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from largen.expectations.activations import ActivationFunction
from largen.expectations.angular import Resolution, Table, derivative_moments, look_up, reach_of
from largen.expectations.panels import graded_nodes

_SAFETY = 4.0
LEAST = 1e-3  # smallest standard deviation in units of the largest one


def errors_at(
    phi: ActivationFunction, table: Table, basis: Float[Array, "i s"], s: Float[Array, " s"]
) -> tuple[Float[Array, "some s s"], Float[Array, "more s s"]]:
    """Return bounds on the errors of pairs from a table, relative to E[φ²] and E[φ'²].

    All pairs of the table's standard deviations are compared with finer integrals: at parallel,
    opposite and independent u and v over one Gaussian, the gap by φ itself, which detects jumps of
    φ; at three intermediate angles, E[φ'φ'] with a finer rule in the plane.
    """
    reach = reach_of(phi)
    independent, parallel, opposite = np.pi / 2, 0.0, np.pi
    # Angles at which D varies sharply for large standard deviations; for small ones they exceed π.
    sharp = jnp.stack([0.6 / table.sharpness, table.sharpness**-0.5])
    angles = jnp.append(jnp.minimum(sharp, 1.0), 2.2)
    special = jnp.asarray([parallel, independent, opposite], s.dtype)
    everywhere = jnp.concatenate([special, angles])[:, None, None]

    def tabulate(theta):
        return look_up(table, basis[:, :, None], basis[:, None, :], jnp.full((len(s),) * 2, theta))

    tables = lax.map(tabulate, everywhere[:, 0, 0])
    gaps = (s[:, None] - s) ** 2 * tables.collinear
    gaps += 2 * jnp.outer(s, s) * jnp.sin(everywhere / 2) ** 2 * tables.secant
    z, weights = (x.astype(s.dtype) for x in graded_nodes(4 * reach, 20))

    def moments(function):
        """E[f(u)f(v)] for parallel, independent and opposite u and v."""
        plus, minus = function(s[:, None] * z), function(-s[:, None] * z)
        same = ((plus * weights) @ plus.T + (minus * weights) @ minus.T) / 2
        across = ((plus * weights) @ minus.T + (minus * weights) @ plus.T) / 2
        mean = (plus + minus) / 2 @ weights
        return jnp.stack([same, jnp.outer(mean, mean), across])

    def bound(got, want, scale):
        off = jnp.abs(got - want) / jnp.where(scale > 0, scale, 1)
        return _SAFETY * jnp.where(jnp.isnan(off), jnp.inf, off) + rounding

    rounding = 64 * jnp.finfo(s.dtype).eps
    values, slopes = moments(phi), moments(phi.derivative)
    diagonal = jnp.diagonal(values[0])
    finer = Resolution(4 * reach, 16, 0, 0)
    between = lax.map(partial(derivative_moments, phi, finer, s), angles)
    return (
        bound((diagonal[:, None] + diagonal) / 2 - gaps[:3], values, _scale(values[0])),
        bound(tables.slope, jnp.concatenate([slopes, between]), _scale(slopes[0])),
    )


def _scale(second_moments: Array) -> Array:
    root = jnp.sqrt(jnp.diagonal(second_moments))
    return jnp.outer(root, root)
