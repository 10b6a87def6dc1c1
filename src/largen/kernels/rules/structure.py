"""Kernels behind layers that are made of layers."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largen.architectures import Concatenate, Layer, Product, Repeat, Residual, Serial
from largen.errors import NoTheory
from largen.kernels.rules.dispatch import (
    Freshness,
    Nature,
    OnlyByNetworks,
    advance,
    freshness,
    nature_behind,
    rule,
    wanted,
)
from largen.kernels.rules.scaling import not_below_zero
from largen.kernels.state import Side, State, Wanted, opposite


@rule.register
def _(layer: Serial, constants: tuple[Any, ...], state: State, behind: Wanted) -> State:
    for inner, its, then in zip(layer.layers, constants, _between(layer, behind), strict=True):
        state = advance(inner, its, state, then)
    return state


@rule.register
def _(layer: Repeat, constants: Any, state: State, behind: Wanted) -> State:
    behind = wanted(layer, behind)  # each copy but the last has another one behind it

    # The constants of a copy are taken out one copy ahead and carried. Where they are taken out
    # in the copy itself, XLA does it for every pair, in loops that then do not vectorise.
    def copy(carried: tuple[State, Any], following: Any) -> tuple[tuple[State, Any], None]:
        state, its_constants = carried
        return (advance(layer.layer, its_constants, state, behind), following), None

    first = jax.tree.map(lambda c: c[0], constants)
    following = jax.tree.map(lambda c: jnp.roll(c, -1, axis=0), constants)
    return lax.scan(copy, (state, first), following, length=layer.times)[0][0]


@rule.register
def _(layer: Residual, constants: Any, state: State, behind: Wanted) -> State:
    # Bahri & Hanin, eqs. (25)-(26), for a branch and a skip that are independent, given the
    # kernels before them: all second moments add, and products of means where both have one.
    factor, inner, of_shortcut = constants
    parts = _parts(layer, behind)
    branch = advance(layer.branch, inner, state, parts)
    skip = state.reduced(parts)
    if layer.shortcut is not None:
        skip = advance(layer.shortcut, of_shortcut, state, parts)
    return _independent_sum(skip, branch, factor)


def _independent_sum(one: State, two: State, factor: Any) -> State:
    """Return the state of x + β·y for independent x and y, with factor = β².

    E[(x + βy)²] = q_x + β²q_y + 2β m_x m_y, and the gap adds β (m_x − m_x')(m_y − m_y').
    """
    root = jnp.sqrt(factor)

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
    sides = (of_side(one.first, two.first), of_side(one.second, two.second))
    return State(*sides, gap, ntk, one.same)


@rule.register
def _(layer: Concatenate, constants: Any, state: State, behind: Wanted) -> State:
    # Second moments are means over all features, and so over branches by their shares.
    shares, inner = constants
    found = [
        advance(branch, its, state, behind)
        for branch, its in zip(layer.branches, inner, strict=True)
    ]

    def mean(*fields: Any) -> Any:
        return sum(share * field for share, field in zip(shares[1:], fields[1:], strict=True)) + (
            shares[0] * fields[0]
        )

    def over(pick: Any) -> Any:
        fields = [pick(state) for state in found]
        return None if fields[0] is None else mean(*fields)

    def of_side(which: str, there: Side) -> Side:
        q, mean, within = (
            over(lambda state, name=name: getattr(getattr(state, which), name))
            for name in ("q", "mean", "within")
        )
        return Side(q, mean, within, there.present)

    first, second = of_side("first", found[0].first), of_side("second", found[0].second)
    ntk = over(lambda state: state.ntk)
    return State(first, second, over(lambda state: state.gap), ntk, state.same)


@rule.register
def _(layer: Product, constants: Any, state: State, behind: Wanted) -> State:
    found = [
        advance(branch, its, state, behind)
        for branch, its in zip(layer.branches, constants, strict=True)
    ]
    return reduce(independent_product, found)


def independent_product(one: Any, two: Any) -> State:
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

    sides = (of_side(one.first, two.first), of_side(one.second, two.second))
    q_one = one.facing(one.first.q, one.second.q)
    q_two = one.facing(two.first.q, two.second.q)
    ntk = None
    if one.ntk is not None:
        ntk = one.ntk * two.covariance + one.covariance * two.ntk
    return State(*sides, gap(one.gap, two.gap, *q_one, *q_two), ntk, one.same)


@wanted.register
def _(layer: Serial, behind: Wanted) -> Wanted:
    return wanted(layer.layers[0], _between(layer, behind)[0])


def _between(layer: Serial, behind: Wanted) -> list[Wanted]:
    """Return what is wanted behind each of the layers."""
    found = [behind]
    for inner in reversed(layer.layers[1:]):
        found.append(wanted(inner, found[-1]))
    return found[::-1]


@wanted.register
def _(layer: Repeat, behind: Wanted) -> Wanted:
    behind = behind | wanted(layer.layer, behind)
    return behind | wanted(layer.layer, behind)  # wants only grow, and there are two of them


@wanted.register
def _(layer: Residual, behind: Wanted) -> Wanted:
    parts = _parts(layer, behind)
    skip = parts if layer.shortcut is None else wanted(layer.shortcut, parts)
    return skip | wanted(layer.branch, parts)


def _parts(layer: Residual, behind: Wanted) -> Wanted:
    """Return what is wanted of skip and branch: means, unless one of them surely has none."""
    ends = (layer.branch, layer.shortcut)
    return behind | Wanted(means=not any(end and ends_in_affine_map(end) for end in ends))


@wanted.register(Concatenate)
@wanted.register(Product)
def _(layer: Concatenate | Product, behind: Wanted) -> Wanted:
    return reduce(Wanted.__or__, (wanted(branch, behind) for branch in layer.branches))


@nature_behind.register
def _(layer: Serial, nature: Nature) -> Nature:
    for inner in layer.layers:
        nature = nature_behind(inner, nature)
    return nature


@nature_behind.register
def _(layer: Repeat, nature: Nature) -> Nature:
    once = nature_behind(layer.layer, nature)
    return nature_behind(layer.layer, once)


@nature_behind.register
def _(layer: Residual, nature: Nature) -> Nature:
    branch = nature_behind(layer.branch, nature)
    skip = nature if layer.shortcut is None else nature_behind(layer.shortcut, nature)
    own = "own" if layer.shortcut is None else freshness(layer.shortcut)
    if "fresh" not in (freshness(layer.branch), own):
        raise OnlyByNetworks(
            f"kernels: skip and branch of {layer!r} are correlated, since no random weights "
            "separate them, and their sum is not an elementwise function of one Gaussian. Put a "
            "Dense() in the branch"
        )
    if not (branch.centred or skip.centred or branch.alike or skip.alike):
        raise NoTheory(
            f"kernels: in {layer!r}, channels of both skip and branch have means that differ from "
            "channel to channel; put a Dense() behind one of them."
        )
    kind = "gaussian" if branch.kind == skip.kind == "gaussian" else f"the sum {layer!r}"
    return Nature(kind, branch.centred and skip.centred, branch.alike and skip.alike)


@nature_behind.register
def _(layer: Concatenate, nature: Nature) -> Nature:
    found = [nature_behind(branch, nature) for branch in layer.branches]
    kinds = {each.kind for each in found}
    kind = kinds.pop() if len(kinds) == 1 else f"{layer!r}"
    return Nature(kind, all(each.centred for each in found), alike=False)


@nature_behind.register
def _(layer: Product, nature: Nature) -> Nature:
    found = [nature_behind(branch, nature) for branch in layer.branches]
    if sum(freshness(branch) != "fresh" for branch in layer.branches) > 1:
        raise OnlyByNetworks(
            f"kernels: branches of {layer!r} are correlated, since no random weights separate "
            "them. Put a Dense() in all of them but one"
        )
    if sum(not each.alike for each in found) > 1:
        raise NoTheory(
            f"kernels: in {layer!r}, channels of more than one branch have laws that differ from "
            "channel to channel; put a Dense() behind them."
        )
    centred = any(each.centred for each in found)
    return Nature(f"the product {layer!r}", centred, all(each.alike for each in found))


@freshness.register
def _(layer: Serial) -> Freshness:
    found = [freshness(inner) for inner in layer.layers]
    return "fresh" if "fresh" in found else "mixed" if "mixed" in found else "own"


@freshness.register
def _(layer: Repeat) -> Freshness:
    return freshness(layer.layer)


@freshness.register
def _(layer: Residual) -> Freshness:
    own = "own" if layer.shortcut is None else freshness(layer.shortcut)
    return _together([freshness(layer.branch), own])


@freshness.register(Concatenate)
@freshness.register(Product)
def _(layer: Concatenate | Product) -> Freshness:
    return _together([freshness(branch) for branch in layer.branches])


def _together(found: list[Freshness]) -> Freshness:
    return found[0] if len(set(found)) == 1 else "mixed"


def ends_in_affine_map(layer: Layer) -> bool:
    """Whether the last thing that a layer does is a map with fresh random weights."""
    if isinstance(layer, Serial):
        return ends_in_affine_map(layer.layers[-1])
    if isinstance(layer, Repeat):
        return ends_in_affine_map(layer.layer)
    if isinstance(layer, Residual | Concatenate | Product):
        return False
    return freshness(layer) == "fresh"
