"""Kernels behind elementwise activations of Gaussian preactivations, and behind dropout.

An activation φ of preactivations (u, v) ~ N(0, K) of two samples gives

    K ← E[φ(u) φ(v)],   Θ ← E[φ'(u) φ'(v)] Θ:

the part of the recursion in ``affine.py`` (Bahri and Hanin) that is not linear. Dropout sets each
component to 0 with the probability r and multiplies the others by 1/(1 − r). It multiplies the
second moments of a component with itself, within one pass, by 1/(1 − r), and leaves all others as
they are.

A trained gain g of channels with the rate ρ inside of an elementwise function y = f(u; g) adds
ρ E[∂_g f(u) ∂_g f(v)] to Θ: its gradient is a sum over independent channels, the mean of which
remains. It does not factorise, as value and derivative are those of the same u.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from largen.expectations import ActivationFunction, mean, pair_moments, second_moment
from largen.kernels.rules.dispatch import States, rule, wanted
from largen.kernels.rules.scaling import apply_masks, rescale
from largen.kernels.state import GainConstants, KernelState, Side, Wanted, equal_positions, opposite
from largen.programs import Function, Gain, Mask


@rule.register
def _(
    operation: Function, constants: tuple[GainConstants, ...], states: States, behind: Wanted
) -> KernelState:
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
    if ntk is not None:
        ntk = ntk if phi.jumps else derivative * ntk  # it is 0 in front of jumps
        terms = zip(operation.gains, constants, strict=True)
        for (_, of_gain, of_offset), (gain_rate, offset_rate) in terms:
            ntk = ntk + gain_rate * _second_moments(of_gain, state)
            if isinstance(of_offset, float):
                ntk = ntk + offset_rate * of_offset**2 * derivative
            elif isinstance(of_offset, ActivationFunction):
                ntk = ntk + offset_rate * _second_moments(of_offset, state)
    first, second = of_side(state.first), of_side(state.second)
    return apply_masks(state._replace(first=first, second=second, gap=gap, ntk=ntk))


def _second_moments(phi: ActivationFunction, state: KernelState) -> Any:
    """Return E[φ(u) φ(v)] of all pairs."""
    q1, q2 = state.facing(state.first.q, state.second.q)
    of1, of2 = state.facing(*(second_moment(phi, side.q) for side in (state.first, state.second)))
    return (of1 + of2) / 2 - pair_moments(phi, q1, q2, state.gap).gap


@rule.register
def _(operation: Gain, constants: GainConstants, states: States, behind: Wanted) -> KernelState:
    (state,), initial = states, operation.initial
    after = state if initial == 1 else rescale(state, initial, initial)
    if after.ntk is None:
        return after
    ntk = after.ntk + constants.gain_rate * state.covariance + constants.offset_rate
    return apply_masks(after._replace(ntk=ntk))


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
