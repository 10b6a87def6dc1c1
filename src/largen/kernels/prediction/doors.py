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


def noise_variance(noise: Any, rows: int) -> np.ndarray:
    """Return noise variances as float64, one number or one for each sample."""
    return _of_each_sample("noise", noise, ((), (rows,)))


def sample_weights(weights: Any, rows: int) -> np.ndarray:
    """Return weights of samples as float64, (sample,); all are one by default."""
    if weights is None:
        return np.ones(rows)
    given = _of_each_sample("weights", weights, ((rows,),))
    if not given.any():
        raise InvalidInput("weights: all are zero.")
    return given


def _of_each_sample(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Check finite numbers ≥ 0 of one of the shapes."""
    wanted = " or ".join("one number" if not shape else f"{shape}" for shape in shapes)
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name}: wanted {wanted}, got {value!r}.") from None
    if numbers.shape not in shapes:
        raise InvalidInput(f"{name}: wanted {wanted}, got the shape {numbers.shape}.")
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise InvalidInput(f"{name}: wanted finite numbers ≥ 0, got {value!r}.")
    return numbers


def _concrete(name: str, array: Any) -> np.ndarray:
    if is_traced(array):
        raise InvalidInput(
            f"{name}: is traced by jit, grad or vmap; condition on training samples outside of "
            "it. Predictions may be traced."
        )
    return np.asarray(array)
