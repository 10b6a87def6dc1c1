"""Scikit-learn's handwritten digits as a binary classification task."""

from __future__ import annotations

import numpy as np

from largen.errors import InvalidInput
from largen.runs import Dataset
from largen.scalars import integer


def digits(
    # train, test: numbers of samples, drawn without overlap.
    train: int = 100,
    test: int = 100,
    *,
    # The two digits labelled −1 and +1; None for odd against even.
    classes: tuple[int, int] | None = None,
    seed: int = 0,  # the seed with which samples are drawn
    dtype: str = "float32",  # "float32" or "float64"
) -> Dataset:
    """Return 8 × 8 images of digits with labels ±1.

    Pixels are centred by their mean over the training images, and scaled so that |x|²/D averages
    to one there.

    >>> digits(50, 20, classes=(3, 8))
    Dataset(50 training and 20 test samples of 64 inputs, float32)
    """
    from sklearn.datasets import load_digits

    train, test = integer("train", train, at_least=1), integer("test", test, at_least=0)
    images, labels = load_digits(return_X_y=True)
    if classes is None:
        signs = np.where(labels % 2 == 0, 1.0, -1.0)
    else:
        if len(set(classes)) != 2 or not set(classes) <= set(range(10)):
            raise InvalidInput(f"classes: wanted two different digits of 0..9, got {classes!r}.")
        keep = np.isin(labels, classes)
        images, labels = images[keep], labels[keep]
        signs = np.where(labels == classes[1], 1.0, -1.0)
    if train + test > len(images):
        raise InvalidInput(f"train + test: wanted {train + test} images, there are {len(images)}.")
    order = np.random.default_rng(seed).permutation(len(images))[: train + test]
    x, y = images[order], signs[order]
    x = x - np.mean(x[:train], axis=0)
    x = (x / np.sqrt(np.mean(x[:train] ** 2))).astype(dtype)
    y = y.astype(dtype)
    if not test:
        return Dataset(x, y)
    return Dataset(x[:train], y[:train], x[train:], y[train:])
