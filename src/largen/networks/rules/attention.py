"""Attention in finite networks."""

from __future__ import annotations

from math import gcd, isqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import InvalidInput
from largen.networks.rules.dispatch import Features, channels_behind, rule
from largen.networks.windows import EXACT
from largen.programs import Attend, Source


@rule.register
def _(operation: Attend, constants: Any, values: tuple[Any, ...]) -> Any:
    heads = heads_of(operation, values[0].shape[-1], values[2].shape[-1])
    q, k, v = (x.reshape(len(x), -1, heads, x.shape[-1] // heads) for x in values)
    scale = operation.scale / q.shape[-1] ** (1.0 if operation.concentrated else 0.5)
    weights = scale * jnp.einsum("nphd,nrhd->nhpr", q, k, precision=EXACT)
    if operation.softmax:
        visible = np.tri(weights.shape[-1], dtype=bool) if operation.causal else None
        weights = jax.nn.softmax(weights, axis=-1, where=visible)
    mixed = jnp.einsum("nhpr,nrhd->nphd", weights, v, precision=EXACT)
    return mixed.reshape(values[2].shape)


@channels_behind.register
def _(operation: Attend, reads: tuple[Features, ...], source: Source) -> int:
    queries, keys, values = reads
    if queries != keys or queries[:-1] != values[:-1]:
        raise InvalidInput(
            f"net: queries, keys and values of {source} have the shapes {queries}, {keys} and "
            f"{values}; wanted equal positions, and as many queries as keys."
        )
    heads = heads_of(operation, queries[-1], values[-1])
    if not heads or queries[-1] % (operation.key_size or heads) or values[-1] % heads:
        raise InvalidInput(
            f"net: {source} splits features among heads; at this width it has {queries[-1]} "
            f"features of queries and {values[-1]} of values, which cannot be split equally."
        )
    return values[-1]


def heads_of(operation: Attend, keys: int, values: int) -> int:
    """Return the number of heads among which features of keys and of values are split."""
    if operation.heads is not None:
        return operation.heads
    if operation.key_size is not None:
        return keys // operation.key_size
    return number_of_heads(keys, values)


def number_of_heads(keys: int, values: int) -> int:
    """Return the largest number up to √keys that divides both numbers of features."""
    both = gcd(keys, values)
    return max(h for h in range(1, isqrt(keys) + 1) if both % h == 0)
