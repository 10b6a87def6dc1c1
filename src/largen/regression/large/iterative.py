"""Solving with kernel and noise by conjugate gradients, with a preconditioner of low rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import ceil, log
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from largen.arrays import floating, known
from largen.errors import InvalidInput, NumericalFailure
from largen.files import as_file, load_arrays, save_arrays
from largen.interrupts import check, interruptible, resume_hint
from largen.progress import reporter
from largen.regression.checks import training_targets
from largen.regression.large.operators import KernelOperator
from largen.regression.large.preconditioners import preconditioner
from largen.regression.large.processes import (
    any_of_processes,
    check_agreement,
    own_parts,
    sum_over_processes,
)
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
    shared: bool = False,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    throw: bool = True,
) -> KernelSolution:
    """Solve with a kernel matrix and noise by preconditioned conjugate gradients.

    Each step multiplies by the matrix, which is read from the disk or computed again by blocks; no
    array of its size is held in memory. The preconditioner is LLᵀ + σ_n², with L a pivoted
    partial Cholesky factor of K. For an operator LLᵀ is the Nyström approximation by samples drawn
    at random, so that the steps begin from a solution like that of
    :func:`largen.regression.large.low_rank_posterior`. The preconditioner removes the largest
    ``rank`` directions, and the number of steps depends on the rest of the spectrum.

    Parameters
    ----------
    matrix
        K, (sample, sample), symmetric: a NumPy array or any object that can be sliced like one,
        such as an array of :func:`stored_kernel`; or a :func:`kernel_operator`.
    y
        (sample,) or (sample, output).
    noise
        σ_n² > 0, added to the diagonal as it is.
    rank
        The rank of the preconditioner, 0 for none; it needs this number of columns of K and holds
        them in memory.
    rtol
        The residual at which to stop, relative to each output's |y|.
    max_steps
        At most so many.
    shared
        Whether the processes of ``jax.distributed`` share the products, each with blocks of its
        own. All of them make the same call and get the same solution; a matrix on disk must be seen
        by all. The preconditioner is computed by each.
    checkpoint
        A file for the state after each step, from which the same call resumes. The preconditioner
        is computed again.
    progress
        As in :func:`largen.train`; counts blocks of the products that are foreseen.
    throw
        Whether to raise if ``max_steps`` do not suffice.

    Raises
    ------
    NumericalFailure
        If the residual is not reached; the solution so far is its ``result``.
    InvalidInput
        For a checkpoint of another system, or processes that were given different systems.
    DamagedFile, CannotWrite
        If the checkpoint is not what was written, or cannot be written.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> K = lg.nngp_kernel(lg.mlp(1, "erf", bias_std=1.0), x)
    >>> result = lg.regression.large.solve_kernel(K, np.sin(x[:, 0]), noise=1e-3, rank=10)
    >>> bool(np.allclose((K + 1e-3 * np.eye(40)) @ result.weights, np.sin(x[:, 0])))
    True
    """
    matrix = _checked(matrix)
    samples = matrix.shape[0]
    throw, shared = flag("throw", throw), flag("shared", shared)
    targets = training_targets(y, samples)
    variance = real("noise", noise, above=0)
    rank, limit = integer("rank", rank, at_least=0), integer("max_steps", max_steps, at_least=1)
    goal = real("rtol", rtol, above=0)
    right = targets.reshape(samples, -1)
    rank = min(rank, samples)
    saved = None if checkpoint is None else _Checkpoint(checkpoint, matrix, right, variance, rank)
    goes_on = (
        "Nothing was saved; with checkpoint=… the same call would resume here."
        if saved is None
        else f"The state is in {saved.path}: the same call resumes from it."
    )
    with resume_hint(goes_on), reporter(progress, "solve_kernel") as report:
        solution, residual, steps = _conjugate_gradients(
            matrix, right, variance, rank, goal, limit, saved, report, shared
        )
    status = "ok" if residual <= 10 * goal else "not converged"
    result = KernelSolution(solution.reshape(targets.shape), steps, residual, status)
    if status != "ok" and throw:
        raise NumericalFailure(
            f"solve_kernel: residual {residual:.1e} after {steps} steps, wanted {goal:.0e}. Take "
            "a larger rank, more noise, or more max_steps.",
            result,
        )
    return result


def _checked(matrix: Any) -> Any:
    """Return a square matrix as a NumPy array; operators and arrays on disk as they are."""
    if not isinstance(matrix, KernelOperator) and not hasattr(matrix, "chunks"):
        known("matrix", matrix)
        matrix = np.asarray(floating("matrix", matrix, ndim=2))
    if isinstance(matrix, KernelOperator) and not matrix.symmetric:
        raise InvalidInput("matrix: wanted the kernel_operator of one set of samples, without x2.")
    shape = getattr(matrix, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidInput(f"matrix: wanted a square kernel matrix, got {shown(matrix)}.")
    return matrix


def _conjugate_gradients(matrix, right, variance, rank, goal, limit, saved, report, shared):
    """Return the solution, its residual and the number of steps."""
    size = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
    state = None if saved is None else saved.load()
    if shared:
        system = _identity_of(matrix, right, variance, rank)
        check_agreement("shared", system, goal, limit, None if state is None else state.steps)
    precondition = preconditioner(matrix, variance, rank)
    if state is None:
        z = precondition(right)
        state = _State(np.zeros_like(right), right.copy(), z, np.sum(right * z, axis=0), 0)
    solution, left, direction, energy, steps = state

    def product(v):
        def count(done, parts):
            total = _steps_foreseen(steps, goal, np.linalg.norm(left, axis=0) / size, limit)
            report(steps * parts + done, (total + 1) * parts)

        return _times(matrix, v, count, shared) + variance * v

    def unfinished() -> bool:
        wanted = bool(np.any(np.linalg.norm(left, axis=0) > goal * size))
        return any_of_processes(wanted) if shared else wanted

    while steps < limit and unfinished():
        ahead = product(direction)
        bend = np.sum(direction * ahead, axis=0)
        lengths = np.linalg.norm(direction, axis=0) * np.linalg.norm(ahead, axis=0)
        if np.any(bend < -1e-6 * lengths):  # beyond rounding in single precision
            raise InvalidInput(
                "matrix: wanted a positive semidefinite kernel, and with the noise it has a "
                "negative eigenvalue. Take more noise, if the kernel is an estimate."
            )
        step = energy / np.where(bend > 0, bend, 1)
        solution = solution + step * direction
        left = left - step * ahead
        z = precondition(left)
        fresh = np.sum(left * z, axis=0)
        direction = z + fresh / np.where(energy > 0, energy, 1) * direction
        energy, steps = fresh, steps + 1
        if saved is not None:
            saved.save(_State(solution, left, direction, energy, steps))
    residual = float(np.max(np.linalg.norm(product(solution) - right, axis=0) / size))
    return solution, residual, steps


def _steps_foreseen(steps: int, goal: float, residuals: np.ndarray, limit: int) -> int:
    """Return the number of steps if the residual keeps decreasing at its average rate."""
    worst = float(np.max(residuals))
    if worst <= goal:
        return steps
    gained = log(1 / worst) if worst < 1 else 0.0
    more = log(worst / goal) / gained * steps if gained and steps else 1
    return min(steps + ceil(min(more, limit)), limit)


def _times(
    matrix: Any, v: np.ndarray, count: Callable[[int, int], object], shared: bool
) -> np.ndarray:
    """Return K v in float64; ``count`` is called with the finished and all parts."""
    if isinstance(matrix, KernelOperator):
        return matrix.times(v, count, shared)
    rows, product = _rows_of_a_block(matrix), np.zeros(v.shape)
    begins = range(0, len(v), rows)
    if shared:
        begins = own_parts(begins)
    for done, i in enumerate(begins, 1):
        check()
        product[i : i + rows] = np.ascontiguousarray(matrix[i : i + rows], np.float64) @ v
        count(done, len(begins))
    return sum_over_processes(product) if shared else product


def _rows_of_a_block(matrix: Any) -> int:
    """Return the number of rows to read at a time: a chunk on disk, or what fits into a cache."""
    chunks = getattr(matrix, "chunks", None)
    return chunks[0] if chunks else max(_BLOCK // (8 * matrix.shape[0]), 1)


class _State(NamedTuple):
    """The state of conjugate gradients; all but the last are (sample, output)."""

    solution: np.ndarray
    left: np.ndarray
    direction: np.ndarray
    energy: np.ndarray
    steps: int


def _identity_of(matrix: Any, right: np.ndarray, variance: float, rank: int) -> str:
    """Return the text that identifies a system."""
    if isinstance(matrix, KernelOperator):
        of_matrix = matrix.identity.encode()
    else:  # two rows distinguish kernels, and the whole may be on disk
        of_matrix = b"".join(np.asarray(matrix[i]).tobytes() for i in (0, -1))
    digest = hashlib.sha256(f"{right.shape} {variance!r} {rank}".encode())
    digest.update(of_matrix + np.ascontiguousarray(right).tobytes())
    return digest.hexdigest()


class _Checkpoint:
    """A file with the state after a step, and the text that identifies the system."""

    def __init__(self, path, matrix, right, variance, rank):
        self.path: Path = as_file("checkpoint", path)
        self._identity = _identity_of(matrix, right, variance, rank)

    def save(self, state: _State) -> None:
        save_arrays(self.path, state._asdict() | {"identity": self._identity})

    def load(self) -> _State | None:
        held = load_arrays(self.path)
        if held is None:
            return None
        if str(held.pop("identity", None)) != self._identity:
            raise InvalidInput(
                f"checkpoint: {str(self.path)!r} is not of this matrix with these targets, noise "
                "and rank. Remove it or name another file."
            )
        *arrays, energy, steps = (held[name] for name in _State._fields)
        solution, left, direction = arrays
        return _State(solution, left, direction, energy, int(steps))
