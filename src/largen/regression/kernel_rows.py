"""Kernels given as matrices, and the targets of their rows.

Kernels are (sample, sample), or (sample, sample, output, output) where outputs are coupled, as in
the empirical tangent kernel of a finite network; the latter become matrices over pairs of sample
and output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from largen.arrays import floating, is_traced
from largen.errors import InvalidInput
from largen.regression.factor import cholesky_factor, rounded_up

_ROUNDED = 1e-6  # relative errors of the entries of kernels that are given


class Targets(NamedTuple):
    """Targets, and the conversion of kernels to matrices with one row for each target."""

    y: np.ndarray  # (sample,) or (sample, output)
    kept: np.ndarray  # which samples have positive weight, (sample,)
    coupled: bool  # whether kernels have two axes of outputs

    @property
    def outputs(self) -> int:
        """Number of rows of the matrix for each sample."""
        return self.y.shape[1] if self.coupled else 1

    def columns(self) -> np.ndarray:
        """Return the targets of the matrix's rows, (row, column)."""
        y = self.y[self.kept]
        return y.reshape(-1, 1) if self.coupled else y.reshape(len(y), -1)

    def matrix(self, kernel: np.ndarray, to: Any = slice(None)) -> np.ndarray:
        """Return the kernel from chosen samples to those of positive weight, as a matrix."""
        kernel = kernel[to][:, self.kept]
        return join_outputs(kernel) if self.coupled else kernel

    def of_rows(self, of_samples: np.ndarray) -> np.ndarray:
        """Return values of the samples of positive weight, repeated for each row of the matrix."""
        return np.repeat(of_samples[self.kept], self.outputs)

    def shaped(self, mean: np.ndarray) -> np.ndarray:
        """Return means in the shape of the targets, with leading axes of times."""
        if self.coupled:
            return mean.reshape(*mean.shape[:-2], -1, self.outputs)
        return mean if self.y.ndim == 2 else mean[..., 0]


def join_outputs(kernel: np.ndarray) -> np.ndarray:
    """Return a kernel (n, m, output, output) as a matrix of (sample, output) pairs."""
    rows, columns, outputs, _ = kernel.shape
    return kernel.transpose(0, 2, 1, 3).reshape(rows * outputs, columns * outputs)


def separate(matrix: np.ndarray, outputs: int) -> np.ndarray:
    """Return a matrix with separate axes of outputs; the inverse of :func:`join_outputs`."""
    *times, rows, columns = matrix.shape
    split = matrix.reshape(*times, rows // outputs, outputs, columns // outputs, outputs)
    return np.moveaxis(split, -3, -2)


def square_kernel(name: str, kernel: Any) -> np.ndarray:
    """Check that a kernel is square and symmetric; return its symmetric part."""
    given = floating(name, kernel, ndim=(2, 4))
    if is_traced(given):
        raise InvalidInput(f"{name}: is traced; call this outside of jit and grad.")
    matrix = np.asarray(given)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[2:3] != matrix.shape[3:]:
        raise InvalidInput(
            f"{name}: wanted a square kernel, (sample, sample) or (sample, sample, output, "
            f"output), got shape {matrix.shape}."
        )
    turned = matrix.T if matrix.ndim == 2 else matrix.transpose(1, 0, 3, 2)
    apart = np.abs(matrix - turned).max()
    if apart > max(_ROUNDED, 1e3 * np.finfo(matrix.dtype).eps) * np.abs(matrix).max():
        raise InvalidInput(f"{name}: wanted a symmetric kernel; entries differ by {apart:.2g}.")
    return matrix if apart == 0 else matrix / 2 + turned / 2


def check_positive(name: str, matrix: np.ndarray, noise: Any = None, heaviest: float = 1.0) -> None:
    """Check that a symmetric matrix, plus a noise if there is any, is positive semidefinite.

    Entries with relative errors ε move eigenvalues by ε‖K‖_∞ at most. With ε = 1e-6 all kernels
    pass that were computed, or stored, in single precision. Cholesky's factorization decides;
    eigenvalues are computed only where it fails.
    """
    total = matrix if noise is None else matrix + np.diag(np.broadcast_to(noise, len(matrix)))
    norm = np.abs(matrix).sum(axis=1).max()
    slack = _ROUNDED * norm
    try:
        cholesky_factor(total + slack * np.eye(len(total)))
    except LinAlgError:
        values = np.linalg.eigvalsh(total)
        if values[0] >= -slack:
            return
        ends = np.linalg.eigvalsh(matrix) if noise is not None else values
        enough = rounded_up(heaviest * (1.01 * -float(ends[0]) + norm / 1e8))
        remedy = "add {} to its diagonal" if noise is None else "pass a larger noise=: {} is enough"
        raise InvalidInput(
            f"{name}: wanted a positive semidefinite kernel, got eigenvalues from {ends[0]:.3g} to "
            f"{ends[-1]:.3g}. If it is an estimate, {remedy.format(enough)}."
        ) from None
