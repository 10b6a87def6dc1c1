"""Kernels behind dot-product attention with logits of order one.

In the limit of infinitely many features the logits are deterministic. With the covariance K(p, r)
of two positions of one sample and the scale s of the logits (Hron, Bahri, Sohl-Dickstein and Novak
2020, *Infinite attention*, 1/d scaling), samples 1 and 2 have

    A = softmax(s K),   K₁₂ ← A₁ K₁₂ A₂ᵀ,   Θ₁₂ ← A₁ Θ₁₂ A₂ᵀ.

Each row of A sums to one, so that gaps transform as under an average over positions. The derivative
of the logits contributes to Θ at order 1/width, and vanishes in the limit.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import QKVAttention, SelfAttention
from largen.kernels.rules.averages import coincident, from_averages, product
from largen.kernels.rules.dispatch import (
    Freshness,
    Nature,
    freshness,
    nature_behind,
    rule,
    wanted,
)
from largen.kernels.rules.scaling import apply_masks
from largen.kernels.rules.structure import advance_parts
from largen.kernels.state import KernelState, Shared, Side, Wanted, opposite


@rule.register
def _(
    layer: SelfAttention, constants: tuple[()], state: KernelState, behind: Wanted
) -> KernelState:
    first, second = (_weights(side, layer.logit_scale) for side in (state.first, state.second))
    return _attended(state, first, second)


@rule.register
def _(layer: QKVAttention, constants: Shared, state: KernelState, behind: Wanted) -> KernelState:
    # Queries and keys have independent weights: logits q·k/d vanish, and so do their derivatives.
    *_, values = advance_parts(layer, constants, state, Wanted(True, behind.means))
    first, second = (_uniform(side, layer.causal) for side in (values.first, values.second))
    return _attended(values, first, second)


def _attended(state: KernelState, first: Any, second: Any) -> KernelState:
    """Return the state of sums over positions with the weights A of each sample."""

    def of_pairs(array: Any) -> Any:
        flat = array.reshape(*first.shape[:1], *second.shape[:1], *array.shape[-2:])
        one = product("apn,pqnm->aqnm", first, flat)
        return product("bqm,aqnm->abnm", second, one).reshape(array.shape)

    def of_side(side: Any, A: Any) -> Side:
        def over(field: Any) -> Any:
            return product("apn,pn->an", A, field.reshape(len(A), -1)).reshape(field.shape)

        within = side.within.reshape(*A.shape[:2], -1)
        within = product("bqn,aqn->abn", A, product("apn,pqn->aqn", A, within))
        mean = None if side.mean is None else over(side.mean)
        return Side(over(side.q), mean, within.reshape(side.within.shape), side.present)

    attended = KernelState(
        of_side(state.first, first),
        of_side(state.second, second),
        of_pairs(state.gap),
        None if state.ntk is None else of_pairs(state.ntk),
        state.same,
    )
    return apply_masks(from_averages(attended, coincident(state)))


def _weights(side: Any, scale: float) -> Any:
    """Return A of each sample, (position, position, n), which is 0 for masked keys."""
    one, two = opposite(side.q)
    n = side.q.shape[-1]
    logits = (scale * ((one + two) / 2 - side.within)).reshape(side.q.size // n, -1, n)
    if side.present is None:
        return jax.nn.softmax(logits, axis=1)
    there = side.present.reshape(1, -1, n) > 0
    return jax.nn.softmax(logits, axis=1, where=there | ~jnp.any(there, axis=1, keepdims=True))


def _uniform(side: Side, causal: bool) -> Any:
    """Return weights A that are equal for all visible positions, (position, position, n)."""
    n = side.q.shape[-1]
    positions = side.q.size // n
    seen = np.tri(positions) if causal else np.ones((positions, positions))
    weights = jnp.broadcast_to(jnp.asarray(seen[..., None], side.q.dtype), (*seen.shape, n))
    if side.present is not None:
        weights = weights * side.present.reshape(1, -1, n)
    total = jnp.sum(weights, axis=1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


@wanted.register
def _(layer: SelfAttention, behind: Wanted) -> Wanted:
    return Wanted(True, behind.means)


@nature_behind.register
def _(layer: SelfAttention, nature: Nature) -> Nature:
    return nature


@wanted.register
def _(layer: QKVAttention, behind: Wanted) -> Wanted:
    return reduce(Wanted.__or__, (wanted(part, Wanted(True, behind.means)) for part in layer.parts))


@nature_behind.register
def _(layer: QKVAttention, nature: Nature) -> Nature:
    return nature_behind(layer.parts[2], nature)


@freshness.register
def _(layer: QKVAttention) -> Freshness:
    return freshness(layer.parts[2])
