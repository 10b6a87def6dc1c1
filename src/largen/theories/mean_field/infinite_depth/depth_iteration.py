"""Integrals over depth at its nodes, iterated until they converge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def extrapolate(last_two: Float[Array, "2 node k n"]) -> Float[Array, "node k n"]:
    """Return the linear extrapolation to the next step."""
    return 2 * last_two[0] - last_two[1]


def integrate_over_depth(
    # slope(m, x, carried) returns x' at node m, and the updated carried.
    slope: Callable[[Any, Any, Any], tuple[Any, Any]],
    # Integrals from the start to each node, and to the far end.
    rule: tuple[Float[Array, "node node"], Float[Array, " node"]],
    # start, guess: x at the start, and the initial guess of x − start at the nodes.
    start: Float[Array, "k n"],
    guess: Float[Array, "node k n"],
    # A tree of arrays that is passed from each call of slope to the next; () for none.
    carried: Any,
    # close, iterations: the change relative to x at which the iteration ends, and the most
    # iterations.
    close: Float[Array, ""],
    iterations: int,
) -> tuple[Float[Array, "node k n"], Float[Array, "k n"], Any]:
    """Return x at the nodes and at the far end, with x' = slope(x), and the final ``carried``."""
    to_nodes, to_end = rule
    used = jnp.count_nonzero(to_end)  # nodes behind these are room for finer grids

    def iterate(carry):
        i, moved, _, _, carried = carry

        def at(m, carry):
            slopes, carried = carry
            one, carried = slope(m, start + moved[m], carried)
            return slopes.at[m].set(one), carried

        begin = jnp.zeros_like(moved), carried
        slopes, carried = lax.fori_loop(0, used, at, begin)
        new = jnp.einsum("mj,jkn->mkn", to_nodes, slopes)
        gap = jnp.sqrt(jnp.mean((new - moved) ** 2, 2).max())
        size = jnp.sqrt(jnp.mean((start + new) ** 2, 2).max())
        return i + 1, new, slopes, gap > close * size, carried

    carry = (jnp.zeros((), jnp.int32), guess, guess, jnp.asarray(True), carried)
    *_, moved, slopes, _, carried = lax.while_loop(
        lambda c: c[3] & (c[0] < iterations), iterate, carry
    )
    return start + moved, start + jnp.einsum("j,jkn->kn", to_end, slopes), carried
