"""Covariances of two different values of a program, which sums of dependent terms require.

For values u and v, with x and x' samples of the two sets, four arrays are carried: E[u(x) v(x')],
E[u(x') v(x)], and E[u(x) v(x)] within each of the sets; and the inner products of the gradients of
u and v for the first two, as Θ. They follow from those of earlier values in three ways:

    u = Σ c x:          E[u v] = Σ c E[x v], and so for averages over positions and normalisation,
    u = Wx, v = Wy:     E[u v] = σ_w² E[x y] + σ_b², Θ = ρ_w σ_w² E[x y] + ρ_b σ_b² + σ_w² Θ_xy,
    u = φ(a), v = ψ(b): E[u v] = E[φ(a) ψ(b)], Θ = E[φ'(a) ψ'(b)] Θ_ab.
"""

from __future__ import annotations

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np

from largen.expectations.two_functions import cross_moments
from largen.kernels.rules.crosses import Cross, Layout, Values
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
from largen.kernels.state import AffineConstants, KernelState, aligned, equal_positions
from largen.programs import (
    BRANCH,
    Affine,
    Flatten,
    Gain,
    Mask,
    Normalise,
    Operation,
    Pool,
    Scale,
    Sum,
    Window,
    slides,
)


def cross(way: Way, pair: Pair, values: Values, pairs: bool) -> Cross | None:
    """Return the second moments of a pair of values, with all pairs of positions if requested."""
    u, v = (values.states[each] for each in pair)
    layout = Layout(len(u.space), len(v.space), pairs)
    match way:
        case OfMeans():
            found = _of_means(u, v, layout)
        case Expanded():
            found = _expanded(way, pair, values, layout)
        case SameWeight():
            found = _same_weight(way, pair, values, layout)
        case Matched():
            found = _matched(way, pair, values, pairs)
        case Factors(parts):
            found = _of_factors(parts, values, layout)
    if found is None or not isinstance(u.gap, np.ndarray):
        return found
    return Cross(*(None if array is None else np.asarray(array) for array in found))


def _of_means(u: KernelState, v: KernelState, layout: Layout) -> Cross:
    ones = layout.of_u(u.first.mean, u.second.mean)
    twos = layout.of_v(v.first.mean, v.second.mean)
    k, back, one, two = (a * b for a, b in zip(ones, twos, strict=True))
    return Cross(k, back, one, two, *((None,) * 2 if u.ntk is None else (0 * k, 0 * back)))


def _expanded(way: Expanded, pair: Pair, values: Values, layout: Layout) -> Cross | None:
    """Return the moments of a linear operation and another value."""
    place, other = way
    operation, constants = values.program.operations[place], values.constants[place]
    left = place == pair[0]
    pairs = layout.pairs or isinstance(operation, Pool)
    found: Cross | None = None
    for read, factor in zip(operation.reads, _factors_of(operation, constants), strict=True):
        its = values.pair(*((read, other) if left else (other, read)), pairs)
        if its is not None:
            found = its.weighted(factor, found)
    if found is None or isinstance(operation, Sum | Mask | Gain):
        return found
    state = values.states[operation.reads[0]]
    if isinstance(operation, Normalise):
        if off_centre(values.program, place, other):
            found = _less_means(found, operation, values, way, left, layout)
        return found.map(operator.mul, layout.of(left, *scales_of(state, operation)))
    if isinstance(operation, Scale):
        factors = (
            jnp.broadcast_to(operation.along, state.first.q.shape),
            jnp.broadcast_to(operation.along, state.second.q.shape),
        )
        return found.map(operator.mul, layout.of(left, *factors))
    assert isinstance(operation, Pool)
    average, inside = averages(operation, state.space)
    first = 0 if left else len(values.states[other].space)
    found = found.map(lambda array: average(array, first))
    apart = layout._replace(pairs=True)
    found = found.map(operator.mul, apart.of(left, *_of_window(operation, state, average, inside)))
    if layout.pairs or not layout.u:
        return found
    return found.map(lambda array: aligned(array, layout.u))


def _factors_of(operation: Operation, constants: Any) -> tuple[Any, ...]:
    if isinstance(operation, Gain):
        return (operation.initial,)
    if isinstance(operation, Sum):
        return tuple(constants if factor == BRANCH else factor for factor in operation.factors)
    return (1.0,) * len(operation.reads)


def _less_means(
    found: Cross, operation: Normalise, values: Values, way: Expanded, left: bool, layout: Layout
) -> Cross:
    """Return E[(x − M) v] = E[x v] − M E[v], with the mean M that a normalisation subtracts."""
    state, other = values.states[operation.reads[0]], values.states[way.other]
    centres = (mean_over(side.mean, side, operation) for side in (state.first, state.second))
    fields = layout.of(left, *centres), layout.of(not left, other.first.mean, other.second.mean)
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


