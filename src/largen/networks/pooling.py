"""The rules of finite networks for pooling, flattening and normalisation: none has weights."""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.architectures import (
    AvgPool,
    BatchNorm,
    Dropout,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    LayerNorm,
    MaxPool,
    RMSNorm,
    Signal,
    SumPool,
)
from largen.architectures.windows import Pool
from largen.networks.modules import Features, Frame, Module, Path, build, weightless
from largen.networks.windows import pad_windows


@build.register(SumPool)
def sum_pool(layer: SumPool, frame: Frame, path: Path, features: Features) -> Module:
    """Return the sum over each window."""
    return _pool(layer, features, lambda x: _sums(layer, x))


@build.register(AvgPool)
def avg_pool(layer: AvgPool, frame: Frame, path: Path, features: Features) -> Module:
    """Return the mean over the part of each window inside the sample."""
    inside = np.ones((1, *features[:-1], 1), np.float32)
    return _pool(layer, features, lambda x: _sums(layer, x) / _sums(layer, jnp.asarray(inside)))


@build.register(MaxPool)
def max_pool(layer: MaxPool, frame: Frame, path: Path, features: Features) -> Module:
    """Return the largest entry of each window."""

    def largest(x):
        return _reduce(layer, pad_windows(layer, x, -np.inf), -np.inf, lax.max)

    return _pool(layer, features, largest)


@build.register(GlobalAvgPool)
def global_avg_pool(layer: GlobalAvgPool, frame: Frame, path: Path, features: Features) -> Module:
    """Return the mean over positions."""
    return weightless(lambda x: x.mean(axis=_space(x)), features[-1:])


@build.register(GlobalSumPool)
def global_sum_pool(layer: GlobalSumPool, frame: Frame, path: Path, features: Features) -> Module:
    """Return the sum over positions."""
    return weightless(lambda x: x.sum(axis=_space(x)), features[-1:])


@build.register(Flatten)
def flatten(layer: Flatten, frame: Frame, path: Path, features: Features) -> Module:
    """Return samples with positions and channels merged into one axis."""
    return weightless(lambda x: x.reshape(len(x), -1), (prod(features),))


@build.register(LayerNorm)
def layer_norm(layer: LayerNorm, frame: Frame, path: Path, features: Features) -> Module:
    """Return (x − mean x) / √(var x + ε)."""

    def normalised(x):
        axes = _features(layer.over_space, x)
        return _rms(x - x.mean(axis=axes, keepdims=True), axes, layer.eps)

    return weightless(normalised, features)


@build.register(RMSNorm)
def rms_norm(layer: RMSNorm, frame: Frame, path: Path, features: Features) -> Module:
    """Return x / √(mean x² + ε)."""
    return weightless(lambda x: _rms(x, _features(layer.over_space, x), layer.eps), features)


@build.register(BatchNorm)
def batch_norm(layer: BatchNorm, frame: Frame, path: Path, features: Features) -> Module:
    """Return (x − mean x) / √(var x + ε) with the mean over samples and positions."""

    def normalised(x):
        axes = tuple(range(x.ndim - 1))
        return _rms(x - x.mean(axis=axes, keepdims=True), axes, layer.eps)

    return weightless(normalised, features)


@build.register(Dropout)
def dropout(layer: Dropout, frame: Frame, path: Path, features: Features) -> Module:
    """Return x: networks are evaluated without dropout."""
    return weightless(lambda x: x, features)


def _pool(layer: Pool, features: Features, function) -> Module:
    space = layer.signal_behind(Signal(features[:-1])).space
    assert space is not None
    return weightless(function, (*space, features[-1]))


def _sums(layer: Pool, x: Any) -> Any:
    return _reduce(layer, pad_windows(layer, x), 0.0, lax.add)


def _reduce(layer: Pool, x: Any, start: float, combine) -> Any:
    sizes, strides = (1, *layer.window, 1), (1, *layer.strides, 1)
    return lax.reduce_window(x, np.asarray(start, x.dtype), combine, sizes, strides, "VALID")


def _rms(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    return x * lax.rsqrt((x**2).mean(axis=axes, keepdims=True) + eps)


def _space(x: Any) -> tuple[int, ...]:
    return tuple(range(1, x.ndim - 1))


def _features(over_space: bool, x: Any) -> tuple[int, ...]:
    return tuple(range(1, x.ndim)) if over_space else (x.ndim - 1,)
