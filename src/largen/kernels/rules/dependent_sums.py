"""Kernels of sums of values that depend on the same weights.

With second moments E[x_i x_j] of any two terms, and a prime for the second sample,

    q = Σ_ij E[x_i x_j],   gap = Σ_i gap_i + Σ_{i<j} E[(x_i − x_i')(x_j − x_j')],   Θ = Σ_ij Θ_ij.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import jax.numpy as jnp
from jax import lax

from largen.kernels.rules.crosses import Cross, Values
from largen.kernels.rules.dispatch import States
from largen.kernels.rules.scaling import rescale
from largen.kernels.state import KernelState, Side, Wanted, aligned, opposite
from largen.programs import BRANCH, Sum


def dependent_sum(values: Values, place: int, states: States, behind: Wanted) -> KernelState:
    """Return the state of a sum, from those of its terms and the moments of pairs of them."""
    operation = values.program.operations[place]
    assert isinstance(operation, Sum)
    factors = [
        values.constants[place] if factor == BRANCH else factor for factor in operation.factors
    ]
    terms = [rescale(state, c, c) for state, c in zip(states, factors, strict=True)]
    found = []
    for i, j in combinations(range(len(terms)), 2):
        its = values.pair(operation.reads[i], operation.reads[j], behind.pairs)
        if its is not None:
            found.append(its.weighted(factors[i] * factors[j]))
        elif terms[i].first.mean is not None and terms[j].first.mean is not None:
            found.append(_of_means(terms[i], terms[j]))
    return _sum(terms, found)


def _of_means(one: KernelState, two: KernelState) -> Cross:
    """Return the second moments of independent terms, which are products of means."""
    a, a2 = one.facing(one.first.mean, one.second.mean)
    b, b2 = one.facing(two.first.mean, two.second.mean)

    def own(x: Side, y: Side) -> Any:
        if x.within is None:
            return x.mean * y.mean  # pyright: ignore
        return opposite(x.mean)[0] * opposite(y.mean)[1]

    k = a * b2
    back = a2 * b  # at the positions of the second sample and of the first
    if one.pairs:
        back = _transposed(back, len(one.space))
    none = None if one.ntk is None else 0 * k
    return Cross(k, back, own(one.first, two.first), own(one.second, two.second), none, none)


def _transposed(array: Any, axes: int) -> Any:
    """Return an array over all pairs of positions with the two positions exchanged."""
    return jnp.moveaxis(array, range(axes), range(axes, 2 * axes))


def _sum(terms: list[KernelState], found: list[Cross]) -> KernelState:
    first = terms[0]
    axes, pairs = len(first.space), first.pairs

    def exchanged(array: Any) -> Any:
        return _transposed(array, axes) if pairs else array

    def here(array: Any) -> Any:
        return aligned(array, axes) if pairs else array

    def of_side(sides: list[Side], moments: list[Any]) -> tuple[Side, Any]:
        own = sum(map(here, moments), 0 * sides[0].q)
        mean = None
        if all(side.mean is not None for side in sides):
            mean = sum(side.mean for side in sides)  # pyright: ignore
        within = None
        if pairs:
            apart = own_apart(own) - sum(each + exchanged(each) for each in moments)
            within = _bounded([side.within for side in sides], apart)
        return Side(sum(s.q for s in sides) + 2 * own, mean, within, sides[0].present), own

    def own_apart(own: Any) -> Any:
        one, two = opposite(own)
        return one + two

    one, own1 = of_side([term.first for term in terms], [each.one for each in found])
    two, own2 = of_side([term.second for term in terms], [each.two for each in found])
    own1, own2 = first.facing(own1, own2)
    apart = own1 + own2 - sum(each.k + exchanged(each.back) for each in found)
    ntk = None
    if first.ntk is not None:
        ntk = sum(term.ntk for term in terms)  # pyright: ignore
        ntk = ntk + sum(each.t + exchanged(each.back_t) for each in found)
    gap = _bounded([term.gap for term in terms], apart)
    return KernelState(one, two, gap, ntk, first.same, first.displacement)


def _bounded(gaps: list[Any], apart: Any) -> Any:
    """Return Σ gap_i plus the moments of pairs, within the bounds 0 and (Σ √gap_i)².

    The moments are differences of covariances, which have lost digits where samples nearly
    coincide. The upper bound, the triangle inequality, is exactly 0 where they do.
    """
    gap = sum(gaps) + apart
    most = sum(jnp.sqrt(each) for each in map(lax.stop_gradient, gaps)) ** 2
    return gap - lax.stop_gradient(gap - jnp.clip(gap, 0, most))
