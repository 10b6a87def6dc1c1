"""The state that the kernels' recursion carries from layer to layer.

Arrays over pairs of samples have the positions first and the samples last, (*positions, n1, n2).
Positions are either *aligned*, each paired with the same position of the other sample,
(*space, n1, n2), or *all pairs* of positions, (*space, *space, n1, n2), if a later layer requires
them (:class:`Wanted`). Without spatial axes both shapes are (n1, n2). A *plane* is aligned with the
displaced second sample: it holds the pairs (p, p + d) for one displacement d.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


class AffineConstants(NamedTuple):
    """An affine map's constants of order one, and rates; leading axes are enclosing repetitions."""

    # weight_variance, bias_variance: σ_w² and σ_b².
    weight_variance: Any
    bias_variance: Any
    # weight_rate, bias_rate: rates ρ relative to η₀γ²; 0 for frozen parameters.
    weight_rate: Any
    bias_rate: Any


class GainConstants(NamedTuple):
    """The rates of trained gains and offsets, relative to η₀γ²; leading axes as above."""

    gain_rate: Any
    offset_rate: Any


class Copies(NamedTuple):
    """The constants of a repetition, for compiled functions of any number of copies."""

    # The constants of a copy; if copies differ, with a leading axis that may be longer than their
    # number.
    constants: Any
    number: Any  # the number of copies, which may be traced


class Wanted(NamedTuple):
    """The moments that the remaining layers of a network require of a state."""

    # Whether all pairs of positions, and the gaps between positions of the same sample, are
    # required.
    pairs: bool = False
    means: bool = False  # whether means of the signal are required

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(self.pairs or other.pairs, self.means or other.means)


class Side(NamedTuple):
    """Moments of one of the two sets of samples."""

    q: Float[Array, "*space n"]  # variances, or second moments, K(x, x) at each position
    mean: Float[Array, "*space n"] | None = None  # means; None if they are not required
    # Gaps between the positions of each sample; None if pairs of positions are not required.
    within: Float[Array, "*positions n"] | None = None
    # 1 at present positions and 0 at masked ones; None without a mask.
    present: Float[Array, "*space n"] | None = None


class KernelState(NamedTuple):
    """Second moments of two sets of samples between two layers, and their tangent kernel.

    The covariance K₁₂ of a pair is carried as its gap, half the mean squared distance,
    (K₁₁ + K₂₂)/2 − K₁₂: where two inputs nearly coincide, the covariance has lost the digits that
    deep kernels depend on, and the gap keeps them. A bias does not change the gap.
    """

    first: Side
    second: Side
    gap: Float[Array, "*positions n1 n2"]  # the gap of every pair
    # Θ of the layers so far; None if it is not requested.
    ntk: Float[Array, "*positions n1 n2"] | None
    # Pairs that are the same sample in the same pass through the network.
    same: Bool[Array, "n1 n2"]
    # In a plane the displacement d ≥ 0 along each spatial axis, whose length is the period: the
    # entries at p pair the first sample's position p with the second one's p + d. The fields of the
    # second side are not displaced. None in other states.
    displacement: Int[Array, " axis"] | None = None

    @property
    def space(self) -> tuple[int, ...]:
        """Lengths of the spatial axes."""
        return self.first.q.shape[:-1]

    @property
    def pairs(self) -> bool:
        """Whether the state holds all pairs of positions."""
        return self.first.within is not None

    @property
    def covariance(self) -> Any:
        """K₁₂ = (q1 + q2)/2 − gap, (*positions, n1, n2)."""
        q1, q2 = self.facing(self.first.q, self.second.q)
        return (q1 + q2) / 2 - self.gap

    def facing(self, of_first: Any, of_second: Any) -> tuple[Any, Any]:
        """Return a field of each side, (*space, n), with axes that broadcast over pairs."""
        space, ones = self.space, (1,) * len(self.space) * self.pairs
        if self.displacement is not None:
            of_second = displaced(of_second, self.displacement)
        of_first = of_first.reshape(*space, *ones, -1, 1)
        return of_first, of_second.reshape(*ones, *space, 1, -1)

    def reduced(self, wanted: Wanted) -> KernelState:
        """Return the state without moments that are not required."""
        state = self
        if state.pairs and not wanted.pairs:
            axes = len(self.space)
            state = state._replace(gap=aligned(self.gap, axes), ntk=aligned(self.ntk, axes))
            state = state.with_sides(lambda side: side._replace(within=None))
        if wanted.means:
            return state
        return state.with_sides(lambda side: side._replace(mean=None))

    def with_sides(self, change: Callable[[Side], Side]) -> KernelState:
        """Return the state with both sides changed in the same way."""
        return self._replace(first=change(self.first), second=change(self.second))


def displaced(field: Any, displacement: Any) -> Any:
    """Return a field (*space, …) with the entries of p + d at p; each axis is periodic."""
    for axis, d in enumerate(displacement):
        twice = jnp.concatenate([field, field], axis)
        field = lax.dynamic_slice_in_dim(twice, d, field.shape[axis], axis)
    return field


def opposite(field: Any) -> tuple[Any, Any]:
    """Return a field (*space, n) with axes that broadcast over pairs of positions of a sample."""
    *space, n = field.shape
    ones = (1,) * len(space)
    return field.reshape(*space, *ones, n), field.reshape(*ones, *space, n)


def aligned(pairs: Any, axes: int) -> Any:
    """Return the entries of (*space, *space, …) whose two positions are equal, (*space, …)."""
    if pairs is None:
        return None
    space, rest = pairs.shape[:axes], pairs.shape[2 * axes :]
    here = jnp.arange(prod(space))
    return pairs.reshape(len(here), len(here), *rest)[here, here].reshape(*space, *rest)


def equal_positions(space: tuple[int, ...], rest: int) -> Any:
    """Return which pairs of positions are equal, (*space, *space) and ``rest`` axes of length 1."""
    return jnp.eye(prod(space), dtype=bool).reshape(*space, *space, *(1,) * rest)
