"""The eigenmodes of a kernel over a pool of samples, and targets in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from largen.errors import InvalidInput
from largen.regression.learning_curves.modes import Modes

_ROUNDING = 4  # times the number of samples and the spacing of floats: eigenvalues that are zero


@dataclass(frozen=True)
class Pool(Modes):
    """The eigendecomposition K = U diag(w) Uᵀ of the kernel of M samples, and their targets."""

    vectors: np.ndarray  # U, (sample, mode)
    amplitudes: np.ndarray  # Uᵀy, (mode, output)
    noise: float  # σ², the variance of additional noise of the targets

    @property
    def size(self) -> int:
        """M."""
        return len(self.values)

    def spare(self, total: Any) -> Any:
        """Return M − df from the sum of the unlearned parts."""
        return total

    def spare_slope(self, slope: Any) -> Any:
        """Return the derivative of the same by log μ, from that of the sum."""
        return slope

    @cached_property
    def squares(self) -> np.ndarray:
        """The squares of U, (sample, mode)."""
        return self.vectors**2


def pool_of(kernel: np.ndarray, y: np.ndarray, noise: float = 0.0) -> Pool:
    """Return the decomposition of a kernel (sample, sample) with targets (sample, output).

    Eigenvalues that are not above rounding errors are set to 0.
    """
    values, vectors = np.linalg.eigh(kernel)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    least = _ROUNDING * len(values) * np.finfo(float).eps * max(values[0], 0.0)
    return Pool(np.where(values > least, values, 0.0), vectors, vectors.T @ y, noise)


def pool_with_modes(name: str, kernel: np.ndarray, y: np.ndarray, noise: float) -> Pool:
    """Return the decomposition of a kernel, from an argument of a name, that is not 0."""
    pool = pool_of(kernel, y, noise)
    if pool.rank == 0:
        raise InvalidInput(f"{name}: the kernel of these samples is 0, and has no modes.")
    return pool
