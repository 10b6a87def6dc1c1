"""The training task of replicas: samples, a loss, batches and the number of steps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.arrays import as_array, known
from largen.errors import InvalidInput, one_of
from largen.scalars import MOST_COUNTED, integer

LOSSES = ("cross_entropy", "mse")
# Samples in a batch of the evaluation after training.
EVALUATED_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Task:
    """Samples, batches and a loss.

    Each epoch visits the training samples once, in a new random order; the samples after the last
    whole batch are skipped. With ``steps * batch_size`` samples or more, no sample is seen
    twice: single-epoch training.

    Attributes
    ----------
    x, y
        Inputs ``(sample, …)`` and targets: class numbers for ``"cross_entropy"``, shape
        ``(sample,)`` or ``(sample, position)``; numbers ``(sample, output)`` for ``"mse"``.
    loss
        ``"cross_entropy"`` (in nats) or ``"mse"``, a mean over samples and outputs.
    batch_size, steps
        The batch size and the number of steps of every training.
    x_final, y_final
        The samples on which the loss after training is measured; the training samples if None.
    seed
        The seed of the order of samples.

    Examples
    --------
    >>> task = Task(np.zeros((10, 3), "float32"), np.arange(10) % 2, batch_size=4, steps=5)
    >>> [len(task.batch(t)[0]) for t in range(5)], round(task.chance, 3)
    ([4, 4, 4, 4, 4], 0.693)
    """

    x: np.ndarray
    y: np.ndarray
    loss: str = "cross_entropy"
    batch_size: int = 64
    steps: int = 200
    x_final: np.ndarray | None = None
    y_final: np.ndarray | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("loss", self.loss, LOSSES)
        integer("steps", self.steps, at_least=1)
        integer("batch_size", self.batch_size, at_least=1)
        integer("seed", self.seed, at_least=0)
        if (self.x_final is None) != (self.y_final is None):
            raise InvalidInput("x_final, y_final: wanted both or none.")
        for name in ("x", "y", "x_final", "y_final"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        for names in (("x", "y"), ("x_final", "y_final")):
            x, y = (getattr(self, name) for name in names)
            if x is not None and len(x) != len(y):
                raise InvalidInput(
                    f"{names[1]}: wanted {len(x)} targets, one per input, got {len(y)}."
                )
            if x is not None and self.loss == "cross_entropy":
                _check_classes(names[1], y)
        if self.batch_size > len(self.x):
            raise InvalidInput(
                f"batch_size: wanted at most the {len(self.x)} samples, got {self.batch_size}."
            )

    def batch(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets of step t, from 0."""
        per_epoch = len(self.x) // self.batch_size
        epoch, i = divmod(t, per_epoch)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.x))
        chosen = order[i * self.batch_size : (i + 1) * self.batch_size]
        return self.x[chosen], self.y[chosen]

    @property
    def evaluation(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The samples on which the loss after training is measured, in batches."""
        x, y = (self.x, self.y) if self.x_final is None else (self.x_final, self.y_final)
        assert y is not None
        at = range(0, len(x), EVALUATED_AT_ONCE)
        return [(x[i : i + EVALUATED_AT_ONCE], y[i : i + EVALUATED_AT_ONCE]) for i in at]

    @property
    def chance(self) -> float:
        """The best constant prediction's loss: the labels' entropy, or the targets' variance."""
        return float(self.constant.mean())

    @property
    def constant(self) -> np.ndarray:
        """The losses ``(sample,)`` of the best constant prediction on the evaluated samples.

        The constant is fitted to these samples: it is given by their label frequencies or means.
        """
        y = np.asarray(self.y if self.y_final is None else self.y_final)
        if self.loss == "mse":
            each = np.square(y - y.mean(0))
        else:
            _, classes, counts = np.unique(y, return_inverse=True, return_counts=True)
            each = np.take(-np.log(counts / y.size), classes.reshape(y.shape))
        return each.reshape(len(y), -1).mean(1)

    def margin_error(self, each: np.ndarray) -> np.ndarray:
        """Return the standard error of the mean loss minus that of the best constant prediction.

        Parameters
        ----------
        each
            Losses ``(replica, sample)`` on the evaluated samples. The error is that of the mean
            over samples of the difference; infinite where a loss is infinite.
        """
        finite = np.all(np.isfinite(each), axis=1)
        gap = np.where(finite[:, None], each, 0.0) - self.constant
        error = gap.std(1, ddof=min(1, gap.shape[1] - 1)) / np.sqrt(gap.shape[1])
        return np.where(finite, error, np.inf)

    def digest(self) -> str:
        """Return a fingerprint of all fields."""
        digest = hashlib.sha256(repr((self.loss, self.batch_size, self.steps, self.seed)).encode())
        for array in (self.x, self.y, self.x_final, self.y_final):
            if array is not None:
                digest.update(repr((array.shape, str(array.dtype))).encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _numbers(name: str, values: Any) -> np.ndarray:
    """Return samples of finite numbers."""
    known(name, values)
    array = np.asarray(as_array(name, values))
    if array.ndim == 0 or not array.size:
        raise InvalidInput(f"{name}: wanted at least one sample, got shape {array.shape}.")
    if array.dtype.kind == "c":
        raise InvalidInput(f"{name}: wanted real numbers, got dtype {array.dtype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInput(f"{name}: has numbers that are not finite.")
    return array


def _check_classes(name: str, y: np.ndarray) -> None:
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() > MOST_COUNTED:
        raise InvalidInput(
            f"{name}: wanted classes, integers ≥ 0, for loss='cross_entropy', got dtype {y.dtype} "
            f"from {y.min()} to {y.max()}."
        )
