"""Kernels given as matrices, and the targets of their rows.

Kernels are (sample, sample), or (sample, sample, output, output) where outputs are coupled, as in
the empirical tangent kernel of a finite network; the latter become matrices over pairs of sample
and output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from largen.arrays import floating, is_traced
from largen.errors import InvalidInput


class Targets(NamedTuple):
    """Targets, and the conversion of kernels to matrices with one row for each target.

    Attributes
    ----------
    y
        (sample,) or (sample, output).
    kept
        Which samples have positive weight, (sample,).
    coupled
        Whether kernels have two axes of outputs.
    """

    y: np.ndarray
    kept: np.ndarray
    coupled: bool

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
    """Check that a kernel is square and symmetric; return it in its own precision."""
    given = floating(name, kernel, ndim=(2, 4))
    if is_traced(given):
        raise InvalidInput(f"{name}: is traced; call this outside of jit and grad.")
    matrix = np.asarray(given)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[2:3] != matrix.shape[3:]:
        raise InvalidInput(
            f"{name}: wanted a square kernel, (sample, sample) or (sample, sample, output, "
            f"output), got shape {matrix.shape}."
        )
    slack = 1e3 * np.finfo(matrix.dtype).eps * np.abs(matrix).max()
    turned = matrix.T if matrix.ndim == 2 else matrix.transpose(1, 0, 3, 2)
    if np.abs(matrix - turned).max() > slack:
        raise InvalidInput(f"{name}: wanted a symmetric kernel.")
    return matrix
