"""Kernels behind multi-head attention without a softmax, whose weights are the logits.

The output y_p = (1/√d) Σ_u (q_p·k_u) v_u is the product of the queries with the sum over positions
of the products of keys and values. Queries, keys and values are independent, so that the kernels
are known exactly in the scaling 1/√d (Hron, Bahri, Sohl-Dickstein and Novak 2020, *Infinite
attention*):

    K(p, p') ← K_Q(p, p') Σ_uu' K_K(u, u') K_V(u, u'),

and Θ follows by the product rule.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from largen.kernels.rules.combinations import independent_product
from largen.kernels.rules.dispatch import advance
from largen.kernels.state import KernelState, Side, Wanted
from largen.programs import Pool


def linear_heads(
    queries: KernelState, keys: KernelState, values: KernelState, behind: Wanted
) -> KernelState:
    """Return the state behind such heads, from the states of queries, keys and values."""
    pairs = Wanted(True, behind.means)
    total = advance(Pool((0,), None, True), (), (independent_product(keys, values),), pairs)
    return independent_product(queries, _everywhere(total, queries))


def _everywhere(total: KernelState, like: KernelState) -> KernelState:
    """Return a state without spatial axes, repeated at all positions of another state."""
    space = like.space

    def side(own: Side, there: Side) -> Side:
        mean = None if own.mean is None else jnp.broadcast_to(own.mean, there.q.shape)
        within = jnp.zeros((*space, *space, there.q.shape[-1]), there.q.dtype)
        return Side(jnp.broadcast_to(own.q, there.q.shape), mean, within, there.present)

    def of_pairs(array: Any) -> Any:
        return None if array is None else jnp.broadcast_to(array, like.gap.shape)

    first, second = side(total.first, like.first), side(total.second, like.second)
    return KernelState(first, second, of_pairs(total.gap), of_pairs(total.ntk), total.same)
