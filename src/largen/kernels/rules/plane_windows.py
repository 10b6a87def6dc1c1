"""Sums over windows inside a plane of displacement.

A convolution with stride 1 takes K at (p, p + d) to Σ_k K(p + k, p + d + k), which stays in the
plane of its displacement. Planes are periodic: p + d wraps around at the end of an axis. With zero
padding the entries before and behind the wrap belong to the displacements d and d − (length), which
share the plane; a window counts the positions that both samples have, and does not cross the wrap.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from largen.kernels.state import KernelState, displaced
from largen.programs.windows import Slide


def window_sum_in_plane(state: KernelState, axis: int, slide: Slide) -> KernelState:
    """Return the plane with every kernel summed over a window along one spatial axis.

    The window has stride 1 and a sum for each position. Where it sees a position of one sample
    only, the gap is half the variance of that position.
    """
    assert state.displacement is not None
    offsets = range(slide.window)
    there = [slide.offset(slide.present, k, 0) for k in offsets]
    forth = state.displacement[axis, None]
    back = -forth % slide.positions
    # Whether p + d + k is there, for each p, and whether p + k is there, for each p + d.
    second_there, first_there = (
        [displaced(jnp.asarray(t), d) for t in there] for d in (forth, back)
    )

    def summed(array: Any, where: list[Any]) -> Any:
        """Return the sum over the window of the positions at which ``where`` holds."""
        extended, total = slide.extended(array, axis), 0.0
        for k in offsets:
            part = slide.weighted(slide.offset(extended, k, axis), k)
            if not there[k].all():
                part = jnp.where(slide.along(where[k], axis, part.ndim), part, 0)
            total = total + part
        return total

    q1, q2 = state.first.q, state.second.q
    gap = summed(state.gap, second_there)
    if not np.all(there):
        alone1 = _alone(slide.extended(q1, axis), axis, slide, second_there)
        alone2 = _alone(slide.extended(q2, axis), axis, slide, first_there)
        one, two = state.facing(alone1, alone2)
        gap = gap + one + two
    every = [np.ones_like(t) for t in there]
    return state._replace(
        first=state.first._replace(q=summed(q1, every)),
        second=state.second._replace(q=summed(q2, every)),
        gap=gap,
        ntk=None if state.ntk is None else summed(state.ntk, second_there),
    )


def _alone(extended: Any, axis: int, slide: Slide, other: list[Any]) -> Any:
    """Return half the variances in each window at positions that the other sample lacks."""
    total = 0.0
    for k, seen in enumerate(other):
        part = slide.weighted(slide.offset(extended, k, axis), k)
        total = total + jnp.where(slide.along(seen, axis, part.ndim), 0, part / 2)
    return total
