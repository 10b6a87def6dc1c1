"""Sets of images, read from the user's copy."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from largen.errors import InvalidInput

ENVIRONMENT = "LARGEN_DATA"
DEFAULT = "data"
KEYS = ("x_train", "y_train", "x_test", "y_test")
SHAPES = {"cifar10": (32, 32, 3), "mnist": (28, 28)}
SOURCES = {
    "cifar10": "keras.datasets.cifar10.load_data() has its arrays",
    "mnist": "the file mnist.npz of Keras is one as it is",
}


@dataclass(frozen=True, eq=False)
class Images:
    """A set of images with labels 0, 1, …; pixels of 0 … 255."""

    name: str
    path: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the content."""
        found = hashlib.sha256()
        for key in KEYS:
            found.update(np.ascontiguousarray(getattr(self, key)).tobytes())
        return found.hexdigest()[:16]

    def choose(
        self, classes: tuple[int, ...] | None, train: int, test: int, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return flat images x and class indices y, for training and for testing: x, y, x, y.

        Training images are drawn at random, with equal numbers (up to one) from each class; test
        images are the first ones of the set. There may be fewer of both than requested. Pixels are
        centred and scaled by the mean and the standard deviation of all pixels of the training
        images.

        Parameters
        ----------
        classes
            Labels that are kept, in this order; None for all.
        train, test
            The requested numbers of training and test images.
        seed
            Seed of the draw.
        """
        labels = np.unique(self.y_train) if classes is None else np.array(classes)
        rng = np.random.default_rng(seed)
        order = [rng.permutation(np.flatnonzero(self.y_train == label)) for label in labels]
        shares = [train // len(labels) + (i < train % len(labels)) for i in range(len(labels))]
        chosen = np.concatenate([o[:n] for o, n in zip(order, shares, strict=True)])
        chosen = rng.permutation(chosen)
        tested = np.flatnonzero(np.isin(self.y_test, labels))[:test]
        x, z = (
            a.reshape(len(a), -1).astype(np.float64)
            for a in (self.x_train[chosen], self.x_test[tested])
        )
        mean, std = x.mean(), x.std()
        place = {int(label): position for position, label in enumerate(labels)}
        y, t = (
            np.array([place[int(label)] for label in a])
            for a in (self.y_train[chosen], self.y_test[tested])
        )
        return (x - mean) / std, y, (z - mean) / std, t


def find_images(name: str, where: Any = None) -> Images:
    """Read a set of images from a folder.

    Parameters
    ----------
    name
        ``"cifar10"`` or ``"mnist"``.
    where
        A folder with a file ``<name>*.npz`` that holds ``x_train``, ``y_train``, ``x_test`` and
        ``y_test``; by default that of the environment variable ``LARGEN_DATA``, or ``data``.
        ``"digits"`` substitutes scikit-learn's 8 × 8 digits for any set.

    Raises
    ------
    InvalidInput
        If there is no such file, or it lacks one of these arrays; the message says what to do.
    """
    if str(where) == "digits":
        return _digits()
    folder = Path(where or os.environ.get(ENVIRONMENT, DEFAULT)).expanduser()
    candidates = [folder] if folder.is_file() else sorted(folder.glob(f"{name}*.npz"))
    for path in candidates:
        found = _read(name, path)
        if found is not None:
            return found
    size = " × ".join(map(str, SHAPES[name]))
    raise InvalidInput(
        f"data: no images of {name} in {str(folder)!r}. Wanted a file {name}.npz with x_train, "
        f"y_train, x_test, y_test, images of {size} pixels 0…255 and labels 0…9 "
        f"({SOURCES[name]}). Name its folder by --data or by {ENVIRONMENT}; --data digits takes "
        "scikit-learn's digits instead."
    )


def _read(name: str, path: Path) -> Images | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not set(KEYS) <= set(archive.files):
                return None
            arrays = {key: archive[key] for key in KEYS}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"data: cannot read {str(path)!r}: {error}.") from None
    if arrays["x_train"].shape[1:] != SHAPES[name]:
        return None
    arrays |= {key: arrays[key].reshape(-1) for key in ("y_train", "y_test")}
    return Images(name, str(path), **arrays)


def _digits() -> Images:
    from sklearn.datasets import load_digits

    x, y = map(np.asarray, load_digits(return_X_y=True))
    x = 255 / 16 * x.reshape(-1, 8, 8)
    return Images("digits", "scikit-learn", x[:1200], y[:1200], x[1200:], y[1200:])
