"""Covariances of two different values of a program, which sums of dependent terms require.

For values u and v, with x and x' samples of the two sets, four arrays are carried: E[u(x) v(x')],
E[u(x') v(x)], and E[u(x) v(x)] within each of the sets; and the inner products of the gradients of
u and v for the first two, as Θ. They follow from those of earlier values in three ways:

    u = Σ c x:          E[u v] = Σ c E[x v], and so for averages over positions and normalisation,
    u = Wx, v = Wy:     E[u v] = σ_w² E[x y] + σ_b², Θ = ρ_w σ_w² E[x y] + ρ_b σ_b² + σ_w² Θ_xy,
    u = φ(a), v = ψ(b): E[u v] = E[φ(a) ψ(b)], Θ = E[φ'(a) ψ'(b)] Θ_ab.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from largen.expectations.two_functions import cross_moments
from largen.kernels.rules.normalizing import mean_over, scales_of
from largen.kernels.rules.planning import (
    Expanded,
    Factor,
    Factors,
    Matched,
    OfMeans,
    Pair,
    SameWeight,
    Way,
    off_centre,
)
from largen.kernels.rules.pooling import averages
from largen.kernels.state import KernelState, Wanted, aligned, equal_positions, opposite
from largen.programs import (
    BRANCH,
    Affine,
    Flatten,
    Mask,
    Normalise,
    Operation,
    Pool,
    Program,
    Sum,
    slides,
)


class Cross(NamedTuple):
    """Second moments of two values u and v.

    The axes of positions are those of u and then those of v, or aligned ones.

    Attributes
    ----------
    k, back
        Those of u of the first set and v of the second, and of u of the second and v of the first,
        (*positions, n1, n2).
    one, two
        Those within each sample of the first and the second set, (*positions, n1) and
        (*positions, n2).
    t, back_t
        Inner products of gradients, as ``k`` and ``back``; None if they are not requested.
    """

    k: Any
    back: Any
    one: Any
    two: Any
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
    """The values of a program that have been computed so far.

    Attributes
    ----------
    program, constants
        The program, and the constants of each operation.
    states
        The states of the values.
    pairs
        The second moments of pairs of values, None where they are zero.
    """

    program: Program
    constants: Any
    states: list[KernelState]
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


def sides_of(
    fields: tuple[Any, Any], before: int, after: int, second: bool
) -> tuple[Any, Any, Any, Any]:
    """Return a field (*space, n) of both sets of samples as it goes with the arrays of a pair.

    Parameters
    ----------
    fields
        The field on the first and on the second set.
    before, after
        The numbers of axes of positions before and behind those of the field.
    second
        Whether it is a field of v, and not of u.
    """

    def placed(field: Any, *last: int) -> Any:
        *space, _ = field.shape
        return field.reshape(*(1,) * before, *space, *(1,) * after, *last)

    one, two = fields
    k, back = placed(one, -1, 1), placed(two, 1, -1)
    return (back, k, placed(one, -1), placed(two, -1)) if second else (k, back, *(
        placed(one, -1), placed(two, -1)
    ))


class _Layout(NamedTuple):
    """The axes of positions of a pair: those of u, those of v, and whether they are aligned."""

    u: int
    v: int
    pairs: bool

    def of_u(self, *fields: Any) -> tuple[Any, Any, Any, Any]:
        return sides_of(fields, 0, self.v * self.pairs, False)  # pyright: ignore

    def of_v(self, *fields: Any) -> tuple[Any, Any, Any, Any]:
        return sides_of(fields, self.u * self.pairs, 0, True)  # pyright: ignore


def cross(way: Way, pair: Pair, values: Values, pairs: bool) -> Cross | None:
    """Return the second moments of a pair of values, with all pairs of positions if requested."""
    u, v = (values.states[each] for each in pair)
    layout = _Layout(len(u.space), len(v.space), pairs)
    match way:
        case OfMeans():
            found = _of_means(u, v, layout)
        case Expanded():
            found = _expanded(way, pair, values, pairs)
        case SameWeight():
            found = _same_weight(way, pair, values, layout)
        case Matched(parts, shares):
            flat = isinstance(values.program.operations[pair[0]], Flatten)
            found = None
            for (one, two), share in zip(parts, shares, strict=True):
                its = values.pair(one, two, pairs and not flat)
                if its is not None and flat:
                    axes = tuple(range(len(values.states[one].space)))
                    its = its.map(lambda array, axes=axes: jnp.mean(array, axis=axes))
                found = found if its is None else its.weighted(share, found)
        case Factors(parts):
            found = _of_factors(parts, values, layout)
    if found is None or not isinstance(u.gap, np.ndarray):
        return found
    return Cross(*(None if array is None else np.asarray(array) for array in found))


def _of_means(u: KernelState, v: KernelState, layout: _Layout) -> Cross:
    ones = layout.of_u(u.first.mean, u.second.mean)
    twos = layout.of_v(v.first.mean, v.second.mean)
    k, back, one, two = (a * b for a, b in zip(ones, twos, strict=True))
    return Cross(k, back, one, two, *((None,) * 2 if u.ntk is None else (0 * k, 0 * back)))


def _expanded(way: Expanded, pair: Pair, values: Values, pairs: bool) -> Cross | None:
    """Return the moments of a linear operation and another value."""
    place, other = way
    operation, constants = values.program.operations[place], values.constants[place]
    left = place == pair[0]
    pairs_before = pairs or isinstance(operation, Pool)
    found: Cross | None = None
    for read, factor in zip(operation.reads, _factors_of(operation, constants), strict=True):
        its = values.pair(*((read, other) if left else (other, read)), pairs_before)
        if its is not None:
            found = its.weighted(factor, found)
    if found is None or isinstance(operation, Sum | Mask):
        return found
    state, after = values.states[operation.reads[0]], values.states[place]
    rest, axes = len(values.states[other].space), len(state.space)
    before, behind = (0, rest) if left else (rest, 0)

    def times(found: Cross, *fields: Any) -> Cross:
        here = (before, behind) if found.one.ndim - 1 > len(after.space) else (0, 0)
        return found.map(lambda array, field: array * field, sides_of(fields, *here, not left))

    if isinstance(operation, Normalise):
        if off_centre(values.program, place, other):
            found = _less_means(found, operation, values, way, left, pairs)
        return times(found, *scales_of(state, operation))
    assert isinstance(operation, Pool)
    average, inside = averages(operation, state.space)
    found = found.map(lambda array: average(array, before))
    found = times(found, *_of_window(operation, state, average, inside))
    same_space = not pairs and axes == rest and not operation.window is None
    return found.map(lambda array: aligned(array, axes)) if same_space and axes else found


def _factors_of(operation: Operation, constants: Any) -> tuple[Any, ...]:
    if isinstance(operation, Sum):
        return tuple(constants if factor == BRANCH else factor for factor in operation.factors)
    return (1.0,) * len(operation.reads)


def _less_means(
    found: Cross, operation: Normalise, values: Values, way: Expanded, left: bool, pairs: bool
) -> Cross:
    """Return E[(x − M) v] = E[x v] − M E[v], with the mean M that a normalisation subtracts."""
    state, other = values.states[operation.reads[0]], values.states[way.other]
    centres = [mean_over(side.mean, side, operation) for side in (state.first, state.second)]
    means = other.first.mean, other.second.mean
    layout = _Layout(len(state.space), len(other.space), pairs)
    if left:
        fields = layout.of_u(*centres), layout.of_v(*means)
    else:
        layout = _Layout(len(other.space), len(state.space), pairs)
        fields = layout.of_v(*centres), layout.of_u(*means)
    less = found.map(lambda array, centre, mean: array - centre * mean, *fields)
    return less._replace(t=found.t, back_t=found.back_t)


def _of_window(operation: Pool, state: KernelState, average: Any, inside: Any) -> list[Any]:
    """Return the factors of averages over windows on both sets: counts, or those of masks."""
    counts = jnp.asarray(inside).reshape(*np.shape(inside), 1)
    found = []
    for side in (state.first, state.second):
        share = 1.0 if side.present is None else average(side.present, 0)
        if operation.total:
            factor = counts * jnp.ones_like(share)
        else:
            factor = jnp.where(share > 0, 1 / jnp.where(share > 0, share, 1), 0)
        shape = (*np.shape(inside), side.q.shape[-1])
        found.append(jnp.broadcast_to(factor, shape))
    return found


def _same_weight(way: SameWeight, pair: Pair, values: Values, layout: _Layout) -> Cross:
    """Return the moments of Wx and Wy."""
    operation = values.program.operations[pair[0]]
    assert isinstance(operation, Affine)
    weight, bias, weight_rate, bias_rate = values.constants[pair[0]]
    pairs = layout.pairs and operation.tied
    x, space = values.pair(way.one, way.two, pairs), values.states[way.one].space
    u, v = (values.states[each] for each in pair)
    ones = layout.of_u(jnp.zeros_like(u.first.q), jnp.zeros_like(u.second.q))
    zeros = layout.of_v(jnp.zeros_like(v.first.q), jnp.zeros_like(v.second.q))
    empty = [a + b for a, b in zip(ones, zeros, strict=True)]
    no_t = u.ntk is None
    if x is None:
        x = Cross(*empty, *((None, None) if no_t else empty[:2]))
        sums = x
    else:
        sums = x.map(lambda array: _over_window(array, operation, space, pairs))
        if layout.pairs and not operation.tied and space:
            sums = sums.map(lambda array: _spread(array, u.space))
    share = weight if operation.window is None else weight / operation.window.size
    found = [share * array + bias for array in sums[:4]]
    if layout.pairs and not operation.tied and space:
        equal = equal_positions(u.space, 0)
        found = [
            jnp.where(equal.reshape(*equal.shape, *(1,) * (a.ndim - equal.ndim)), a, 0)
            for a in found
        ]
    tangents: list[Any] = [None, None]
    if not no_t:
        tangents = [
            share * (weight_rate * k + t) + bias_rate * bias
            for k, t in zip(sums[:2], sums[4:], strict=True)
        ]
    return _masked(Cross(*found, *tangents), u, v, layout)


def _over_window(array: Any, operation: Affine, space: tuple[int, ...], pairs: bool) -> Any:
    """Return the sum over a window, with the same offset at both positions."""
    if operation.window is None:
        return array
    for axis, slide in enumerate(slides(operation.window, space)):
        axes = (axis, axis + len(space)) if pairs else (axis,)
        for each in axes:
            array = slide.extended(array, each)
        array = slide.summed(array, *axes)
    return array


def _spread(array: Any, space: tuple[int, ...]) -> Any:
    """Return an aligned array as one of all pairs of positions."""
    return array.reshape(*space, *(1,) * len(space), *array.shape[len(space) :]) * jnp.ones(
        (*space, *space, *(1,) * (array.ndim - len(space)))
    )


def _masked(found: Cross, u: KernelState, v: KernelState, layout: _Layout) -> Cross:
    """Return moments that are 0 at masked positions."""
    for state, place in ((u, layout.of_u), (v, layout.of_v)):
        shown = state.first.present, state.second.present
        if shown[0] is not None and shown[1] is not None:
            found = found.map(lambda array, field: array * field, place(*shown))
    return found


def _of_factors(
    parts: tuple[tuple[Factor | None, Factor | None], ...], values: Values, layout: _Layout
) -> Cross | None:
    """Return the moments of products of functions, from those of their independent parts."""
    total: Cross | None = None
    for one, two in parts:
        if one is not None and two is not None:
            found = _of_functions(one, two, values, layout)
        else:
            found = _of_mean(one, two, values, layout)
        if found is None:
            return None
        total = found if total is None else _times(total, found)
    return total


def _times(one: Cross, two: Cross) -> Cross:
    """Return K = K₁K₂ and Θ = Θ₁K₂ + K₁Θ₂ of independent factors."""
    moments = [a * b for a, b in zip(one[:4], two[:4], strict=True)]
    if one.t is None:
        return Cross(*moments)
    tangents = (
        t * b + a * s for t, s, a, b in zip(one[4:], two[4:], one[:2], two[:2], strict=True)
    )
    return Cross(*moments, *tangents)


def _of_mean(
    one: Factor | None, two: Factor | None, values: Values, layout: _Layout
) -> Cross | None:
    """Return the mean of a factor that only one of the values has."""
    alone = one or two
    assert alone is not None
    state = values.states[alone.value]
    fields = state.first.mean, state.second.mean
    means = layout.of_u(*fields) if one is not None else layout.of_v(*fields)
    none = (None, None) if state.ntk is None else (0 * means[0], 0 * means[1])
    return Cross(*means, *none)


def _of_functions(one: Factor, two: Factor, values: Values, layout: _Layout) -> Cross | None:
    """Return the moments of φ(a) and ψ(b)."""
    x = values.pair(one.base, two.base, layout.pairs)
    if x is None:
        return None
    if one.phi == two.phi and one.phi.name == "linear":
        return x
    a, b = values.states[one.base], values.states[two.base]
    q1, q2 = layout.of_u(a.first.q, a.second.q), layout.of_v(b.first.q, b.second.q)
    fields = list(zip(q1, q2, x[:4], strict=True))
    k, back, slopes = _facing(one, two, *fields[:2])
    own = cross_moments(one.phi, two.phi, *map(_side_by_side, *fields[2:])).value
    length = x.one.shape[-1]
    moments = k, back, own[..., :length], own[..., length:]
    tangents = () if x.t is None else (s * t for s, t in zip(slopes, x[4:], strict=True))
    return _masked(Cross(*moments, *tangents), a, b, layout)


def _side_by_side(one: Any, two: Any) -> Any:
    return jnp.concatenate([one, two], axis=-1)


def _facing(one: Factor, two: Factor, k: Any, back: Any) -> tuple[Any, Any, tuple[Any, Any]]:
    """Return the moments between two sets, and E[φ'ψ'], from (q1, q2, q12) of both directions."""
    if k[2].shape[-2] != k[2].shape[-1]:
        found = [cross_moments(one.phi, two.phi, *each) for each in (k, back)]
        return found[0].value, found[1].value, (found[0].derivative, found[1].derivative)
    # As many samples in both sets: one series for both directions, of which one is transposed.
    fields = [jnp.stack([x, jnp.swapaxes(y, -1, -2)], -3) for x, y in zip(k, back, strict=True)]
    value, slope = cross_moments(one.phi, two.phi, *fields)
    (k, back), slopes = (
        (array[..., 0, :, :], jnp.swapaxes(array[..., 1, :, :], -1, -2)) for array in (value, slope)
    )
    return k, back, slopes
