"""Factorisation of kernel matrices for linear solves, and messages for singular ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float
from numpy.linalg import LinAlgError
from scipy.linalg import cho_solve, cholesky
from scipy.linalg import solve_triangular as solve_lower

from largen.interrupts import check

# Above this condition number predictions would keep fewer than four digits of float64.
LARGEST_CONDITION = 1e12
PANEL_FROM, PANEL = 4096, 1024  # rows from which panels are used, and rows of a panel
_PARALLEL = 1e-12  # rounding of cosines, and of rows that are multiples of one another
_ROUNDS = 16  # of power and of inverse iteration: extreme eigenvalues to a few percent


class Factor(NamedTuple):
    """A root R of the inverse of A = K + noise, A⁻¹ = RRᵀ, in NumPy, so that it can be pickled."""

    # The Cholesky factor L of A, R = L⁻ᵀ; or R = U Λ^(−½) itself, without the eigenvectors that are
    # lost in rounding, where A is singular.
    root: np.ndarray
    singular: bool  # whether A is singular, and root therefore the second of the two
    condition: float  # estimated λ_max/λ_min; for a singular A its exact value, or infinity
    rank: int  # number of eigenvalues above λ_max · 1e-12
    log_determinant: float  # log det A; −∞ if singular
    least: float = 0.0  # the least eigenvalue of a singular A, which may be negative; 0 otherwise

    def solve(self, columns: Float[np.ndarray, "sample column"]) -> np.ndarray:
        """Return A⁻¹ times columns, by SciPy."""
        if self.singular:
            return self.root @ (self.root.T @ columns)
        return cho_solve((self.root, True), columns, check_finite=False)


def whiten(
    root: Float[Array, "sample mode"], singular: bool, columns: Float[Array, "sample column"]
) -> Float[Array, "mode column"]:
    """Return Rᵀ times columns; the products of whitened columns are bᵀA⁻¹b."""
    return root.T @ columns if singular else solve_triangular(root, columns, lower=True)


def solve(
    root: Float[Array, "sample mode"], singular: bool, columns: Float[Array, "sample column"]
) -> Float[Array, "sample column"]:
    """Return A⁻¹ times columns; the pseudo-inverse where A is singular."""
    white = whiten(root, singular, columns)
    return root @ white if singular else solve_triangular(root, white, lower=True, trans=1)


def factorise(matrix: Float[np.ndarray, "sample sample"]) -> Factor:
    """Factorise by Cholesky, or if singular by eigenvectors; SciPy needs no compilation."""
    try:
        root = cholesky_factor(matrix)
    except LinAlgError:
        root, condition = matrix, float("inf")
    else:
        condition = _condition(matrix, root)
    if condition < LARGEST_CONDITION:
        log_determinant = 2 * float(np.sum(np.log(np.diagonal(root))))
        return Factor(root, False, condition, len(matrix), log_determinant)
    values, vectors = np.linalg.eigh(matrix)
    largest, smallest = float(values[-1]), float(values[0])
    kept = values > largest / LARGEST_CONDITION
    condition = largest / smallest if smallest > 0 else float("inf")
    root = vectors[:, kept] / np.sqrt(values[kept])
    return Factor(root, True, condition, int(kept.sum()), -float("inf"), smallest)


def cholesky_factor(matrix: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor; large matrices by panels, between which Ctrl-C interrupts."""
    n = len(matrix)
    if n <= PANEL_FROM:
        return cholesky(matrix, lower=True, check_finite=False)
    root = np.tril(matrix)
    for start in range(0, n, PANEL):
        end = min(start + PANEL, n)
        block, below = slice(start, end), slice(end, n)
        root[block, block] = cholesky(root[block, block], lower=True, check_finite=False)
        if end < n:
            panel = solve_lower(
                root[block, block], root[below, block].T, lower=True, check_finite=False
            ).T
            root[below, block] = panel
            for first in range(end, n, PANEL):
                rows = slice(first, min(first + PANEL, n))
                left = slice(end, rows.stop)
                root[rows, left] -= root[rows, block] @ root[left, block].T
                check()
    return np.tril(root)


