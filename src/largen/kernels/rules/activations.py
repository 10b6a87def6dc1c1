"""Kernels behind elementwise activations of Gaussian preactivations, and behind dropout.

An activation φ of preactivations (u, v) ~ N(0, K) of two samples gives

    K ← E[φ(u) φ(v)],   Θ ← E[φ'(u) φ'(v)] Θ:

the part of the recursion in ``affine.py`` (Bahri and Hanin) that is not linear. Dropout sets each
component to 0 with the probability r and multiplies the others by 1/(1 − r). It multiplies the
second moments of a component with itself, within one pass, by 1/(1 − r), and leaves all others as
they are.
"""

from __future__ import annotations

import jax.numpy as jnp

from largen.expectations import mean, pair_moments, second_moment
from largen.kernels.rules.dispatch import States, rule, wanted
from largen.kernels.rules.scaling import apply_masks
from largen.kernels.state import KernelState, Side, Wanted, equal_positions, opposite
from largen.programs import Function, Mask


@rule.register
def _(operation: Function, constants: tuple[()], states: States, behind: Wanted) -> KernelState:
    (state,), phi = states, operation.phi

    def of_side(side: Side) -> Side:
        within = side.within
        if within is not None:
            within = pair_moments(phi, *opposite(side.q), within).gap
        means = mean(phi, side.q) if behind.means else None
        return Side(second_moment(phi, side.q), means, within, side.present)

    q1, q2 = state.facing(state.first.q, state.second.q)
    gap, derivative = pair_moments(phi, q1, q2, state.gap)
    ntk = state.ntk
    if ntk is not None and not phi.jumps:  # jumps are allowed where it is 0
        ntk = derivative * ntk
    first, second = of_side(state.first), of_side(state.second)
    return apply_masks(state._replace(first=first, second=second, gap=gap, ntk=ntk))


@wanted.register
def _(operation: Function, behind: Wanted) -> Wanted:
    return Wanted(behind.pairs)


@rule.register
def _(operation: Mask, constants: tuple[()], states: States, behind: Wanted) -> KernelState:
    # Masks m of different components are independent, with E[m] = 1 − rate. Only where a component
    # is multiplied by itself does E[m²]/(1 − rate)² = 1/(1 − rate) appear: for equal positions of
    # one sample in the same pass.
    (state,), kept = states, 1 / (1 - operation.rate)

    def gaps(gap, one, two, own):
        return jnp.where(own, kept * gap, gap + (kept - 1) * (one + two) / 2)

    def of_side(side: Side) -> Side:
        within = side.within
        if within is not None:
            within = gaps(within, *opposite(side.q), equal_positions(state.space, 1))
        return side._replace(q=kept * side.q, within=within)

    own = state.same
    if state.pairs:
        own = own & equal_positions(state.space, 2)
    q1, q2 = state.facing(state.first.q, state.second.q)
    return state._replace(
        first=of_side(state.first),
        second=of_side(state.second),
        gap=gaps(state.gap, q1, q2, own),
        ntk=None if state.ntk is None else jnp.where(own, kept * state.ntk, state.ntk),
    )
