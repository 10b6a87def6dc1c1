"""Checks that the doors of prediction share."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.arrays import floating, is_traced
from largen.errors import InvalidInput


def training_inputs(x: Any) -> np.ndarray:
    """Return training inputs as a NumPy array (sample, input)."""
    return _concrete("x", floating("x", x, ndim=2))


def training_targets(y: Any, samples: int) -> np.ndarray:
    """Return targets as float64, (sample,) or (sample, output)."""
    if is_traced(y):
        _concrete("y", y)
    try:
        numbers = np.asarray(y)
    except ValueError:
        raise InvalidInput("y: wanted an array of numbers, got a ragged sequence.") from None
    if numbers.dtype.kind not in "fiu":
        raise InvalidInput(f"y: wanted numbers, got dtype {numbers.dtype}.")
    numbers = np.asarray(floating("y", numbers.astype(np.float64), ndim=(1, 2)))
    if len(numbers) != samples:
        raise InvalidInput(f"y: has {len(numbers)} rows, x has {samples} samples.")
    return numbers


def noise_variance(noise: Any, samples: int, *, positive: bool = False) -> np.ndarray:
    """Return noise variances as float64, one number or one for each sample."""
    bound = "> 0" if positive else "≥ 0"
    try:
        variance = np.asarray(noise, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"noise: wanted a variance {bound}, got {noise!r}.") from None
    if variance.shape not in ((), (samples,)):
        raise InvalidInput(
            f"noise: wanted one variance or ({samples},), one a sample, got {variance.shape}."
        )
    wrong = variance <= 0 if positive else variance < 0
    if not np.isfinite(variance).all() or wrong.any():
        raise InvalidInput(f"noise: wanted finite variances {bound}, got {noise!r}.")
    return variance


def _concrete(name: str, array: Any) -> np.ndarray:
    if is_traced(array):
        raise InvalidInput(
            f"{name}: is traced by jit, grad or vmap; condition on training samples outside of "
            "it. Predictions may be traced."
        )
    return np.asarray(array)
