"""Kernels behind dot-product attention with logits of order one.

In the limit of infinitely many features the logits are deterministic. With the covariance K(p, r)
of two positions of one sample and the scale s of the logits (Hron, Bahri, Sohl-Dickstein and Novak
2020, *Infinite attention*, 1/d scaling), samples 1 and 2 have

    A = softmax(s K),   K₁₂ ← A₁ K₁₂ A₂ᵀ,   Θ₁₂ ← A₁ Θ₁₂ A₂ᵀ.

Each row of A sums to one, so that gaps transform as under an average over positions. The derivative
of the logits contributes to Θ at order 1/width, and vanishes in the limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.kernels.rules import heads
from largen.kernels.rules.averages import coincident, from_averages, product
from largen.kernels.rules.dispatch import States, rule, simplify, wanted
from largen.kernels.rules.scaling import apply_masks
from largen.kernels.state import KernelState, Side, Wanted, opposite
from largen.programs import Attend


@rule.register
def _(operation: Attend, constants: Any, states: States, behind: Wanted) -> KernelState:
    queries, _, values = states
    if not operation.concentrated:
        return heads.attended(operation, constants, states, behind)
    if operation.reads[0] == operation.reads[1]:
        weights = [_weights(side, operation) for side in (queries.first, queries.second)]
    else:
        # Queries and keys have independent weights: logits q·k/d vanish, and so do their
        # derivatives.
        sides = (values.first, values.second)
        weights = [_uniform(side, operation.causal) for side in sides]
    return _attended(values, *weights)


@wanted.register
def _(operation: Attend, behind: Wanted) -> Wanted:
    return Wanted(True, behind.means)


@simplify.register
def _(operation: Attend) -> Attend:
    # Attention weights of each head sum to one: as to the size of variances, a few heads are as
    # good as many.
    return replace(operation, draws=min(operation.draws, 2))


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


def _weights(side: Any, operation: Attend) -> Any:
    """Return A of each sample, (position, position, n), which is 0 for masked keys."""
    one, two = opposite(side.q)
    n = side.q.shape[-1]
    covariance = (one + two) / 2 - side.within
    logits = (operation.scale * covariance).reshape(side.q.size // n, -1, n)
    seen = np.tri(len(logits), dtype=bool)[..., None] | (not operation.causal)
    if side.present is None:
        return jax.nn.softmax(logits, axis=1, where=seen)
    there = seen & (side.present.reshape(1, -1, n) > 0)
    return jax.nn.softmax(logits, axis=1, where=there | (seen & ~there.any(1, keepdims=True)))


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
