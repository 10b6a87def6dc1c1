"""Bounds on the errors of the Hermite series from truncation, quadrature and rounding."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from largen.expectations.activations import ActivationFunction
from largen.expectations.hermite_series import basis, part_on_nodes
from largen.expectations.quadrature import gaussian_mean
from largen.expectations.series_pair import evaluate, parts_of, square

PROBES = 8
UNRESOLVED = 0.1  # relative change of coefficients beyond which the bound is infinite


def series_error(phi: ActivationFunction, q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """Return bounds on the errors of both results of ``series_pair``.

    With δa the change of the coefficients under a finer and wider quadrature, at eight variances,
    the error up to truncation is at most (‖a‖ + ‖b‖)(‖δa‖ + ‖δb‖); the bound is twice this, since
    the largest change need not be at one of the eight. It is infinite if the nodes do not resolve
    φ.
    """
    _, _, gap_left, slope_left = evaluate(phi, True, q1, q2, gap)
    value_error, slope_error = _quadrature_error(phi, q1, q2)
    values = [gaussian_mean(square(phi), q, refined=True) for q in (q1, q2)]
    slopes = [gaussian_mean(square(phi.derivative), q, refined=True) for q in (q1, q2)]
    return (
        gap_left + value_error * (values[0] + values[1]),
        slope_left + slope_error * jnp.sqrt(slopes[0] * slopes[1]),
    )


def _quadrature_error(phi: ActivationFunction, q1: Array, q2: Array) -> Float[Array, "2"]:
    """Return the relative errors of Σ a b cᵏ for φ and for φ', from quadrature and rounding."""
    both = jnp.concatenate([q1.ravel(), q2.ravel()])
    low, high = jnp.min(both), jnp.max(both)
    probes = low + (high - low) * 2.0 ** -jnp.arange(PROBES, dtype=both.dtype)
    change = jnp.zeros((2, PROBES), both.dtype)
    norm = jnp.zeros((2, PROBES), both.dtype)
    parts = parts_of(phi, both.dtype)
    for parity in parts:
        errors = []
        for refined in (False, True):
            on_nodes = part_on_nodes(phi, parity, len(parts) == 1, probes, refined)
            even, odd = basis(both.dtype, refined)
            bases = (odd, even) if parity else (even, odd)
            errors.append(
                jnp.stack([jnp.asarray(b) @ f for b, f in zip(bases, on_nodes, strict=True)])
            )
        coarse, fine = errors
        change = change + jnp.sum((coarse - fine) ** 2, axis=1)
        norm = norm + jnp.sum(fine**2, axis=1)
    relative = jnp.sqrt(jnp.max(change / jnp.where(norm > 0, norm, 1), axis=1))
    relative = jnp.where(relative > UNRESOLVED, jnp.inf, relative)
    return 8 * relative + 32 * jnp.finfo(both.dtype).eps
