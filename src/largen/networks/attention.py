"""The rules of finite networks for attention, with and without weights of its own."""

from __future__ import annotations

from math import gcd, isqrt, prod

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import MultiHeadAttention, Parallel, QKVAttention, SelfAttention
from largen.errors import InvalidInput
from largen.networks.layers import branches_of, each, together
from largen.networks.modules import Features, Frame, Module, Path, build, weightless
from largen.networks.windows import EXACT


@build.register(SelfAttention)
def self_attention(layer: SelfAttention, frame: Frame, path: Path, features: Features) -> Module:
    """Return y_p = Σ_r softmax_r(s x_p·x_r/C) x_r over all positions."""

    def attended(x):
        tokens = x.reshape(len(x), -1, x.shape[-1])
        scale = layer.logit_scale / x.shape[-1]
        logits = scale * jnp.einsum("npc,nrc->npr", tokens, tokens, precision=EXACT)
        weights = jax.nn.softmax(logits, axis=-1)
        return jnp.einsum("npr,nrc->npc", weights, tokens, precision=EXACT).reshape(x.shape)

    return weightless(attended, features)


@build.register(MultiHeadAttention)
def multi_head_attention(
    layer: MultiHeadAttention, frame: Frame, path: Path, features: Features
) -> Module:
    """Return y_p = Σ_r a_pr v_r in each head with a = softmax(q·k/√d), or without softmax.

    The parameters are a tuple: those of the queries, of the keys and of the values.
    """
    parts, (queries, _, values) = _queries_keys_values(layer, frame, path, features)
    heads = number_of_heads(queries[-1], values[-1])

    def attended(found):
        q, k, v = (x.reshape(len(x), prod(queries[:-1]), heads, -1) for x in found)
        logits = jnp.einsum("nphd,nrhd->nhpr", q, k, precision=EXACT) / q.shape[-1] ** 0.5
        weights = jax.nn.softmax(logits, axis=-1) if layer.mechanism == "softmax" else logits
        mixed = jnp.einsum("nhpr,nrhd->nphd", weights, v, precision=EXACT)
        return mixed.reshape(-1, *values)

    return together(parts, values, each(parts, attended))


@build.register(QKVAttention)
def qkv_attention(layer: QKVAttention, frame: Frame, path: Path, features: Features) -> Module:
    """Return y_p = Σ_r a_pr v_r in each head with a = softmax(c q·k/d), of visible positions.

    The parameters are a tuple: those of the queries, of the keys and of the values.
    """
    parts, (queries, _, values) = _queries_keys_values(layer, frame, path, features)
    heads, positions = layer.heads, prod(queries[:-1])
    if queries[-1] % heads or values[-1] % heads:
        raise InvalidInput(
            f"net: {layer!r} splits features among {heads} heads; it has {queries[-1]} features of "
            f"queries and {values[-1]} of values, which are not both multiples of that."
        )
    visible = np.tri(positions, dtype=bool) if layer.causal else np.ones((positions,) * 2, bool)

    def attended(found):
        q, k, v = (x.reshape(len(x), positions, heads, -1) for x in found)
        scale = layer.logit_scale / q.shape[-1]
        logits = scale * jnp.einsum("nphd,nrhd->nhpr", q, k, precision=EXACT)
        weights = jax.nn.softmax(logits, axis=-1, where=visible)
        mixed = jnp.einsum("nhpr,nrhd->nphd", weights, v, precision=EXACT)
        return mixed.reshape(-1, *values)

    return together(parts, values, each(parts, attended))


def _queries_keys_values(
    layer: Parallel, frame: Frame, path: Path, features: Features
) -> tuple[list[Module], list[Features]]:
    """Return the modules of queries, keys and values, and the shapes of their outputs."""
    parts = branches_of(layer, frame, path, features)
    queries, keys, values = (part.features for part in parts)
    if queries != keys or queries[:-1] != values[:-1]:
        raise InvalidInput(
            f"net: queries, keys and values of {layer!r} have the shapes {queries}, {keys} and "
            f"{values}; wanted equal positions, and as many queries as keys."
        )
    return parts, [queries, keys, values]


def number_of_heads(keys: int, values: int) -> int:
    """Return the largest number up to √keys that divides both numbers of features.

    Examples
    --------
    >>> number_of_heads(64, 64), number_of_heads(100, 200), number_of_heads(7, 7)
    (8, 10, 1)
    """
    both = gcd(keys, values)
    return max(h for h in range(1, isqrt(keys) + 1) if both % h == 0)
