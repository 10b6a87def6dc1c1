"""Kernels behind affine maps: dense, convolutional, transposed and locally connected ones.

Let ⟨·⟩ be the mean over the fan-in: over features, and for convolutions over the positions of the
window. With the rates ρ_w and ρ_b of weights and biases (Bahri and Hanin, Les Houches lectures,
eqs. (13), (17)-(24) and (83)),

    K ← σ_b² + σ_w² ⟨K⟩,   Θ ← ρ_w σ_w² ⟨K⟩ + ρ_b σ_b² + σ_w² ⟨Θ⟩.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.kernels.rules.dispatch import States, rule, wanted
from largen.kernels.rules.plane_windows import window_sum_in_plane
from largen.kernels.rules.scaling import apply_masks
from largen.kernels.state import (
    AffineConstants,
    KernelState,
    Side,
    Wanted,
    equal_positions,
    opposite,
)
from largen.programs import Affine, Slide, slides


@rule.register
def _(operation: Affine, constants: AffineConstants, states: States, behind: Wanted) -> KernelState:
    (state,), window = states, operation.window
    if window is None:
        state = _affine_map(state, constants, 1, behind)
    else:
        for axis, slide in enumerate(slides(window, state.space)):
            state = window_sum(state, axis, slide)
        state = _affine_map(state, constants, window.size, behind)
    if operation.tied or not behind.pairs:
        return state
    # Each position has its own weights, the same for all samples, so that outputs at different
    # positions are uncorrelated.
    return without_correlations(state)


@wanted.register
def _(operation: Affine, behind: Wanted) -> Wanted:
    return Wanted(behind.pairs and operation.tied)


def window_sum(state: KernelState, axis: int, slide: Slide) -> KernelState:
    """Return the state with all kernels summed over a window along one spatial axis.

    With all pairs of positions, K(p, p') ← Σ_k K(p + k, p' + k) over the offsets k of the window.
    """
    if state.displacement is not None:
        return window_sum_in_plane(state, axis, slide)
    first, second = state.first, state.second
    axes = (axis, axis + len(state.space)) if state.pairs else (axis,)
    extended = [slide.extended(side.q, axis) for side in (first, second)]

    def summed(array: Any) -> Any:
        for each in axes:
            array = slide.extended(array, each)
        return slide.summed(array, *axes)

    alone: list[tuple[Any, Any]] = [
        _alone(q, axis, slide) if state.pairs else (0, 0) for q in extended
    ]

    def of_side(side: Side, q: Any, alone: tuple[Any, Any]) -> Side:
        within, present = side.within, side.present
        if within is not None:
            within = summed(within) + alone[0] + alone[1]
        if present is not None and slide.positions != present.shape[axis]:
            seen = replace(slide, weights=None).summed(slide.extended(present, axis), axis)
            present = jnp.minimum(seen, 1)
        return side._replace(q=slide.summed(q, axis), within=within, present=present)

    gap = summed(state.gap)
    if state.pairs:
        gap = gap + alone[0][0][..., None] + alone[1][1][..., None, :]
    ntk = None if state.ntk is None else summed(state.ntk)
    sides = [of_side(*each) for each in zip((first, second), extended, alone, strict=True)]
    return KernelState(sides[0], sides[1], gap, ntk, state.same)


def _alone(q: Any, axis: int, slide: Slide) -> tuple[Any, Any]:
    """Return the terms of a gap at offsets where only one of two positions is present, ½ Σ_k q.

    Where an offset k of the window reaches a position of one sample and the zero padding of the
    other, half the squared distance is q/2.

    Given the padded variances q, (*space, n), returns two arrays that broadcast over
    (*space, *space, n): the terms of the first and of the second positions. They are computed as
    matrix products, because XLA would evaluate other expressions again for every element of the
    array that they are added to.
    """
    taps = range(slide.window)
    seen = jnp.stack([slide.weighted(slide.offset(q, k, axis), k) for k in taps])
    absent = np.stack([slide.offset(~slide.present, k, 0) for k in range(slide.window)])
    found = jnp.tensordot(seen / 2, absent.astype(q.dtype), (0, 0), precision=lax.Precision.HIGHEST)
    *space, n, positions = found.shape
    other = [positions if each == axis else 1 for each in range(len(space))]
    one = jnp.moveaxis(found, -1, -2).reshape(*space, *other, n)
    return one, jnp.moveaxis(found, -1, 0).reshape(*other, *space, n)


def _affine_map(
    state: KernelState, constants: AffineConstants, summed: int, behind: Wanted
) -> KernelState:
    """Return the state behind the weights, from kernels summed over ``summed`` positions."""
    weight, bias, weight_rate, bias_rate = constants
    share = weight / summed

    def of_side(side: Side) -> Side:
        within = None if side.within is None else share * side.within
        mean = jnp.zeros_like(side.q) if behind.means else None
        return Side(share * side.q + bias, mean, within, side.present)

    first, second = of_side(state.first), of_side(state.second)
    gap, ntk = share * state.gap, None
    if state.ntk is not None:
        ntk = share * (weight_rate * state.covariance + state.ntk) + bias_rate * bias
    return apply_masks(state._replace(first=first, second=second, gap=gap, ntk=ntk))


def without_correlations(state: KernelState) -> KernelState:
    """Return an aligned state as one of all pairs of positions, different ones uncorrelated."""
    space = state.space

    def spread(array, one, two, other):
        diagonal = array.reshape(*space, *(1,) * len(space), *array.shape[len(space) :])
        return jnp.where(equal_positions(space, array.ndim - len(space)), diagonal, other(one, two))

    def half(one, two):
        return (one + two) / 2

    def of_side(side: Side) -> Side:
        return side._replace(within=spread(jnp.zeros_like(side.q), *opposite(side.q), half))

    first, second = of_side(state.first), of_side(state.second)
    facing = KernelState(first, second, *state[2:]).facing(first.q, second.q)
    ntk = None if state.ntk is None else spread(state.ntk, *facing, lambda one, two: 0.0)
    return KernelState(first, second, spread(state.gap, *facing, half), ntk, state.same)
