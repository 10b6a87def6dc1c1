"""The default network of the estimators, and the weights and noise of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from largen.architectures import Layer, mlp
from largen.arrays import numbers
from largen.errors import InvalidInput
from largen.expectations import as_activation, second_moment
from largen.scalars import integer, real
from largen.text import shown


def default_network(depth: Any = None, function: Any = None) -> Layer:
    """Return relu layers with biases and σ_w² = 1/E[φ(z)²], which keeps a mean square of 1."""
    phi = as_activation("relu" if function is None else function)
    layers = 2 if depth is None else integer("depth", depth, at_least=1)
    with jax.enable_x64(True):
        size = float(second_moment(phi, 1.0))
    if not 0 < size < np.inf:
        raise InvalidInput(f"activation: E[φ(z)²] of {phi!r} is {size:g}; give a network as net=.")
    return mlp(layers, phi, weight_std=size**-0.5, bias_std=0.5)


def check_noise(noise: Any) -> None:
    """Check the noise, one variance for all samples."""
    if isinstance(noise, str) and noise == "auto":
        return
    try:
        real("noise", noise, at_least=0)
    except InvalidInput:
        raise InvalidInput(
            f"noise: wanted 'auto' or a finite variance ≥ 0, got {shown(noise)}."
        ) from None


def check_time(time: Any) -> None:
    """Refuse several times; the value is checked where it is used."""
    if isinstance(time, (Sequence, np.ndarray, jax.Array)) and not isinstance(time, str):
        raise InvalidInput(
            f"time: wanted one time, or 'auto', got {shown(time)}; lg.regression.flow_posterior "
            f"takes many."
        )


def noise_of_one(noise: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the noise variance of a sample of weight 1, from those of all samples."""
    if weights is None:
        return float(noise)
    return float(np.ravel(noise * weights[weights > 0])[0])


def weights_of(sample_weight: Any, samples: int) -> np.ndarray | None:
    """Check weights of samples; return None if all are equal."""
    if sample_weight is None:
        return None
    weight = numbers("sample_weight", sample_weight)
    if weight.shape not in ((), (samples,)):
        raise InvalidInput(f"sample_weight: wanted shape ({samples},), got {weight.shape}.")
    if (weight < 0).any():
        raise InvalidInput("sample_weight: wanted finite weights ≥ 0.")
    if not weight.any():
        raise InvalidInput("sample_weight: all weights are zero.")
    return np.broadcast_to(weight, samples)
