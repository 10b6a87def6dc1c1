"""The rules of finite networks for attention, with and without weights of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd, isqrt, prod
from typing import Any

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
    """Return y_s = Σ_t a_st v_t in each head with a = softmax(c q·k/√d), or without softmax.

    The parameters are a tuple: those of the queries, of the keys and of the values.
    """
    parts, (queries, _, values) = _queries_keys_values(layer, frame, path, features)
    if layer.key_size is None:
        heads = number_of_heads(queries[-1], values[-1])
    else:
        heads = queries[-1] // layer.key_size
        _check_split(layer, queries[-1] % layer.key_size == 0, heads, queries, values)

    softmax = _softmax(layer.causal, queries)
    weights_of = softmax if layer.mechanism == "softmax" else jnp.asarray
    scale = layer.logit_scale / (queries[-1] // heads) ** 0.5
    return together(parts, values, each(parts, _heads(heads, scale, weights_of, queries, values)))


@build.register(QKVAttention)
def qkv_attention(layer: QKVAttention, frame: Frame, path: Path, features: Features) -> Module:
    """Return y_s = Σ_t a_st v_t in each head with a = softmax(c q·k/d), of visible positions.

    The parameters are a tuple: those of the queries, of the keys and of the values.
    """
    parts, (queries, _, values) = _queries_keys_values(layer, frame, path, features)
    heads = layer.heads
    _check_split(layer, queries[-1] % heads == 0, heads, queries, values)

    weights_of = _softmax(layer.causal, queries)
    scale = layer.logit_scale / (queries[-1] // heads)
    return together(parts, values, each(parts, _heads(heads, scale, weights_of, queries, values)))


def _heads(
    heads: int, scale: float, weights_of: Callable[[Any], Any], keys: Features, values: Features
) -> Callable[[Any], Any]:
    """Return the function of queries, keys and values that sums values in each head."""

    def attended(found):
        q, k, v = (x.reshape(len(x), prod(keys[:-1]), heads, -1) for x in found)
        weights = weights_of(scale * jnp.einsum("nphd,nrhd->nhpr", q, k, precision=EXACT))
        mixed = jnp.einsum("nhpr,nrhd->nphd", weights, v, precision=EXACT)
        return mixed.reshape(-1, *values)

    return attended


def _softmax(causal: bool, keys: Features) -> Callable[[Any], Any]:
    """Return the softmax over the positions that each one attends to."""
    positions = prod(keys[:-1])
    visible = np.tri(positions, dtype=bool) if causal else np.ones((positions,) * 2, bool)
    return partial(jax.nn.softmax, axis=-1, where=visible)


def _check_split(
    layer: Parallel, keys_fit: bool, heads: int, keys: Features, values: Features
) -> None:
    """Check that features can be split among heads."""
    if not keys_fit or values[-1] % heads:
        raise InvalidInput(
            f"net: {layer!r} splits features among heads; at this width it has {keys[-1]} features "
            f"of queries and {values[-1]} of values, which cannot be split equally."
        )


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
