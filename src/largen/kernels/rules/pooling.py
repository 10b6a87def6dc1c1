"""Kernels behind averages and sums over positions.

With the mean ⟨·⟩ over the positions p and p' of the windows o and o' of two samples, averages have

    K(o, o') ← ⟨K(p, p')⟩,   Θ(o, o') ← ⟨Θ(p, p')⟩,

and their second moment q(o) is ⟨K(p, p')⟩ over two positions of the same window and sample. In
terms of gaps, with gap₁₁ and gap₂₂ those between positions of one sample,

    gap(o, o') ← ⟨gap₁₂⟩ − ½⟨gap₁₁⟩ − ½⟨gap₂₂⟩.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from largen.kernels.rules.averages import coincident, from_averages
from largen.kernels.rules.dispatch import States, rule, wanted
from largen.kernels.rules.scaling import rescale
from largen.kernels.state import KernelState, Side, Wanted
from largen.programs import Flatten, Pool, slides


@rule.register
def _(operation: Pool, constants: tuple[()], states: States, behind: Wanted) -> KernelState:
    (state,) = states
    return _pool(state, *averages(operation, state.space), operation.total)


def averages(operation: Pool, space: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Return the average over windows of arrays whose axes begin at a given one, and their sizes.

    The sizes are the numbers of positions of a sample in each window.
    """
    if operation.window is None:
        return _over_space(space), np.asarray(prod(space))
    along = slides(operation.window, space)
    counts = [slide.counts() for slide in along]

    def average(array: Any, first_axis: int) -> Any:
        for axis, (slide, count) in enumerate(zip(along, counts, strict=True), first_axis):
            array = slide.summed(slide.extended(array, axis), axis)
            array = array / slide.along(count, axis, array.ndim)
        return array

    inside = np.ones(())
    for count in counts:
        inside = np.multiply.outer(inside, count)
    return average, inside


def pooled_of_averages(
    pool: Pool, state: KernelState, gaps: tuple[Any, Any, Any], ntk: Any, equal: Any
) -> KernelState:
    """Return the state behind a global pool, from averages over all pairs of positions.

    ``state``: the state before it, of which only the sides are used; ``gaps``: averages of the gaps
    within each sample of both sets, (n1,) and (n2,), and of the gaps of pairs of samples, (n1, n2);
    ``ntk``: average of Θ, or None; ``equal``: pairs of samples that coincide, as in
    ``from_averages``.
    """
    average = _over_space(state.space)

    def of_side(side: Side, within: Any) -> Side:
        return Side(
            average(side.q, 0), None if side.mean is None else average(side.mean, 0), within
        )

    first, second = of_side(state.first, gaps[0]), of_side(state.second, gaps[1])
    pooled = from_averages(KernelState(first, second, gaps[2], ntk, state.same), equal)
    inside = np.asarray(prod(state.space))
    return _by_counts(state, pooled, average, inside, pool.total)


def _over_space(space: tuple[int, ...]) -> Any:
    """Return the average over all positions of one sample, whose axes begin at a given one."""
    axes = len(space)

    def average(array: Any, first_axis: int) -> Any:
        return jnp.mean(array, axis=tuple(range(first_axis, first_axis + axes)))

    return average


def _pool(state: KernelState, average: Any, inside: np.ndarray, total: bool) -> KernelState:
    """Return the state of averages over windows, or with ``total`` of sums over them.

    ``inside`` is the number of positions in each window.
    """
    apart = len(state.space)

    def of_pairs(array: Any) -> Any:
        # The spatial axes of the first sample come first; the average keeps or removes them, and
        # those of the second sample follow.
        found = average(array, 0)
        return average(found, found.ndim - (array.ndim - apart))

    def of_side(side: Side) -> Side:
        mean = None if side.mean is None else average(side.mean, 0)
        return Side(average(side.q, 0), mean, of_pairs(side.within))

    pooled = state.with_sides(of_side)._replace(
        gap=of_pairs(state.gap), ntk=None if state.ntk is None else of_pairs(state.ntk)
    )
    pooled = from_averages(pooled, coincident(state))
    return _by_counts(state, pooled, average, inside, total)


def _by_counts(
    state: KernelState, pooled: KernelState, average: Any, inside: np.ndarray, total: bool
) -> KernelState:
    """Return sums instead of averages, or averages over the unmasked positions of each window."""
    shown = [side.present for side in (state.first, state.second)]
    counts = inside.reshape(*inside.shape, 1).astype(pooled.gap.dtype)
    if shown[0] is None or shown[1] is None:
        return rescale(pooled, counts, counts) if total else pooled
    shares = [average(present, 0) for present in shown]
    if total:
        scales = [counts * jnp.ones_like(share) for share in shares]
    else:
        scales = [jnp.where(share > 0, 1 / jnp.where(share > 0, share, 1), 0) for share in shares]
    pooled = rescale(pooled, *scales)
    if not inside.ndim:
        return pooled
    sides = [
        side._replace(present=(share > 0).astype(share.dtype))
        for side, share in zip((pooled.first, pooled.second), shares, strict=True)
    ]
    return pooled._replace(first=sides[0], second=sides[1])


@rule.register
def _(operation: Flatten, constants: tuple[()], states: States, behind: Wanted) -> KernelState:
    # Positions count as features of the next layer, and second moments are means over features.
    (state,) = states
    axes = tuple(range(len(state.space)))

    def over(array: Any) -> Any:
        return None if array is None else jnp.mean(array, axis=axes)

    pairs = state._replace(gap=over(state.gap), ntk=over(state.ntk))
    return pairs.with_sides(lambda side: Side(over(side.q), over(side.mean)))


@wanted.register
def _(operation: Pool, behind: Wanted) -> Wanted:
    return Wanted(True, behind.means)


@wanted.register
def _(operation: Flatten, behind: Wanted) -> Wanted:
    return Wanted(False, behind.means)
