"""Kernels of averages over positions, with weights that sum to one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from largen.kernels.rules.scaling import not_below_zero
from largen.kernels.state import KernelState, Side, aligned, equal_positions, opposite


def from_averages(averaged: KernelState, equal: Any) -> KernelState:
    """Return the state of a signal averaged over positions, from the averages of its arrays.

    The second moment of two averages is the average of K over both positions. In terms of gaps,
    with gap₁₁ and gap₂₂ those between positions of one sample,

        q ← ⟨q⟩ − ⟨gap₁₁⟩,   gap₁₂ ← ⟨gap₁₂⟩ − ½⟨gap₁₁⟩ − ½⟨gap₂₂⟩.

    ``averaged``: a state with all pairs of positions, each array averaged. ``equal``: which pairs
    of samples coincide, (n1, n2). Their gap at equal positions is set to exactly 0, where the
    difference of averages leaves a rounding error.
    """
    space = averaged.space

    def of_side(side: Side) -> tuple[Side, Any]:
        lost = aligned(side.within, len(space)) / 2
        one, two = opposite(lost)
        within = not_below_zero(side.within - one - two)
        within = jnp.where(equal_positions(space, 1), 0, within)
        return side._replace(q=side.q - 2 * lost, within=within), lost

    (first, lost1), (second, lost2) = of_side(averaged.first), of_side(averaged.second)
    lost1, lost2 = averaged.facing(lost1, lost2)
    gap = not_below_zero(averaged.gap - lost1 - lost2)
    exact = equal & equal_positions(space, 2)
    gap = gap - lax.stop_gradient(jnp.where(exact, gap, 0))
    return KernelState(first, second, gap, averaged.ntk, averaged.same)


def coincident(state: KernelState) -> Any:
    """Return which pairs of samples agree at all positions, to within rounding, (n1, n2)."""
    q1, q2 = (side.q.reshape(-1, side.q.shape[-1]) for side in (state.first, state.second))
    gap = aligned(state.gap, len(state.space)) if state.pairs else state.gap
    gap = jnp.reshape(gap, (len(q1), *state.same.shape))
    rounding = 16 * jnp.finfo(gap.dtype).eps ** 2
    return jnp.all(gap <= rounding * (q1[:, :, None] + q2[:, None, :]), axis=0)


def product(subscripts: str, *factors: Any) -> Any:
    """Return an einsum in full precision, which accelerators reduce by default."""
    return jnp.einsum(subscripts, *factors, precision=lax.Precision.HIGHEST)
