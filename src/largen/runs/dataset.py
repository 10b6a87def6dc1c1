"""Data of a run: training and test samples, checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from largen.arrays import as_array, as_floats, convert, in_words, known, samples, shape_of
from largen.errors import InvalidInput


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Training and test samples; the given arrays are copied.

    Parameters
    ----------
    x_train
        Inputs, shape ``(sample, input)`` or, for networks with spatial layers,
        ``(sample, *space, channel)``: floats, or numbers of other types, lists, frames or tensors.
        float32 and float64 are the precision of the run; all others become float64.
    y_train
        Targets, shape ``(sample,)`` or ``(sample, output)``: numbers for ``mse``, ±1 for
        ``logistic``, class indices for ``cross_entropy``. For networks with an output at each
        position, the axis ``position`` comes after that of samples.
    x_test, y_test
        Inputs and targets that are predicted but not trained on; both or neither.

    Raises
    ------
    InvalidInput
        For wrong shapes, numbers of samples or inputs that do not agree, missing values, NaN or
        infinity anywhere, masked arrays, numbers that overflow in the precision of the run, and
        integers that this precision cannot represent.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    Dataset(3 training and 0 test samples of 3 inputs, float64)
    """

    x_train: Any
    y_train: Any
    x_test: Any
    y_test: Any

    def __init__(
        self,
        x_train: Any,  # frames and tensors, too, of packages that need not be there
        y_train: Any,
        x_test: Any = None,
        y_test: Any = None,
    ):
        known("x_train", x_train)
        x = samples("x_train", x_train)
        x = convert("x_train", x, x.dtype)
        y = _targets("y_train", y_train, x)
        if (x_test is None) != (y_test is None):
            raise InvalidInput("x_test and y_test: give both, or neither.")
        if x_test is None or y_test is None:
            xt, yt = x[:0], y[:0]
        else:
            known("x_test", x_test)
            xt = convert("x_test", samples("x_test", x_test), x.dtype)
            if xt.shape[1:] != x.shape[1:]:
                raise InvalidInput(
                    f"x_test: has {in_words(shape_of(xt))} a sample, x_train has "
                    f"{in_words(shape_of(x))}."
                )
            yt = _targets("y_test", y_test, xt)
            if yt.shape[1:] != y.shape[1:] or yt.dtype.kind != y.dtype.kind:
                raise InvalidInput(
                    f"y_test: has shape {yt.shape} and dtype {yt.dtype}, which does not go with "
                    f"y_train's {y.shape} and {y.dtype}."
                )
        for name, value in (("x_train", x), ("y_train", y), ("x_test", xt), ("y_test", yt)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    def renewed(self) -> Dataset:
        """Return the same data in other array objects, see :func:`largen.arrays.as_array`."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            copied = value.view() if isinstance(value, np.ndarray) else value
            object.__setattr__(other, name, copied)
        return other

    @property
    def inputs(self) -> int | tuple[int, ...]:
        """D, the number of inputs of a sample, or its shape (*space, channels)."""
        return shape_of(self.x_train)

    @property
    def x(self) -> np.ndarray:
        """Training inputs followed by test inputs."""
        return np.concatenate([self.x_train, self.x_test])

    @cached_property
    def coincident(self) -> tuple[tuple[int, int], ...]:
        """Pairs of training samples with equal inputs, which make every kernel singular."""
        _, first, inverse = np.unique(self.x_train, axis=0, return_index=True, return_inverse=True)
        firsts = first[inverse.reshape(-1)]
        return tuple((int(f), i) for i, f in enumerate(firsts) if f != i)

    def __repr__(self) -> str:
        return (
            f"Dataset({len(self.x_train)} training and {len(self.x_test)} test samples of "
            f"{in_words(self.inputs)}, {self.x_train.dtype})"
        )


def _targets(name: str, y: Any, x: np.ndarray) -> np.ndarray:
    known(name, y)
    y = np.asarray(as_array(name, y))
    if y.dtype.kind not in "biu":  # integers are numbers for some losses, classes for others
        y = as_floats(name, y)
    if y.ndim not in (1, 2, 3) or len(y) != len(x):
        raise InvalidInput(
            f"{name}: wanted shape ({len(x)},) or ({len(x)}, output) for {len(x)} samples, or "
            f"({len(x)}, position[, output]) with an output at each position, got {y.shape}."
        )
    if not np.isfinite(y).all():
        raise InvalidInput(f"{name}: has NaN or infinite entries; drop those samples.")
    if y.dtype.kind == "f":
        return convert(name, y, x.dtype)
    convert(name, y, x.dtype)
    return convert(name, y, np.int32)
