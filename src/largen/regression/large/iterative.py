"""Solving with kernel and noise by conjugate gradients, with a preconditioner of low rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg import cho_factor, cho_solve

from largen.arrays import floating, known
from largen.errors import InvalidInput, NumericalFailure
from largen.interrupts import check, interruptible
from largen.regression.checks import training_targets
from largen.results import brief, fields_over, in_notebooks, save_result
from largen.scalars import flag, integer, real
from largen.text import shown

_BLOCK = 2**23  # bytes of rows that are converted to float64 at a time


class KernelSolution(NamedTuple):
    """The solution of (K + σ_n²)α = y.

    Attributes
    ----------
    weights
        α, of the shape of y; the means are K*α.
    steps
        Number of products with K.
    residual
        |(K + σ_n²)α − y|/|y|, the largest over outputs, computed from a separate product with K.
    status
        ``"ok"`` or ``"not converged"``.
    """

    weights: np.ndarray
    steps: int
    residual: float
    status: str

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(weights=("sample",))
    save = save_result


@interruptible(at_once=True)
def solve_kernel(
    matrix: Any,
    y: Any,
    *,
    noise: float,
    rank: int = 200,
    rtol: float = 1e-8,
    max_steps: int = 1000,
    throw: bool = True,
) -> KernelSolution:
    """Solve with a kernel matrix and noise by conjugate gradients; the matrix may be on disk.

    Each step multiplies by the matrix, read by blocks of rows; no array of its size is held in
    memory. The preconditioner is LLᵀ + σ_n², with L a pivoted partial Cholesky factor of K: it
    removes the largest ``rank`` directions, so that the number of steps depends on the rest of the
    spectrum.

    Parameters
    ----------
    matrix
        K, (sample, sample), symmetric: a NumPy array or any object that can be sliced like one,
        such as an array of :func:`stored_kernel`.
    y
        (sample,) or (sample, output).
    noise
        σ_n² > 0, added to the diagonal as it is.
    rank
        The rank of the preconditioner, 0 for none; it needs this number of columns of K.
    rtol
        The residual at which to stop, relative to each output's |y|.
    max_steps
        At most so many.
    throw
        Whether to raise if ``max_steps`` do not suffice.

    Raises
    ------
    NumericalFailure
        If the residual is not reached; the solution so far is its ``result``.
    InvalidInput
        For a matrix that is not square, targets that do not fit, a noise that is not positive.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> K = lg.nngp(lg.mlp(1, "erf", bias_std=1.0), x)
    >>> found = lg.solve_kernel(K, np.sin(x[:, 0]), noise=1e-3, rank=10)
    >>> bool(np.allclose((K + 1e-3 * np.eye(40)) @ found.weights, np.sin(x[:, 0])))
    True
    """
    if isinstance(matrix, (np.ndarray, jax.Array)):
        known("matrix", matrix)
        matrix = np.asarray(floating("matrix", matrix, ndim=2))
    shape = getattr(matrix, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidInput(f"matrix: wanted a square kernel matrix, got {shown(matrix)}.")
    throw = flag("throw", throw)
    targets = training_targets(y, shape[0])
    variance = real("noise", noise, above=0)
    rank, limit = integer("rank", rank, at_least=0), integer("max_steps", max_steps, at_least=1)
    goal = real("rtol", rtol, above=0)
    right = targets.reshape(shape[0], -1)
    size = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)

    rows = _rows_of_a_block(matrix)

    def product(v):
        parts = []
        for i in range(0, len(v), rows):
            check()
            parts.append(np.asarray(matrix[i : i + rows], np.float64) @ v)
        return np.concatenate(parts) + variance * v

    precondition = _preconditioner(matrix, variance, min(rank, shape[0]))
    solution, left = np.zeros_like(right), right.copy()
    z = precondition(left)
    direction, energy, steps = z.copy(), np.sum(left * z, axis=0), 0
    while np.any(np.linalg.norm(left, axis=0) > goal * size) and steps < limit:
        ahead = product(direction)
        bend = np.sum(direction * ahead, axis=0)
        step = energy / np.where(bend > 0, bend, 1)
        solution += step * direction
        left -= step * ahead
        z = precondition(left)
        fresh = np.sum(left * z, axis=0)
        direction = z + fresh / np.where(energy > 0, energy, 1) * direction
        energy, steps = fresh, steps + 1
    residual = float(np.max(np.linalg.norm(product(solution) - right, axis=0) / size))
    status = "ok" if residual <= 10 * goal else "not converged"
    found = KernelSolution(solution.reshape(targets.shape), steps, residual, status)
    if status != "ok" and throw:
        raise NumericalFailure(
            f"solve_kernel: residual {residual:.1e} after {steps} steps, wanted {goal:.0e}. Take "
            "a larger rank, more noise, or more max_steps.",
            found,
        )
    return found


def _rows_of_a_block(matrix: Any) -> int:
    """Return the number of rows to read at a time: a chunk on disk, or what fits into a cache."""
    chunks = getattr(matrix, "chunks", None)
    return chunks[0] if chunks else max(_BLOCK // (8 * matrix.shape[0]), 1)


def _preconditioner(matrix, variance: float, rank: int):
    """Return v -> (LLᵀ + σ_n²)⁻¹v by Woodbury's identity."""
    root = partial_cholesky(matrix, rank)
    if not root.shape[1]:
        return lambda v: v / variance
    inner = cho_factor(variance * np.eye(root.shape[1]) + root.T @ root)
    return lambda v: (v - root @ cho_solve(inner, root.T @ v, check_finite=False)) / variance


def partial_cholesky(matrix: Any, rank: int) -> np.ndarray:
    """Return L of shape (sample, rank) with LLᵀ ≈ K, by Cholesky with diagonal pivots.

    L has fewer columns if the remainder of K is within rounding errors.
    """
    samples = matrix.shape[0]
    diagonal = np.concatenate(
        [
            np.diagonal(np.asarray(matrix[i : i + 512, i : i + 512], np.float64))
            for i in range(0, samples, 512)
        ]
    ).copy()
    largest, root = diagonal.max(initial=0), np.zeros((samples, rank))
    for k in range(rank):
        check()
        pivot = int(np.argmax(diagonal))
        if diagonal[pivot] <= 1e-13 * largest:
            return root[:, :k]
        column = np.asarray(matrix[pivot], np.float64) - root[:, :k] @ root[pivot, :k]
        root[:, k] = column / np.sqrt(diagonal[pivot])
        diagonal = np.maximum(diagonal - root[:, k] ** 2, 0)
    return root
