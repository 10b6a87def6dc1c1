"""Second moments of two values of a program, as records, and the values that there are so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from largen.kernels.rules.planning import Pair
from largen.kernels.state import KernelState, Wanted, aligned, opposite
from largen.programs import Program


class Cross(NamedTuple):
    """Second moments of two values u and v.

    The axes of positions are those of u and then those of v, or aligned ones.
    """

    # k, back: those of u of the first set and v of the second, and of u of the second and v of the
    # first, (*positions, n1, n2).
    k: Any
    back: Any
    # one, two: those within each sample of the first and the second set, (*positions, n1) and
    # (*positions, n2).
    one: Any
    two: Any
    # t, back_t: inner products of gradients, as k and back; None if they are not requested.
    t: Any = None
    back_t: Any = None

    def map(self, change: Callable[..., Any], *fields: tuple[Any, ...]) -> Cross:
        """Return the result of a function of each array, and of four fields that go with them."""
        k, back, one, two = (change(*each) for each in zip(self[:4], *fields, strict=True))
        if self.t is None:
            return Cross(k, back, one, two)
        t, back_t = (change(*each) for each in zip(self[4:], *(f[:2] for f in fields), strict=True))
        return Cross(k, back, one, two, t, back_t)

    def weighted(self, factor: Any, other: Cross | None = None) -> Cross:
        """Return this times a factor, plus another one."""
        found = self.map(lambda array: factor * array)
        if other is None:
            return found
        return Cross(*(None if a is None else a + b for a, b in zip(found, other, strict=True)))


class Values(NamedTuple):
    """The values of a program that have been computed so far."""

    # program, constants: the program, and the constants of each operation.
    program: Program
    constants: Any
    states: list[KernelState]
    # The second moments of pairs of values, None where they are zero.
    pairs: dict[Pair, Cross | None]

    def pair(self, u: int, v: int, pairs: bool) -> Cross | None:
        """Return the second moments of two values, None where they are zero."""
        if u == v:
            return _of_itself(self.states[u].reduced(Wanted(pairs, True)))
        found = self.pairs.get((max(u, v), min(u, v)))
        if found is None:
            return None
        axes = (len(self.states[max(u, v)].space), len(self.states[min(u, v)].space))
        apart = found.one.ndim - 1 == sum(axes) and sum(axes) > 0
        if u < v:
            found = _exchanged(found, axes if apart else (0, 0))
        if apart and not pairs:
            found = found.map(lambda array: aligned(array, axes[0]))
        return found


def _of_itself(state: KernelState) -> Cross:
    """Return the second moments of a value and itself."""

    def own(side: Any) -> Any:
        if side.within is None:
            return side.q
        one, two = opposite(side.q)
        return (one + two) / 2 - side.within

    k, t, axes = state.covariance, state.ntk, len(state.space) * state.pairs
    back, back_t = (None if a is None else _swap(a, (axes, axes)) for a in (k, t))
    return Cross(k, back, own(state.first), own(state.second), t, back_t)


def _swap(array: Any, axes: tuple[int, int]) -> Any:
    """Return an array with its first axes of positions behind the second ones."""
    return jnp.moveaxis(array, range(axes[0]), range(axes[1], sum(axes))) if any(axes) else array


def _exchanged(found: Cross, axes: tuple[int, int]) -> Cross:
    """Return the moments of v and u."""
    k, back, one, two, t, back_t = (None if a is None else _swap(a, axes) for a in found)
    return Cross(back, k, one, two, back_t, t)


Fields = tuple[Any, Any, Any, Any]


class Layout(NamedTuple):
    """The axes of positions of a pair: those of u, those of v, and whether they are not aligned.

    Its methods return a field (*space, n) of both sets of samples as it goes with the four arrays.
    """

    u: int
    v: int
    pairs: bool

    def of_u(self, first: Any, second: Any) -> Fields:
        """Return a field of u."""
        k, back = (self._placed(first, 0, -1, 1), self._placed(second, 0, 1, -1))
        return k, back, self._placed(first, 0, -1), self._placed(second, 0, -1)

    def of_v(self, first: Any, second: Any) -> Fields:
        """Return a field of v."""
        k, back = (self._placed(second, 1, 1, -1), self._placed(first, 1, -1, 1))
        return k, back, self._placed(first, 1, -1), self._placed(second, 1, -1)

    def of(self, left: bool, first: Any, second: Any) -> Fields:
        """Return a field of u, or of v."""
        return self.of_u(first, second) if left else self.of_v(first, second)

    def _placed(self, field: Any, behind: int, *last: int) -> Any:
        *space, _ = field.shape
        ones = (1,) * (self.u if behind else self.v) * self.pairs
        axes = (*ones, *space) if behind else (*space, *ones)
        return field.reshape(*axes, *last)
