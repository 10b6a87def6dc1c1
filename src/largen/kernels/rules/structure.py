"""Kernels behind layers that are composed of layers, in sequence or in parallel."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.architectures import (
    Affine,
    Concatenate,
    Layer,
    Parallel,
    Product,
    Repeat,
    Residual,
    Sequence,
    Serial,
    Signal,
    copies_of,
)
from largen.errors import NoTheory
from largen.expectations.watching import add_requests, separate_watch
from largen.kernels.rules.dispatch import (
    Freshness,
    Nature,
    OnlyByNetworks,
    advance,
    freshness,
    nature_behind,
    own_constants,
    rule,
    wanted,
)
from largen.kernels.rules.scaling import not_below_zero
from largen.kernels.state import KernelState, Shared, Side, Wanted, opposite
from largen.parameterizations import CanonicalForm


def advance_parts(
    layer: Parallel, constants: Shared, state: KernelState, behind: Wanted
) -> tuple[KernelState, ...]:
    """Return the states behind the parts of a parallel layer, with the moments ``behind``."""
    each = zip(layer.parts, constants.parts, strict=True)
    return tuple(advance(part, its, state, behind) for part, its in each)


@rule.register
def _(layer: Serial, constants: tuple[Any, ...], state: KernelState, behind: Wanted) -> KernelState:
    for inner, its, then in zip(layer.layers, constants, _between(layer, behind), strict=True):
        state = advance(inner, its, state, then)
    return state


@rule.register
def _(layer: Repeat, constants: Any, state: KernelState, behind: Wanted) -> KernelState:
    behind = wanted(layer, behind)  # each copy but the last is followed by another one

    if isinstance(state.gap, np.ndarray):  # nothing is compiled
        for n in range(copies_of(layer)):
            own = jax.tree.map(lambda c, n=n: c[n], constants)
            state = advance(layer.layer, own, state, behind)
        return state

    # The constants of a copy are selected one copy ahead and carried along. If they are selected
    # within the copy, XLA does so for every pair of samples, in loops that do not vectorise.
    def copy(
        carried: tuple[KernelState, Any], following: Any
    ) -> tuple[tuple[KernelState, Any], Any]:
        state, its_constants = carried
        with separate_watch() as inner:
            state = advance(layer.layer, its_constants, state, behind)
        return (state, following), inner.all

    first = jax.tree.map(lambda c: c[0], constants)
    following = jax.tree.map(lambda c: jnp.roll(c, -1, axis=0), constants)
    (state, _), requests = lax.scan(copy, (state, first), following, length=copies_of(layer))
    add_requests(requests)
    return state


@rule.register
def _(layer: Residual, constants: Shared, state: KernelState, behind: Wanted) -> KernelState:
    # Bahri and Hanin, eqs. (25)-(26). Branch and skip are independent given the kernels before
    # them: second moments add, with the products of means where both have a mean.
    required = _parts(layer, behind)
    branch, skip = advance_parts(layer, constants, state, required)
    return _independent_sum(skip, branch, constants.own)


def _independent_sum(one: KernelState, two: KernelState, factor: Any) -> KernelState:
    """Return the state of x + βy for independent x and y, with ``factor`` = β².

    With means m, q = q_x + β² q_y + 2β m_x m_y and
    gap = gap_x + β² gap_y + β (m_x − m_x')(m_y − m_y'), a prime for the second sample.
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
    first, second = of_side(one.first, two.first), of_side(one.second, two.second)
    return one._replace(first=first, second=second, gap=gap, ntk=ntk)


@rule.register
def _(layer: Concatenate, constants: Shared, state: KernelState, behind: Wanted) -> KernelState:
    # Second moments are means over all features: those of the branches, weighted by the branches'
    # shares of the features.
    shares, found = constants.own, advance_parts(layer, constants, state, behind)

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
    gap, ntk = over(lambda state: state.gap), over(lambda state: state.ntk)
    return found[0]._replace(first=first, second=second, gap=gap, ntk=ntk)


@rule.register
def _(layer: Product, constants: Shared, state: KernelState, behind: Wanted) -> KernelState:
    return reduce(independent_product, advance_parts(layer, constants, state, behind))


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


