"""Kernels of sums, products and concatenations of values, and of a factor for each position."""

from __future__ import annotations

from functools import reduce
from typing import Any

from largen.kernels.rules.dispatch import States, rule
from largen.kernels.rules.scaling import not_below_zero, rescale
from largen.kernels.state import KernelState, Side, Wanted, opposite
from largen.programs import BRANCH, Concatenate, Product, Scale, Sum


@rule.register
def _(operation: Sum, constants: Any, states: States, behind: Wanted) -> KernelState:
    # Bahri and Hanin, eqs. (25)-(26). Terms are independent given the kernels before them: second
    # moments add, with the products of means where both have a mean.
    factors = [constants if factor == BRANCH else factor for factor in operation.factors]
    total = states[0] if operation.factors[0] == 1.0 else rescale(states[0], factors[0], factors[0])
    for state, factor in zip(states[1:], factors[1:], strict=True):
        total = _independent_sum(total, state, factor)
    return total


def _independent_sum(one: KernelState, two: KernelState, root: Any) -> KernelState:
    """Return the state of x + βy for independent x and y, with ``root`` = β.

    With means m, q = q_x + β² q_y + 2β m_x m_y and
    gap = gap_x + β² gap_y + β (m_x − m_x')(m_y − m_y'), a prime for the second sample.
    """
    factor = root**2

    def of_side(x: Side, y: Side) -> Side:
        q, mean, within = x.q + factor * y.q, None, None
        if x.within is not None:
            within = x.within + factor * y.within
        if x.mean is not None and y.mean is not None:
            q, mean = q + 2 * root * x.mean * y.mean, x.mean + root * y.mean
            if within is not None:
                (a, a2), (b, b2) = opposite(x.mean), opposite(y.mean)
                within = not_below_zero(within + root * (a - a2) * (b - b2))
        return Side(q, mean, within, x.present)

    gap = one.gap + factor * two.gap
    ntk = None if one.ntk is None else one.ntk + factor * two.ntk
    if one.first.mean is not None:
        a, a2 = one.facing(one.first.mean, one.second.mean)
        b, b2 = one.facing(two.first.mean, two.second.mean)
        gap = not_below_zero(gap + root * (a - a2) * (b - b2))
    first, second = of_side(one.first, two.first), of_side(one.second, two.second)
    return one._replace(first=first, second=second, gap=gap, ntk=ntk)


@rule.register
def _(operation: Scale, constants: Any, states: States, behind: Wanted) -> KernelState:
    factors = operation.along.astype(states[0].gap.dtype)
    return rescale(states[0], factors, factors)


@rule.register
def _(operation: Product, constants: Any, states: States, behind: Wanted) -> KernelState:
    return reduce(independent_product, states)


def independent_product(one: Any, two: Any) -> KernelState:
    """Return the state of x·y for independent x and y: K = K_x K_y, Θ = Θ_x K_y + K_x Θ_y.

    gap = gap_x K_y + gap_y (q_x + q_x')/2 + ¼ (q_x − q_x')(q_y − q_y').
    """

    def gap(gap_x, gap_y, x, x2, y, y2):
        covariance = (y + y2) / 2 - gap_y
        product = gap_x * covariance + gap_y * (x + x2) / 2 + (x - x2) * (y - y2) / 4
        return not_below_zero(product)

    def of_side(x: Any, y: Any) -> Side:
        within, mean = x.within, None
        if within is not None:
            within = gap(within, y.within, *opposite(x.q), *opposite(y.q))
        if x.mean is not None:
            mean = x.mean * y.mean
        return Side(x.q * y.q, mean, within, x.present)

    first, second = of_side(one.first, two.first), of_side(one.second, two.second)
    q_one = one.facing(one.first.q, one.second.q)
    q_two = one.facing(two.first.q, two.second.q)
    ntk = None
    if one.ntk is not None:
        ntk = one.ntk * two.covariance + one.covariance * two.ntk
    product = gap(one.gap, two.gap, *q_one, *q_two)
    return one._replace(first=first, second=second, gap=product, ntk=ntk)


@rule.register
def _(operation: Concatenate, constants: Any, states: States, behind: Wanted) -> KernelState:
    # Second moments are means over all features: those of the values, weighted by their shares of
    # the features.
    def over(*fields: Any) -> Any:
        if fields[0] is None:
            return None
        return sum(share * field for share, field in zip(operation.shares, fields, strict=True))

    def of_side(sides: list[Side]) -> Side:
        q, mean, within = (over(*(side[n] for side in sides)) for n in range(3))
        return Side(q, mean, within, sides[0].present)

    return states[0]._replace(
        first=of_side([state.first for state in states]),
        second=of_side([state.second for state in states]),
        gap=over(*(state.gap for state in states)),
        ntk=over(*(state.ntk for state in states)),
    )
