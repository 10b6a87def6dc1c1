"""Residual networks of two-layer blocks, with separate widths of the stream and of the blocks.

    h⁰ = Ux/√d,   h^(l+1) = h^l + (√D/(LM)) V φ(W h^l/√D),   f = w·h^L/D

with D neurons in the stream, M in a block, and standard Gaussian weights. At the residual scale
√D/(LM) blocks have complete feature learning (Chizat, *The hidden width of deep ResNets*). Rates
are η₀D for U and w, η₀LM for V and W. For M = D this is CompleteP with two matrices a block.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Ends(NamedTuple):
    """The read-in (D, d) and the read-out (D,)."""

    U: Any
    w: Any


class Blocks(NamedTuple):
    """The matrices W (L, M, D) into the blocks and V (L, D, M) out of them."""

    W: Any
    V: Any


def stream(ends: Ends, blocks: Blocks, x: Any) -> Any:
    """Return h^L, (sample, neuron)."""
    depth, hidden, width = blocks.W.shape
    scale = width**0.5 / (depth * hidden)

    def block(h: Any, own: Blocks) -> tuple[Any, None]:
        return h + scale * jnp.tanh(h @ own.W.T / width**0.5) @ own.V.T, None

    return jax.lax.scan(block, x @ ends.U.T / x.shape[1] ** 0.5, blocks)[0]


@partial(jax.jit, static_argnames=("steps",))
def trained(ends: Ends, blocks: Blocks, x: Any, y: Any, lr: float, steps: int) -> tuple[Any, Any]:
    """Return h^L (sample, neuron) and f (sample,) after some steps of gradient descent."""
    width = len(ends.w)
    depth, hidden, _ = blocks.W.shape
    rates = Ends(lr * width, lr * width), Blocks(lr * depth * hidden, lr * depth * hidden)

    def outputs(weights: tuple[Ends, Blocks]) -> Any:
        ends, blocks = weights
        return stream(ends, blocks, x) @ ends.w / width

    def step(_: int, weights: tuple[Ends, Blocks]) -> tuple[Ends, Blocks]:
        slope = jax.grad(lambda now: ((outputs(now) - y) ** 2).mean() / 2)(weights)
        return jax.tree.map(lambda w, rate, s: w - rate * s, weights, rates, slope)

    ends, blocks = jax.lax.fori_loop(0, steps, step, (ends, blocks))
    return stream(ends, blocks, x), outputs((ends, blocks))


def drawn_ends(seed: int, width: int, x: np.ndarray, pinned: int) -> Ends:
    """Return a read-in and a read-out, whose first neurons are equal for all seeds and widths."""
    first, own = np.random.default_rng(0), np.random.default_rng([1, seed, width])
    rows = [rng.standard_normal((n, x.shape[1] + 1)) for rng, n in
            ((first, pinned), (own, width - pinned))]  # fmt: skip
    both = np.concatenate(rows).astype(np.float32)
    return Ends(both[:, :-1], both[:, -1])


def drawn_blocks(seed: int, width: int, hidden: int, depth: int) -> Blocks:
    """Return the matrices of all blocks."""
    rng = np.random.default_rng([2, seed, width, hidden, depth])
    shapes = ((depth, hidden, width), (depth, width, hidden))
    return Blocks(*(rng.standard_normal(shape, dtype=np.float32) for shape in shapes))


def regrouped(blocks: Blocks, depth: int) -> Blocks:
    """Return a network of another depth with the same neurons in the same order.

    L blocks of M neurons become L' blocks of LM/L' neurons; the neurons of one block all read the
    stream at the same layer.
    """
    width = blocks.W.shape[-1]
    into = blocks.W.reshape(depth, -1, width)
    out = np.swapaxes(blocks.V, 1, 2).reshape(depth, -1, width)
    return Blocks(into, np.swapaxes(out, 1, 2))
