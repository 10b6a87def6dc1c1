"""Tasks for sweeps: digits, a synthetic teacher, characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from largen.errors import InvalidInput
from largen.memory import check_fits
from largen.scalars import integer
from largen.sweeps import Task


def digits_task(steps: int = 200, batch_size: int = 64) -> Task:
    """Return scikit-learn's 8 × 8 handwritten digits, ten classes, cross-entropy.

    Pixels are centred and scaled so that |x|²/D averages to one.

    Examples
    --------
    >>> digits_task().x.shape
    (1797, 64)
    """
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = np.asarray(x), np.asarray(y)
    return Task(_scale(x), y.astype(np.int64), batch_size=batch_size, steps=steps)


def teacher_task(
    steps: int = 300, batch_size: int = 64, *, inputs: int = 16, units: int = 4, seed: int = 0
) -> Task:
    """Return a synthetic teacher, y ∝ Σᵢ aᵢ relu(wᵢ·x), |wᵢ| = 1, learnt in a single epoch.

    Inputs and aᵢ are Gaussian, targets have the mean square 1. No sample is seen twice, and the
    loss after training is measured on 1024 further samples.

    The teacher is homogeneous, f(cx) = c f(x) for c > 0, as residual relu networks without biases
    are, which can therefore represent it. They cannot represent a teacher of tanh units: its
    residual loss is independent of the rate, and the minimum over rates is too flat to be located.

    Examples
    --------
    >>> task = teacher_task(steps=10, batch_size=8)
    >>> task.x.shape, task.y.shape, round(float((task.y**2).mean()), 3)
    ((80, 16), (80, 1), 1.0)
    """
    for name, value in (("steps", steps), ("batch_size", batch_size), ("inputs", inputs),
                        ("units", units)):  # fmt: skip
        integer(name, value, at_least=1)
    check_fits(
        8.0 * (steps * batch_size + 1024) * (3 * inputs + units),
        f"steps: {steps * batch_size} samples of a teacher",
        "take fewer steps, or smaller batches",
    )
    draw = np.random.default_rng(integer("seed", seed, at_least=0))
    count = steps * batch_size
    x = draw.normal(size=(count + 1024, inputs))
    w = draw.normal(size=(inputs, units))
    y = np.maximum(x @ (w / np.linalg.norm(w, axis=0)), 0) @ draw.normal(size=(units, 1))
    y = y / np.sqrt(np.mean(y[:count] ** 2))
    x, y = x.astype(np.float32), y.astype(np.float32)
    return Task(x[:count], y[:count], "mse", batch_size, steps, x[count:], y[count:])


def characters_task(path: Any, steps: int, batch_size: int = 32, *, context: int = 32) -> Task:
    """Return the prediction of a text's next character, in a single epoch of random windows.

    The loss after training is measured on the last tenth of the text, which is held out.

    Raises
    ------
    InvalidInput
        If the file is missing or too short.
    """
    file = Path(path)
    if not file.exists():
        raise InvalidInput(f"path: there is no file {file}.")
    _, codes = np.unique(list(file.read_text(encoding="utf-8")), return_inverse=True)
    split = 9 * len(codes) // 10
    if split <= context + 1:
        raise InvalidInput(f"path: {file} has {len(codes)} characters, too few.")
    draw = np.random.default_rng(0)
    starts = draw.integers(0, split - context - 1, steps * batch_size)
    held_out = np.arange(split, len(codes) - context - 1, context)[:256]
    x, y, x_final, y_final = (
        codes[at[:, None] + np.arange(context) + shift].astype(np.int64)
        for at in (starts, held_out)
        for shift in (0, 1)
    )
    return Task(x, y, "cross_entropy", batch_size, steps, x_final, y_final)


def _scale(x: np.ndarray) -> np.ndarray:
    x = x - x.mean(0)
    return (x / np.sqrt(np.mean(x**2))).astype(np.float32)
