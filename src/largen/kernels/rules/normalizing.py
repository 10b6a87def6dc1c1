"""Kernels behind normalisation over the features of each sample.

In the limit of infinitely many features, the mean m and the second moment q over the features of a
sample are deterministic. With primes for the second sample, and m = 0 for RMSNorm,

    K ← (K − m m')/√((q − m² + ε)(q' − m'² + ε)),   Θ ← Θ/√((q − m² + ε)(q' − m'² + ε)).

The derivatives of mean and variance contribute to Θ at order 1/width, and vanish in the limit.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from largen.kernels.rules.dispatch import States, rule, wanted
from largen.kernels.rules.scaling import apply_masks, not_below_zero, rescale
from largen.kernels.state import KernelState, Side, Wanted, opposite
from largen.programs import Normalise


@rule.register
def _(operation: Normalise, constants: tuple[()], states: States, behind: Wanted) -> KernelState:
    (state,) = states
    if not operation.centred:
        return rescale(state, *scales_of(state, operation))
    scales = scales_of(state, operation)
    return apply_masks(rescale(_subtract_means(state, operation), *scales))


@wanted.register
def _(operation: Normalise, behind: Wanted) -> Wanted:
    return Wanted(behind.pairs, behind.means or operation.centred)


def scales_of(state: KernelState, operation: Normalise) -> tuple[Any, Any]:
    """Return the factors 1/√(q − M² + ε) of both sets of samples."""

    def scale(side: Side) -> Any:
        q = side.q
        if operation.centred:
            q, _ = _less_mean(side, mean_over(side.mean, side, operation))
        spread = mean_over(q, side, operation)
        # Of features that vanish, x/√ε is 0: a factor 1/√ε would multiply what rounding left of
        # their kernels with other samples.
        scale = jnp.where(spread > 0, 1 / jnp.sqrt(spread + operation.eps), 0)
        return scale if side.present is None else side.present * scale

    return scale(state.first), scale(state.second)


def _less_mean(side: Side, M: Any) -> tuple[Any, Any]:
    """Return second moment and mean of x − M."""
    assert side.mean is not None
    return side.q - 2 * side.mean * M + M**2, side.mean - M


def _subtract_means(state: Any, operation: Normalise) -> KernelState:
    """Return the state of x − M, with M the mean over the features that are normalised together.

    With the mean m over the features at one position, q ← q − 2mM + M² and
    gap ← gap − (m − m')(M − M') + ½(M − M')².
    """
    sides = (state.first, state.second)
    centres = [mean_over(side.mean, side, operation) for side in sides]

    def gap(gap, m1, m2, M1, M2):
        return not_below_zero(gap - (m1 - m2) * (M1 - M2) + (M1 - M2) ** 2 / 2)

    def of_side(side: Any, M: Any) -> Side:
        _, m, within, present = side
        if within is not None:
            within = gap(within, *opposite(m), *opposite(M))
        return Side(*_less_mean(side, M), within, present)

    means = state.facing(state.first.mean, state.second.mean)
    return state._replace(
        first=of_side(sides[0], centres[0]),
        second=of_side(sides[1], centres[1]),
        gap=gap(state.gap, *means, *state.facing(*centres)),
    )


def mean_over(field: Any, side: Side, operation: Normalise) -> Any:
    """Return a field, or its mean over the positions that are normalised together."""
    axes = tuple(range(field.ndim - 1))
    if operation.over == "channels" or not axes:
        return field
    if side.present is None:
        mean = jnp.mean(field, axis=axes)
    else:
        mean = jnp.sum(field * side.present, axis=axes) / jnp.sum(side.present, axis=axes)
    return jnp.broadcast_to(mean, field.shape)
