"""What the estimators share: the default network, weights of samples, copies of networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.architectures import Layer, mlp
from largen.errors import InvalidInput
from largen.kernels.masked import Masked
from largen.kernels.prediction import Posterior, posterior


def default_network() -> Layer:
    """Return the network of an estimator that is given none: relu, two hidden layers, biases."""
    return mlp(2, "relu", weight_std=2**0.5, bias_std=0.5)


def condition(
    net: Any, given: Masked, y: Any, sample_weight: Any, noise: Any, **options: Any
) -> Posterior:
    """Return the posterior of weighted samples.

    A weight divides the variance of the sample's noise, so that a sample of weight 2 counts as
    two equal ones; samples of weight 0 are left out. Without noise weights make no difference.
    """
    if not isinstance(noise, (int, float, np.number)) or not 0 <= noise < np.inf:
        raise InvalidInput(f"noise: wanted a finite variance ≥ 0, got {noise!r}.")
    if sample_weight is None:
        return posterior(net, given.x, y, noise=noise, mask=given.mask, **options)
    weight = weights_of(sample_weight, len(y))
    kept = weight > 0
    x, mask = given.rows(kept)
    return posterior(net, x, y[kept], noise=noise / weight[kept], mask=mask, **options)


def weights_of(sample_weight: Any, samples: int) -> np.ndarray:
    """Check weights of samples at the door."""
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"sample_weight: wanted numbers, got {sample_weight!r}.") from None
    if weight.shape not in ((), (samples,)):
        raise InvalidInput(f"sample_weight: wanted shape ({samples},), got {weight.shape}.")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise InvalidInput("sample_weight: wanted finite weights ≥ 0.")
    if not weight.any():
        raise InvalidInput("sample_weight: all weights are zero.")
    return np.broadcast_to(weight, samples)
