"""The variance of the targets' noise, or the time of training, from one eigendecomposition.

With weights w_i of P samples (their noise has the variance σ²/w_i) and D = diag w, the matrix

    D^½ K D^½ = U Λ Uᵀ,   z = Uᵀ D^½ y

gives every function of σ² below in O(P), or O(P²) for leave-one-out errors. A sample of
weight w counts as w equal samples. With C outputs and W = Σ w, up to constants,

    −2 log p = Σ_k |z_k|²/(λ_k + σ²) + C [Σ_k log(λ_k + σ²) + (W − P) log σ²]

is the marginal likelihood (Bahri and Hanin, Les Houches lectures, eq. (33)), and with

    s_i = σ² Σ_k U_ik²/(λ_k + σ²),   y_i − f_i = σ² w_i^(−½) Σ_k U_ik z_k/(λ_k + σ²),

the leave-one-out error of one copy of sample i is (Wahba 1990, §4.2)

    e_i = (y_i − f_i)/(1 − (1 − s_i)/max(w_i, 1)).

After a time t of gradient flow the residual is r_k z_k with r_k = e^(−λ_k t/W), and generalised
cross-validation estimates the squared error as W Σ_k |r_k z_k|²/(W − P + Σ_k r_k)². At late times
one mode is left of the residual, and the estimate is the square of one random number: small by
chance, however large the error. It is an average over about n = (Σ_k r_k²)²/Σ_k r_k⁴ squares
(Satterthwaite, Biometrics Bulletin 2, 1946). Where these are few, its 95 % upper limit is
minimised, by the law χ²_n.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh_tridiagonal, get_lapack_funcs
from scipy.optimize import minimize_scalar
from scipy.special import gammaincinv

from largen.errors import NumericalFailure
from largen.scalars import SMALLEST

_SMALLEST = 1e-10  # of the largest eigenvalue: below, the kernel is singular in float64
_LARGEST = 1e3  # of the largest eigenvalue, or of the mean square of the targets
_LONGEST = 1e290  # longest time scale
_TRIED = 53  # points of a logarithmic grid; the best one's neighbours bracket the minimum

_FEW, _BY_CHANCE = 10.0, 0.05  # squares in an average, and probability to be below its limit

_COLUMNS = 64  # that are multiplied by all eigenvectors together

Matrix = np.ndarray
Cost = Callable[[np.ndarray], np.ndarray]  # of several variances or times, (tried,)


def best_noise(kernel: Matrix, y: Matrix, weights: Matrix | None = None, *, by: str) -> float:
    """Return the noise of the largest ``"likelihood"`` or the least ``"leave-one-out"`` error.

    ``kernel``: K or Θ of P samples; ``y``: (sample, output); ``weights``: > 0, (sample,). Searched
    between 1e-10 and 1e3 times the largest eigenvalue or mean square of the targets, whichever is
    larger; for a kernel of zeros, within a factor of 1e3 of this mean square.
    """
    w = np.ones(len(y)) if weights is None else weights
    cost, largest = CRITERIA[by](kernel, y, w)
    power = float(np.mean(y**2))
    if largest > SMALLEST:
        ends = _SMALLEST * largest, _LARGEST * max(largest, power)
    else:  # the kernel is zero, and all of the targets is noise
        size = power if power > SMALLEST else 1.0
        ends = size / _LARGEST, size * _LARGEST
    return _minimum(cost, *ends)


def best_time(kernel: Matrix, y: Matrix, weights: Matrix | None = None) -> float:
    """Return the time η₀t of gradient flow with the least error by generalised cross-validation.

    Times at which few modes are left have its 95 % upper limit instead. Searched between 1e-3 and
    1e10 times the time scale of the fastest mode.
    """
    w = np.ones(len(y)) if weights is None else weights
    values, z = _spectrum(kernel, y, w)
    fastest = w.sum() / max(values[-1], np.finfo(float).tiny)
    if fastest > _LONGEST:
        raise NumericalFailure(
            f"time: the largest eigenvalue of the tangent kernel is {values[-1]:.1g}, and 'auto' "
            "finds no time within which anything is learned. Scale the inputs to a mean square of "
            "order one."
        )
    return _minimum(_cross_validation(values, z, w), 1e-3 * fastest, 1e10 * fastest)


def _cross_validation(values: Matrix, z: Matrix, w: Matrix) -> Cost:
    power, total = np.sum(z**2, axis=1), w.sum()
    repeats = max(total - len(w), 0.0)
    # Without repeats only ratios of the r_k matter, which remain defined when all are below 1e-308.
    above = values if repeats else values - values[0]

    def error(times: np.ndarray) -> np.ndarray:
        left = np.exp(-above * times[:, None] / total)
        estimate = total * (left**2 @ power) / (repeats + np.sum(left, axis=1)) ** 2
        squares = (repeats + np.sum(left**2, axis=1)) ** 2 / (repeats + np.sum(left**4, axis=1))
        few = squares < min(_FEW, total / 2)
        upper = estimate * squares / (2 * gammaincinv(squares / 2, _BY_CHANCE))
        return np.where(few, upper, estimate)

    return error


def _weighted(kernel: Matrix, y: Matrix, w: Matrix) -> tuple[Matrix, Matrix]:
    """Return D^½ K D^½ and D^½ y."""
    root = np.sqrt(w)
    return root[:, None] * kernel * root, root[:, None] * y


def _spectrum(kernel: Matrix, y: Matrix, w: Matrix) -> tuple[Matrix, Matrix]:
    """Return Λ and z without U: with tridiagonal T = Qᵀ D^½ K D^½ Q = V Λ Vᵀ, z = Vᵀ Qᵀ D^½ y."""
    matrix, turned = _weighted(kernel, y, w)
    if len(matrix) == 1:
        return np.maximum(matrix[0], 0), turned
    tridiagonal, reflect, size = get_lapack_funcs(("sytrd", "ormqr", "sytrd_lwork"), (matrix,))
    length = int(size(len(matrix), lower=1)[0])
    reflectors, diagonal, off_diagonal, scales, _ = tridiagonal(matrix, lower=1, lwork=length)
    options = {"lwork": 64 * turned.shape[1]}
    turned[1:], *_ = reflect("L", "T", reflectors[1:, :-1], scales, turned[1:], **options)
    values, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    return np.maximum(values, 0), vectors.T @ turned


def _likelihood(kernel: Matrix, y: Matrix, w: Matrix) -> tuple[Cost, float]:
    """Return −2 log p up to a constant, and the largest eigenvalue."""
    values, z = _spectrum(kernel, y, w)
    power, outputs, repeats = np.sum(z**2, axis=1), z.shape[1], w.sum() - len(w)

    def cost(noise: np.ndarray) -> np.ndarray:
        total = values + noise[:, None]
        logs = np.sum(np.log(total), axis=1) + repeats * np.log(noise)
        return np.sum(power / total, axis=1) + outputs * logs

    return cost, float(values[-1])


def _leave_one_out(kernel: Matrix, y: Matrix, w: Matrix) -> tuple[Cost, float]:
    """Return Σ w e², and the largest eigenvalue."""
    matrix, targets = _weighted(kernel, y, w)
    values, vectors = np.linalg.eigh(matrix)
    values, z = np.maximum(values, 0), vectors.T @ targets
    squares, copies = vectors**2, np.maximum(w, 1.0)

    def few(noise: np.ndarray) -> np.ndarray:
        total = values[:, None] + noise
        columns = (z[:, None] / total[..., None]).reshape(len(z), -1)
        weighted = (vectors @ columns).reshape(len(z), len(noise), -1)  # √w (y − f)/σ²
        unseen = squares @ (1 / total)  # s/σ²
        alone = ((copies - 1) / copies)[:, None] / noise + unseen / copies[:, None]
        return np.sum((weighted / alone[..., None]) ** 2, axis=(0, 2))

    def cost(noise: np.ndarray) -> np.ndarray:
        together = max(_COLUMNS // z.shape[1], 1)
        starts = range(0, len(noise), together)
        return np.concatenate([few(noise[start : start + together]) for start in starts])

    return cost, float(values[-1])


CRITERIA = {"likelihood": _likelihood, "leave-one-out": _leave_one_out}


def _minimum(cost: Cost, low: float, high: float) -> float:
    """Return the minimiser of a function of a positive number, to three digits.

    Rounding makes it independent of the order of summation, as of repeated or weighted samples.
    """
    logs = np.linspace(np.log(low), np.log(high), _TRIED)
    costs = cost(np.exp(logs))
    best = int(np.argmin(costs))
    refined = minimize_scalar(
        lambda log: cost(np.exp([log]))[0],
        bounds=(logs[max(best - 1, 0)], logs[min(best + 1, _TRIED - 1)]),
        method="bounded",
        options={"xatol": 1e-5},
    )
    place = refined.x if float(refined.fun) < costs[best] else logs[best]
    return float(np.exp(round(float(place), 3)))