@wanted.register
def _(layer: Sequence, behind: Wanted) -> Wanted:
    if layer.times > 1:  # requirements only grow, and there are two of them
        behind = behind | _of_parts(layer, behind)
        return behind | _of_parts(layer, behind)
    return _of_parts(layer, behind)


def _of_parts(layer: Sequence, behind: Wanted) -> Wanted:
    """Return the moments required before the first part."""
    for part in reversed(layer.parts):
        behind = wanted(part, behind)
    return behind


def _between(layer: Serial, behind: Wanted) -> list[Wanted]:
    """Return the moments required behind each of the layers."""
    found = []
    for inner in reversed(layer.layers):
        found.append(behind)
        behind = wanted(inner, behind)
    return found[::-1]


@wanted.register
def _(layer: Residual, behind: Wanted) -> Wanted:
    return _wanted_of_parts(layer, _parts(layer, behind))


def _parts(layer: Residual, behind: Wanted) -> Wanted:
    """Return the moments required of skip and branch: means unless one of them is centred."""
    return behind | Wanted(means=not any(map(ends_in_affine_map, layer.parts)))


@wanted.register
def _(layer: Parallel, behind: Wanted) -> Wanted:
    return _wanted_of_parts(layer, behind)


def _wanted_of_parts(layer: Parallel, behind: Wanted) -> Wanted:
    return reduce(Wanted.__or__, (wanted(part, behind) for part in layer.parts))


@nature_behind.register
def _(layer: Sequence, nature: Nature) -> Nature:
    for _ in range(min(layer.times, 2)):  # further copies do not change the nature
        for part in layer.parts:
            nature = nature_behind(part, nature)
    return nature


@nature_behind.register
def _(layer: Residual, nature: Nature) -> Nature:
    branch, skip = (nature_behind(part, nature) for part in layer.parts)
    if "fresh" not in map(freshness, layer.parts):
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
    found = [nature_behind(part, nature) for part in layer.parts]
    kinds = {each.kind for each in found}
    kind = kinds.pop() if len(kinds) == 1 else f"{layer!r}"
    return Nature(kind, all(each.centred for each in found), alike=False)


@nature_behind.register
def _(layer: Product, nature: Nature) -> Nature:
    found = [nature_behind(part, nature) for part in layer.parts]
    if sum(freshness(part) != "fresh" for part in layer.parts) > 1:
        raise OnlyByNetworks(
            f"kernels: branches of {layer!r} are correlated, since no random weights separate "
            "them. Put a Dense() in all of them but one"
        )
    if sum(not each.alike for each in found) > 1:
        raise NoTheory(
            f"kernels: in {layer!r}, channels of several branches have distributions that differ "
            "from channel to channel; put a Dense() behind them."
        )
    centred = any(each.centred for each in found)
    return Nature(f"the product {layer!r}", centred, all(each.alike for each in found))


@freshness.register
def _(layer: Sequence) -> Freshness:
    found = [freshness(part) for part in layer.parts]
    return "fresh" if "fresh" in found else "mixed" if "mixed" in found else "own"


@freshness.register
def _(layer: Parallel) -> Freshness:
    found: list[Freshness] = [freshness(part) for part in layer.parts]
    return found[0] if len(set(found)) == 1 else "mixed"


def ends_in_affine_map(layer: Layer) -> bool:
    """Whether a layer ends in an affine map, whose random weights make its output centred."""
    if isinstance(layer, Sequence):
        return bool(layer.parts) and ends_in_affine_map(layer.parts[-1])
    return isinstance(layer, Affine)


@own_constants.register
def _(layer: Residual, path: Any, form: CanonicalForm, behind: Any) -> tuple[Residual, Any]:
    return layer, np.asarray(form.branch**2)


@own_constants.register
def _(layer: Concatenate, path: Any, form: Any, behind: tuple[Signal, ...]) -> Any:
    copies = np.array([signal.copies for signal in behind], float)
    return layer, tuple(np.asarray(share) for share in copies / copies.sum())
