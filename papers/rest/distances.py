"""Distances of outputs of networks from what is predicted."""

from __future__ import annotations

from typing import Any

import numpy as np


def distance(found: Any, predicted: Any, error: Any = 0.0) -> tuple[float, float]:
    """Return |found − predicted|/|found| and its standard error, errors adding up.

    Examples
    --------
    >>> distance([3.0, 4.0], [3.0, 3.0], [0.1, 0.1])
    (0.2, 0.02)
    """
    x = np.asarray(found, float)
    apart, size = x - np.asarray(predicted, float), float(np.linalg.norm(x))
    length = float(np.linalg.norm(apart))
    spread = float(np.sum(np.abs(apart) * error)) / (length or 1.0)
    return length / size, spread / size


def moved(found: Any, start: Any, predicted: Any, error: Any = 0.0) -> tuple[float, float]:
    """Return how far from the start, in units of the predicted way, with its standard error.

    Examples
    --------
    >>> moved([1.5, 1.0], [0.0, 1.0], [1.0, 1.0], [0.1, 0.1])
    (1.5, 0.1)
    """
    way = np.asarray(predicted, float) - np.asarray(start, float)
    weights = way / np.sum(way**2)
    return float(weights @ (np.asarray(found) - start)), float(np.sum(np.abs(weights) * error))


def closer(found: Any, first: Any, second: Any, error: Any = 0.0) -> tuple[float, float]:
    """Return how much closer the first prediction is than the second, relative to what was found.

    Examples
    --------
    >>> closer([3.0, 4.0], [3.0, 3.0], [3.0, 2.0], [0.1, 0.1])
    (0.2, 0.0)
    """
    x = np.asarray(found, float)
    near, far = x - np.asarray(first, float), x - np.asarray(second, float)
    lengths, size = (np.linalg.norm(near), np.linalg.norm(far)), float(np.linalg.norm(x))
    slopes = far / (lengths[1] or 1.0) - near / (lengths[0] or 1.0)
    spread = float(np.sum(np.abs(slopes) * error))
    return float(lengths[1] - lengths[0]) / size, spread / size
