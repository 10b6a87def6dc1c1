"""Kernels of signals that are multiplied by a factor at each position.

Such factors come from normalisation, from the number of positions in a window, and from masks.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from largen.kernels.state import KernelState, Side, opposite


def rescale(state: KernelState, scale1: Any, scale2: Any) -> KernelState:
    """Return the state of s·x, with factors s of each set of samples, numbers or (*space, n).

    K ← s s' K and Θ ← s s' Θ, with a prime for the second sample; in terms of the gap,

        gap ← s s' gap + ½ (s − s')(s q − s' q').
    """

    def of_side(side: Side, scale: Any) -> Side:
        within = side.within
        if within is not None:
            within = _gap(within, *opposite(side.q), *opposite(scale))
        mean = None if side.mean is None else scale * side.mean
        return side._replace(q=scale**2 * side.q, mean=mean, within=within)

    scale1, scale2 = (
        jnp.broadcast_to(scale, side.q.shape)
        for scale, side in ((scale1, state.first), (scale2, state.second))
    )
    q1, q2 = state.facing(state.first.q, state.second.q)
    s1, s2 = state.facing(scale1, scale2)
    return state._replace(
        first=of_side(state.first, scale1),
        second=of_side(state.second, scale2),
        gap=_gap(state.gap, q1, q2, s1, s2),
        ntk=None if state.ntk is None else s1 * s2 * state.ntk,
    )


def _gap(gap: Any, q1: Any, q2: Any, s1: Any, s2: Any) -> Any:
    return not_below_zero(s1 * s2 * gap + (s1 - s2) * (s1 * q1 - s2 * q2) / 2)


def not_below_zero(gap: Any) -> Any:
    """Return a gap with negative rounding errors set to 0, and its derivative unchanged."""
    return gap - lax.stop_gradient(jnp.minimum(gap, 0))


def apply_masks(state: KernelState) -> KernelState:
    """Return the state with all moments set to 0 at masked positions."""
    first, second = state.first.present, state.second.present
    if first is None or second is None:
        return state
    return rescale(state, first, second)