def _matched(way: Matched, pair: Pair, values: Values, pairs: bool) -> Cross | None:
    """Return the mean over the parts of concatenations, or over flattened positions."""
    flat, found = isinstance(values.program.operations[pair[0]], Flatten), None
    for (one, two), share in zip(way.parts, way.shares, strict=True):
        its = values.pair(one, two, pairs and not flat)
        if its is not None and flat:
            axes = tuple(range(len(values.states[one].space)))
            its = its.map(lambda array, axes=axes: jnp.mean(array, axis=axes))
        found = found if its is None else its.weighted(share, found)
    return found


def _same_weight(way: SameWeight, pair: Pair, values: Values, layout: Layout) -> Cross:
    """Return the moments of Wx and Wy."""
    operation = values.program.operations[pair[0]]
    assert isinstance(operation, Affine)
    constants: AffineConstants = values.constants[pair[0]]
    pairs = layout.pairs and operation.tied
    x, space = values.pair(way.one, way.two, pairs), values.states[way.one].space
    u, v = (values.states[each] for each in pair)
    if x is None:
        zeros = (jnp.zeros_like(side.q) for side in (u.first, u.second, v.first, v.second))
        one, two, three, four = zeros
        fields = zip(layout.of_u(one, two), layout.of_v(three, four), strict=True)
        sums = [a + b for a, b in fields]
        x = Cross(*sums, *((None, None) if u.ntk is None else sums[:2]))
    elif (window := operation.window) is not None:
        x = x.map(lambda array: _over_window(array, window, space, pairs))
    found = _behind_weight(x, constants, 1 if operation.window is None else operation.window.size)
    if layout.pairs and not operation.tied:
        found = found.map(lambda array: _spread(array, u.space))
    return _masked(found, u, v, layout)


def _behind_weight(x: Cross, constants: AffineConstants, summed: int) -> Cross:
    """Return the moments behind a weight, from those summed over ``summed`` positions."""
    weight, bias, weight_rate, bias_rate = constants
    share = weight / summed
    found = [share * array + bias for array in x[:4]]
    if x.t is None:
        return Cross(*found)
    tangents = (
        share * (weight_rate * k + t) + bias_rate * bias for k, t in zip(x[:2], x[4:], strict=True)
    )
    return Cross(*found, *tangents)


def _over_window(array: Any, window: Window, space: tuple[int, ...], pairs: bool) -> Any:
    """Return the sum over a window, with the same offset at both positions."""
    for axis, slide in enumerate(slides(window, space)):
        axes = (axis, axis + len(space)) if pairs else (axis,)
        for each in axes:
            array = slide.extended(array, each)
        array = slide.summed(array, *axes)
    return array


def _spread(array: Any, space: tuple[int, ...]) -> Any:
    """Return an aligned array as one of all pairs of positions, 0 at different ones."""
    spread = array.reshape(*space, *(1,) * len(space), *array.shape[len(space) :])
    return jnp.where(equal_positions(space, array.ndim - len(space)), spread, 0)


def _masked(found: Cross, u: KernelState, v: KernelState, layout: Layout) -> Cross:
    """Return moments that are 0 at masked positions."""
    for state, place in ((u, layout.of_u), (v, layout.of_v)):
        shown = state.first.present, state.second.present
        if shown[0] is not None and shown[1] is not None:
            found = found.map(operator.mul, place(*shown))
    return found


def _of_factors(
    parts: tuple[tuple[Factor | None, Factor | None], ...], values: Values, layout: Layout
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
    one: Factor | None, two: Factor | None, values: Values, layout: Layout
) -> Cross | None:
    """Return the mean of a factor that only one of the values has."""
    alone = one or two
    assert alone is not None
    state = values.states[alone.value]
    fields = state.first.mean, state.second.mean
    means = layout.of_u(*fields) if one is not None else layout.of_v(*fields)
    none = (None, None) if state.ntk is None else (0 * means[0], 0 * means[1])
    return Cross(*means, *none)


def _of_functions(one: Factor, two: Factor, values: Values, layout: Layout) -> Cross | None:
    """Return the moments of φ(a) and ψ(b)."""
    x = values.pair(one.base, two.base, layout.pairs)
    if x is None:
        return None
    if one.phi == two.phi and one.phi.slope == 1:
        return x
    a, b = values.states[one.base], values.states[two.base]
    q1, q2 = layout.of_u(a.first.q, a.second.q), layout.of_v(b.first.q, b.second.q)
    fields = list(zip(q1, q2, x[:4], strict=True))
    k, back, slopes = _facing(one, two, *fields[:2])
    sides = (jnp.concatenate(field, axis=-1) for field in zip(*fields[2:], strict=True))
    own = cross_moments(one.phi, two.phi, *sides).value
    length = x.one.shape[-1]
    moments = k, back, own[..., :length], own[..., length:]
    tangents = () if x.t is None else (s * t for s, t in zip(slopes, x[4:], strict=True))
    return _masked(Cross(*moments, *tangents), a, b, layout)


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
