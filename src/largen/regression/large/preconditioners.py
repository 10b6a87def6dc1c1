"""Preconditioners of low rank, (LLᵀ + σ_n²)⁻¹ with LLᵀ ≈ K."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from largen.interrupts import check
from largen.regression.large.operators import KernelOperator

_SEED = 0  # of the draw of landmarks, the same when a solution is resumed

_CUT = 1e-12  # eigenvalues below this fraction of the largest count as rounding errors


def preconditioner(matrix: Any, variance: float, rank: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return v -> (LLᵀ + σ_n²)⁻¹v, with L of a matrix by Cholesky and of an operator by Nyström."""
    if rank == 0:
        return lambda v: v / variance
    of_operator = isinstance(matrix, KernelOperator)
    root = nystroem_root(matrix, rank) if of_operator else partial_cholesky(matrix, rank)
    if not root.shape[1]:
        return lambda v: v / variance
    inner = cho_factor(variance * np.eye(root.shape[1]) + root.T @ root)
    return lambda v: (v - root @ cho_solve(inner, root.T @ v, check_finite=False)) / variance


def nystroem_root(operator: KernelOperator, landmarks: int) -> np.ndarray:
    """Return L, (sample, mode), with LLᵀ = K_nm K_mm⁻¹ K_mn for m random samples."""
    samples = operator.shape[0]
    chosen = np.random.default_rng(_SEED).choice(samples, min(landmarks, samples), replace=False)
    scaled = inverse_root(operator.within(chosen))
    root = operator.columns(chosen)
    for rows in np.array_split(np.arange(samples), -(-samples // 4096)):  # in place
        root[rows, : scaled.shape[1]] = root[rows] @ scaled
    return root[:, : scaled.shape[1]]


def partial_cholesky(matrix: Any, rank: int) -> np.ndarray:
    """Return L, (sample, rank or less), with LLᵀ ≈ K, by Cholesky with diagonal pivots."""
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


def inverse_root(matrix: np.ndarray) -> np.ndarray:
    """Return R with RRᵀ = K⁻¹, (landmark, mode), without modes that are rounding errors."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _CUT * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])