def _condition(matrix: np.ndarray, root: np.ndarray) -> float:
    """Estimate λ_max/λ_min by power iteration with A and with its inverse."""
    start = np.random.default_rng(0).standard_normal(len(matrix))  # generic, but fixed
    ahead = back = start / np.linalg.norm(start)
    for _ in range(_ROUNDS):
        ahead = matrix @ ahead
        back = cho_solve((root, True), back, check_finite=False)
        ahead, back = ahead / np.linalg.norm(ahead), back / np.linalg.norm(back)
    largest = np.linalg.norm(matrix @ ahead)
    return float(largest * np.linalg.norm(cho_solve((root, True), back, check_finite=False)))


def explain(
    what: str,  # the name of the kernel
    factor: Factor,  # the factorization of kernel plus noise, which is singular
    # kernel, noise: the kernel, and the variance of the noise, one number or (sample,).
    kernel: np.ndarray,
    noise: Any,
    # Weights of the samples, which have divided the noise, if there are any.
    weights: np.ndarray | None,
    # The inputs, if known, which are searched for rows that are equal for the network.
    x: np.ndarray | None = None,
) -> str:
    """Return a message that describes a singular matrix and its remedies."""
    cause = "Pass" if x is None else cause_of(x, kernel, "pass")
    count, most = len(kernel), float(np.max(noise))
    # Beyond the noise there is, so that no eigenvalue is negative, and a condition below 1e11.
    more = max(-2 * factor.least, 0.0) + (float(np.trace(kernel)) + count * most) / 1e10
    heaviest = 1.0 if weights is None else float(weights.max())
    enough = f"{rounded_up(heaviest * (most + more))} is enough" if more else "any will do"
    return (
        f"the {what} of {count} training inputs is singular to working precision: rank "
        f"{factor.rank} of {count}, condition number {factor.condition:.1e} (wanted below "
        f"{LARGEST_CONDITION:.0e}). {cause} a larger noise=, a variance that is added to the "
        f"diagonal as it is; {enough}. throw=False gives the pseudo-inverse."
    )


def rounded_up(number: float) -> str:
    """Return a positive number with two digits, which is not less than the number."""
    text = f"{number:.1e}"
    return text if float(text) >= number else f"{number * 1.05:.1e}"


def cause_of(x: np.ndarray, matrix: np.ndarray, otherwise: str) -> str:
    """Return why the kernel of these inputs is singular, and what to do, at last ``otherwise``."""
    pairs = equal_rows(x)
    if pairs:
        return f"Rows {_shown(pairs)} of x are equal: drop the duplicates, or {otherwise}"
    remedy = f"give it biases (bias_std=), drop such rows, or {otherwise}"
    zero = [i for i, k in enumerate(np.diagonal(matrix)) if k == 0]
    if zero:
        rows = f"row{'s' * (len(zero) > 1)} {_shown(zero)}"
        return f"The kernel of {rows} of x is zero, since the network maps it to 0: {remedy}"
    flat = x.reshape(len(x), -1).astype(np.float64)
    length = np.sqrt(np.mean(flat**2, axis=1))
    root = np.sqrt(np.diagonal(matrix))
    cosine = matrix / (root[:, None] * root)
    pairs = []
    for i, j in np.argwhere(np.triu(np.abs(cosine) > 1 - _PARALLEL, 1)):
        one, two = flat[i] * length[j], np.sign(cosine[i, j]) * flat[j] * length[i]
        if np.abs(one - two).max() <= _PARALLEL * length[i] * length[j]:
            pairs.append((int(i), int(j)))
    if not pairs:
        return f"No two rows of x are equal, but some are too close for this kernel: {otherwise}"
    if all((flat[i] == -flat[j]).all() for i, j in pairs):
        return (
            f"Rows {_shown(pairs)} of x are opposite, and this network without biases is odd, "
            f"f(−x) = −f(x), so that it cannot distinguish them: {remedy}"
        )
    return (
        f"Rows {_shown(pairs)} of x are multiples of one another, and so are the outputs of this "
        f"network without biases: {remedy}"
    )


def _shown(rows: list[int] | list[tuple[int, int]]) -> str:
    """Return the first few rows, or pairs of them, in words."""
    first = [f"{each[0]} and {each[1]}" if isinstance(each, tuple) else str(each) for each in rows]
    return ", ".join(first[:4]) + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")


def equal_rows(x: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of indices of equal rows, the smaller index first."""
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    firsts = first[inverse.reshape(-1)]
    return [(int(f), i) for i, f in enumerate(firsts) if f != i]
