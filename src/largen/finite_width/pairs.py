"""Averages of φφ for pairs of inputs and their derivatives in the kernel.

For variances q₁, q₂ and covariance c of two Gaussians u and v, k = E[φ(u)φ(v)] and, by Price's
theorem, k_c = E[φ'φ'], k_1 = ½E[φ''(u)φ(v)] and so on. A smooth φ is expanded in Hermite
polynomials: with a_k(q) = E[φ(√q z) h_k(z)] and ρ = c/√(q₁q₂),

    k = Σ a_k a_k ρᵏ,   k_c = Σ k a_k a_k ρ^(k−1)/√(q₁q₂),
    k_1 = (1/2q₁) Σ √((k+1)(k+2)) a_{k+2}(q₁) a_k(q₂) ρᵏ,  …

from one table of coefficients for all pairs, which holds also where inputs coincide. A φ with
kinks is integrated between them, and its derivatives are averages with Hermite polynomials of
(u, v), which need no derivative of φ; for φ(z) = a₊z₊ + a₋z₋ there are closed forms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.errors import InvalidInput, NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.hermite_series import basis
from largen.expectations.nodes import derivatives_in_variance, kinks_of, nodes_for, values
from largen.expectations.quadrature import half_nodes
from largen.finite_width.grids import between_kinks
from largen.finite_width.orthants import slopes_of

_MOST = 360.0  # variance up to which the refined nodes resolve a series
_UNRESOLVED = 1e-9


class PairDerivatives(NamedTuple):
    """k(q₁, q₂, c) of all pairs of inputs with derivatives, (input, input) each.

    Derivatives in q₁ belong to the first index. On the diagonal, where both inputs are one,
    ``value`` is E[f²], ``first`` and ``second`` are its derivatives in the variance, (input,), and
    the others are 0.
    """

    value: np.ndarray
    c: np.ndarray
    q1: np.ndarray
    cc: np.ndarray
    q1q1: np.ndarray
    q1q2: np.ndarray
    q1c: np.ndarray
    first: np.ndarray
    second: np.ndarray


def pair_derivatives(
    phi: ActivationFunction, kernel: np.ndarray
) -> tuple[PairDerivatives, PairDerivatives]:
    """Return the derivatives for φ and for φ'."""
    q = np.diagonal(kernel)
    nodes = nodes_for(phi, q)
    both = values(phi, np.sqrt(q) * nodes.z)
    by_variance = [derivatives_in_variance(f**2, nodes, q, 2) for f in both]
    slopes = slopes_of(phi)
    if not kinks_of(phi):
        pairs = _series(phi, kernel, by_variance)
    elif slopes is not None:
        pairs = _of_degree_one(slopes, phi, kernel)
    else:
        pairs = _between_kinks(phi, kernel)
    first, second = (
        _with_diagonal(table, diagonal) for table, diagonal in zip(pairs, by_variance, strict=True)
    )
    return first, second


def _with_diagonal(table: list[np.ndarray], diagonal: np.ndarray) -> PairDerivatives:
    value, c, q1, cc, q1q1, q1q2, q1c = (
        np.where(np.eye(len(entry)) == 1, 0, entry) for entry in table
    )
    value = value + np.diag(diagonal[0])
    return PairDerivatives(value, c, q1, cc, q1q1, q1q2, q1c, diagonal[1], diagonal[2])


def _series(
    phi: ActivationFunction, kernel: np.ndarray, by_variance: list[np.ndarray]
) -> list[list]:
    q = np.diagonal(kernel)
    if q.max() > _MOST:
        raise NumericalFailure(
            f"the variance of a layer is {q.max():.3g}: Hermite series of {phi} are resolved up to "
            f"{_MOST:g}. Take a smaller weight_std, or smaller inputs."
        )
    refined = bool(q.max() > 20)
    z, weights = half_nodes(np.dtype(np.float64), refined)
    even, odd = basis(np.dtype(np.float64), refined)
    x = z[:, None] * np.sqrt(q)
    tables = []
    for plus, minus, diagonal in zip(values(phi, x), values(phi, -x), by_variance, strict=True):
        root = np.sqrt(weights)[:, None]
        a = np.empty((2 * len(even), len(q)))
        a[0::2] = even @ (root * (plus + minus) / 2)
        a[1::2] = odd @ (root * (plus - minus) / 2)
        largest = np.abs(a).max()
        terms = int(np.flatnonzero(np.abs(a).max(axis=1) > 1e-16 * largest)[-1]) + 1
        a[terms:] = 0  # rounding, which factors of k would enlarge
        missing = np.abs(np.sum(a**2, axis=0) - diagonal[0]).max()
        if missing > _UNRESOLVED * diagonal[0].max():
            raise NumericalFailure(
                f"the Hermite series of {phi} misses {missing:.1g} of its second moment at "
                "these variances. Take smaller ones or a smoother function."
            )
        tables.append(_sum_series(a[: terms + 4], q, kernel))
    return tables


