"""Checks that the doors of prediction share."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.arrays import floating, in_words, is_traced, samples, shape_of
from largen.errors import InvalidInput


def training_inputs(x: Any) -> np.ndarray:
    """Return training samples as a NumPy array (sample, input) or (sample, *space, channel)."""
    return _concrete("x", samples("x", x))


def new_inputs(x_test: Any, x: np.ndarray) -> Any:
    """Check test samples: finite floats of the training samples' shape; they may be traced."""
    array = samples("x_test", x_test)
    if array.shape[1:] != x.shape[1:]:
        raise InvalidInput(
            f"x_test: has {in_words(shape_of(array))} a sample, x has {in_words(shape_of(x))}."
        )
    return array


def training_targets(y: Any, rows: int) -> np.ndarray:
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
    if len(numbers) != rows:
        raise InvalidInput(f"y: has {len(numbers)} rows, x has {rows} samples.")
    return numbers


def noise_variance(noise: Any, rows: int, *, positive: bool = False) -> np.ndarray:
    """Return noise variances as float64, one number or one for each sample."""
    bound = "> 0" if positive else "≥ 0"
    try:
        variance = np.asarray(noise, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"noise: wanted a variance {bound}, got {noise!r}.") from None
    if variance.shape not in ((), (rows,)):
        raise InvalidInput(
            f"noise: wanted one variance or ({rows},), one a sample, got {variance.shape}."
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
