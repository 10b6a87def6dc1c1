"""The samples, targets and kernels that curves are computed from."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from largen.architectures import Layer
from largen.errors import InvalidInput, RepeatedSamples, one_of
from largen.kernels.masked import Masked, masked
from largen.regression.checks import check_lazy, training_inputs, training_targets
from largen.regression.early_stopping import training_times
from largen.regression.gaussian_process import matrices
from largen.regression.kernel_rows import check_positive, square_kernel
from largen.regression.large.operators import KernelOperator, kernel_operator
from largen.scalars import integers
from largen.text import shown

_REPEATED = 0.05  # fraction of samples from which on it is said that they are
KERNELS = {"ntk": "ntk-gp", "nngp": "nngp"}


class Matrix(NamedTuple):
    """A kernel that is stored, with the methods of one that is computed in parts."""

    matrix: np.ndarray  # (sample, sample)

    def within(self, chosen: np.ndarray) -> np.ndarray:
        """Return the kernel of some of the samples."""
        return self.matrix[np.ix_(chosen, chosen)]

    def columns(self, chosen: np.ndarray) -> np.ndarray:
        """Return the kernel of all samples with some of them, (sample, chosen)."""
        return self.matrix[:, chosen]

    def lower_triangle(self) -> np.ndarray:
        """Return the kernel in Fortran's order, with 0 above the diagonal."""
        return np.asfortranarray(np.tril(self.matrix))


Entries = Matrix | KernelOperator


class Given(NamedTuple):
    """Samples or the kernel that is given, with targets."""

    samples: Masked | np.ndarray
    columns: np.ndarray  # (sample, output)
    several: bool  # whether targets have an axis of outputs

    def matrix(self, net: Any, kernel: str, param: Any) -> tuple[np.ndarray, str]:
        """Return the kernel (sample, sample) in float64, and its name."""
        if not isinstance(self.samples, Masked):
            return self.samples, "a given kernel"
        matrix = matrices(net, self.samples, KERNELS[kernel], param)[0].astype(np.float64)
        return matrix, f"{kernel.upper()} of {net!r}"

    def entries(self, net: Any, kernel: str, param: Any) -> tuple[Entries, str]:
        """Return the kernel in parts, and its name."""
        if not isinstance(self.samples, Masked):
            return Matrix(self.samples), "a given kernel"
        x, mask = np.asarray(self.samples.x, np.float64), self.samples.mask
        operator = kernel_operator(net, x, kind=kernel, mask1=mask, param=param)
        return operator, f"{kernel.upper()} of {net!r}"


def given(net: Any, x: Any, y: Any, kernel: str, mask: Any, param: Any) -> Given:
    """Check a network with samples, or a kernel, and their targets."""
    one_of("kernel", kernel, KERNELS)
    samples = _samples_of(net, x, mask, param)
    M = len(samples.x if isinstance(samples, Masked) else samples)
    if M < 2:
        raise InvalidInput(f"x: wanted at least 2 samples, got {M}.")
    if y is None:
        raise InvalidInput(f"y: wanted the targets of {M} samples, got None.")
    try:
        targets = training_targets(y, M)
    except InvalidInput:
        if not _are_names(y):
            raise
        raise InvalidInput(
            "y: wanted numbers, got names of classes. A column of 0 and 1 for each class is "
            "(np.asarray(y)[:, None] == np.unique(y)).astype(float)."
        ) from None
    if isinstance(samples, Masked):
        _warn_of_repeated(samples)
    return Given(samples, targets.reshape(M, -1), targets.ndim == 2)


def _are_names(y: Any) -> bool:
    """Return whether all entries are text, and none is a number that was written as text."""
    try:
        entries = np.asarray(y).ravel()
        return all(isinstance(entry, str) and not _is_number(entry) for entry in entries)
    except (TypeError, ValueError):
        return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _warn_of_repeated(samples: Masked) -> None:
    arrays = [np.ascontiguousarray(a) for a in samples if a is not None]
    count = len(arrays[0])
    rows = {b"".join(a[i].tobytes() for a in arrays) for i in range(count)}
    if count - len(rows) > _REPEATED * count:
        warnings.warn(
            f"x: {count - len(rows)} of {count} samples are repeated. Errors on new samples "
            "are larger, as samples should be independent draws; leave out repeated ones.",
            RepeatedSamples,
            stacklevel=4,
        )


def different(name: str, numbers: Any) -> list[int]:
    """Check positive integers that are all different; return them in increasing order."""
    found = integers(name, numbers, at_least=1)
    if not found:
        raise InvalidInput(f"{name}: wanted at least one number, got none.")
    if len(set(found)) < len(found):
        raise InvalidInput(f"{name}: wanted different numbers, got {found}.")
    return sorted(found)


def _samples_of(net: Any, x: Any, mask: Any, param: Any) -> Masked | np.ndarray:
    """Return the samples of a network, or the kernel that is given, in float64."""
    if isinstance(net, Layer):
        if x is None:
            raise InvalidInput("x: wanted the samples, got None.")
        check_lazy(param)
        return masked("mask", mask, training_inputs(x))
    if x is not None:
        raise InvalidInput(
            "net: wanted a network such as lg.mlp(1, 'relu'), or a kernel (sample, sample) and no "
            f"x, got {shown(net)}."
        )
    for name, value in (("mask", mask), ("param", param)):
        if value is not None:
            raise InvalidInput(f"{name}: is only used with a network; a kernel matrix is given.")
    matrix = square_kernel("net", net).astype(np.float64)
    if matrix.ndim != 2:
        raise InvalidInput(
            f"net: wanted a network such as lg.mlp(1, 'relu') or a kernel (sample, sample), got a "
            f"kernel of shape {matrix.shape}, whose outputs are coupled."
        )
    check_positive("net", matrix)
    return matrix


def times_of(time: Any) -> Any:
    """Return the time, or times, as floats; infinity for regression."""
    if time is None:
        return np.inf
    if isinstance(time, str):
        raise InvalidInput(f"time: wanted a time > 0 or several, got {time!r}.")
    nothing = np.empty(0)
    times = training_times(time, nothing, nothing, nothing)
    if not np.all(np.asarray(times) > 0):
        raise InvalidInput(f"time: wanted times > 0, at which something is learned, got {time!r}.")
    return times