def _sum_series(a: np.ndarray, q: np.ndarray, kernel: np.ndarray) -> list[np.ndarray]:
    root = np.sqrt(np.outer(q, q))
    rho = np.clip(kernel / root, -1, 1)
    terms = len(a) - 4
    k = np.arange(terms, dtype=np.float64)
    powers = np.cumprod([np.ones_like(rho), *[rho] * (terms - 1)], axis=0)
    coefficients = a[:terms]

    def total(factor, first, second, lower=0):
        """Σ_k factor_k first_k(q₁) second_k(q₂) ρ^(k − lower)."""
        left = factor[lower:, None] * first[lower:]
        return np.einsum("ki,kj,kij->ij", left, second[lower:], powers[: terms - lower])

    def shifted(n):
        return a[n : n + terms]

    def rising(n, start=1):
        return np.sqrt(np.prod([k + start + i for i in range(n)], axis=0))

    one = np.ones_like(k)
    inverse = 1 / q[:, None]
    return [
        total(one, coefficients, coefficients),
        total(k, coefficients, coefficients, 1) / root,
        total(rising(2), shifted(2), coefficients) * inverse / 2,
        total(k * (k - 1), coefficients, coefficients, 2) / root**2,
        total(rising(4), shifted(4), coefficients) * inverse**2 / 4,
        total((k + 1) * (k + 2), shifted(2), shifted(2)) / (4 * root**2),
        total((k + 1) * rising(2, 2), shifted(3), shifted(1)) * inverse / (2 * root),
    ]


def _of_degree_one(
    slopes: tuple[float, float], phi: ActivationFunction, kernel: np.ndarray
) -> list[list]:
    """Return both tables for φ(z) = a₊z₊ + a₋z₋ in closed form.

    With θ the angle of two inputs (Cho and Saul 2009) and φ'' = (a₊ − a₋)δ,

        k_c = (a₊² + a₋²)/2 − (a₊ − a₋)²θ/2π,   k_cc = (a₊ − a₋)²/(2π√det),

    and derivatives in variances follow, since k is of degree one in the size of each input.
    """
    _refuse_parallel(phi, kernel)
    off = ~np.eye(len(kernel), dtype=bool)
    q = np.diagonal(kernel)
    q1, q2 = q[:, None], q[None, :]
    c = np.where(off, kernel, 0)
    det = q1 * q2 - c**2
    root = np.sqrt(det)
    theta = np.arctan2(root, c)
    bend, both = slopes[0] - slopes[1], slopes[0] ** 2 + slopes[1] ** 2
    k_c = both / 2 - bend**2 * theta / (2 * np.pi)
    k = bend**2 * root / (2 * np.pi) + c * k_c
    k_cc = bend**2 / (2 * np.pi * root)
    k_ccc = k_cc * c / det
    k_1, k_2 = (k - c * k_c) / (2 * q1), (k - c * k_c) / (2 * q2)
    k_1c, k_2c = -c * k_cc / (2 * q1), -c * k_cc / (2 * q2)
    k_1cc, k_2cc = -(k_cc + c * k_ccc) / (2 * q1), -(k_cc + c * k_ccc) / (2 * q2)
    k_11, k_12 = -(k_1 + c * k_1c) / (2 * q1), (k_2 - c * k_2c) / (2 * q1)
    k_11c = -(2 * k_1c + c * k_1cc) / (2 * q1)
    k_12c = -c * k_2cc / (2 * q1)
    return [[k, k_c, k_1, k_cc, k_11, k_12, k_1c], [k_c, k_cc, k_1c, k_ccc, k_11c, k_12c, k_1cc]]


def _refuse_parallel(phi: ActivationFunction, kernel: np.ndarray) -> None:
    q = np.diagonal(kernel)
    det = np.triu(np.outer(q, q) - kernel**2, 1) + np.tril(np.outer(q, q))
    parallel = np.argwhere(det < 1e-10 * np.outer(q, q))
    if parallel.size:
        i, j = parallel[0]
        raise InvalidInput(
            f"x: samples {i} and {j} are parallel behind a layer, where the second "
            f"derivatives of the kernel of {phi}, which has kinks, diverge. Leave one out."
        )


def _between_kinks(phi: ActivationFunction, kernel: np.ndarray) -> list[list]:
    _refuse_parallel(phi, kernel)
    P = len(kernel)
    tables = [[np.zeros((P, P)) for _ in range(7)] for _ in range(2)]
    for i in range(P):
        for j in range(i + 1, P):
            pair = [i, j]
            block = kernel[np.ix_(pair, pair)]
            grid = between_kinks(kinks_of(phi), block)
            inverse = np.linalg.inv(block)
            y = grid.points @ inverse
            for table, f in zip(tables, values(phi, grid.points), strict=True):
                weighted = f[:, 0] * f[:, 1] * grid.weights
                centre = weighted.sum()
                weighted = weighted - centre * grid.weights
                table[0][i, j] = table[0][j, i] = centre
                for row, (a, b) in ((0, (i, j)), (1, (j, i))):
                    other = 1 - row
                    orders = [(row, other), (row, row), (row, other, row, other), (row,) * 4,
                              (row, row, other, other), (row, row, row, other)]  # fmt: skip
                    factors = [1.0, 0.5, 1.0, 0.25, 0.25, 0.5]
                    for n, (order, factor) in enumerate(zip(orders, factors, strict=True), 1):
                        table[n][a, b] = factor * np.sum(weighted * hermite(y, inverse, order))
    return tables


def hermite(y: np.ndarray, inverse: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Return the polynomial of y = S⁻¹u with E[∂_i∂_j… f] = E[f · polynomial], two or four ∂."""
    if len(order) == 2:
        i, j = order
        return y[:, i] * y[:, j] - inverse[i, j]
    i, j, k, l = order
    polynomial = y[:, i] * y[:, j] * y[:, k] * y[:, l]
    for (a, b), (c, d) in (((i, j), (k, l)), ((i, k), (j, l)), ((i, l), (j, k))):
        polynomial = (
            polynomial - inverse[a, b] * y[:, c] * y[:, d] - inverse[c, d] * y[:, a] * y[:, b]
        )
        polynomial = polynomial + inverse[a, b] * inverse[c, d]
    return polynomial
