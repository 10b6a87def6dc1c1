"""Gaps of weighted averages over positions, whose weights sum to one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from largen.kernels.rules.scaling import not_below_zero
from largen.kernels.state import Side, State, aligned, equal_positions, opposite


def from_averages(averaged: State, equal: Any) -> State:
    """Return the state of averages, from the averages of its arrays.

    q ← ⟨q⟩ − ⟨gap₁₁⟩ and gap₁₂ ← ⟨gap₁₂⟩ − ½⟨gap₁₁⟩ − ½⟨gap₂₂⟩, with averages of pairs over
    both positions.

    Parameters
    ----------
    averaged
        A state with all pairs of positions.
    equal
        Pairs of samples that coincide, (n1, n2): their gap is exactly 0 at equal positions,
        which the difference of averages forgets.
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
    return State(first, second, gap, averaged.ntk, averaged.same)


def coincident(state: State) -> Any:
    """Return which pairs of samples are equal at all positions, up to rounding, (n1, n2)."""
    q1, q2 = (side.q.reshape(-1, side.q.shape[-1]) for side in (state.first, state.second))
    gap = aligned(state.gap, len(state.space)) if state.pairs else state.gap
    gap = jnp.reshape(gap, (len(q1), *state.same.shape))
    rounding = 16 * jnp.finfo(gap.dtype).eps ** 2
    return jnp.all(gap <= rounding * (q1[:, :, None] + q2[:, None, :]), axis=0)


def product(subscripts: str, *factors: Any) -> Any:
    """Return an einsum in full precision, which accelerators cut short by default."""
    return jnp.einsum(subscripts, *factors, precision=lax.Precision.HIGHEST)
