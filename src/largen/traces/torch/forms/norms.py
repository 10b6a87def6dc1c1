"""Core operations that normalise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax


def _standardised(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Return (x − mean)/√(variance + ε), the mean and 1/√(variance + ε)."""
    mean = x.mean(axes, keepdims=True)
    inverse = lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)
    return (x - mean) * inverse, mean, inverse


def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    out, mean, inverse = _standardised(x, tuple(range(-len(shape), 0)), eps)
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias), mean, inverse


def _group_norm(
    x: Any, weight: Any, bias: Any, samples: int, channels: int, positions: int, groups: int,
    eps: float,
) -> Any:  # fmt: skip
    out, mean, inverse = _standardised(x.reshape(samples, groups, -1), (-1,), eps)
    out = _by_channel(out.reshape(x.shape), weight, bias)
    return out, mean[..., 0], inverse[..., 0]


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    shape = (-1, *[1] * (x.ndim - 2))
    out = (x - mean.reshape(shape)) * lax.rsqrt(variance.reshape(shape) + eps)
    return _by_channel(out, weight, bias), None, None


def _by_channel(x: Any, weight: Any, bias: Any) -> Any:
    shape = (-1, *[1] * (x.ndim - 2))
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


FORMS = {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
}
