"""Ridge regression in the proportional limit of samples and features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.results import brief, fields_over, in_notebooks, save_result
from largen.scalars import real


@cites("hanin2026primer")
class RidgeError(NamedTuple):
    """Test error of ridge regression and its parts; made by :func:`ridge_test_error`.

    Attributes
    ----------
    total
        E ½(W·x − y)² over test samples, noise included.
    bias, variance, noise
        The parts due to the shrinkage of β, to the noise of training targets, and to the noise of
        the test target.
    """

    total: float
    bias: float
    variance: float
    noise: float

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over()
    save = save_result


def ridge_test_error(
    features_per_sample: float, penalty: float, *, noise_std: float = 0.0, signal: float = 1.0
) -> RidgeError:
    """Return the test error of ridge regression for samples n and features N → ∞ at fixed N/n.

    Hanin, lectures on scaling limits of neural networks, §1.3.3: x ~ N(0, 1), y = β·x + ε, and W
    minimises Σ_i (W·x_i − y_i)²/2n + λ|W|²/2, that is W = (XᵀX + nλ)⁻¹XᵀY, where the lectures'
    (1.3.10) prints (XXᵀ + λ)⁻¹XᵀY. With γ = N/n and the Stieltjes transform of the
    Marchenko-Pastur distribution of XᵀX/n,

        m(λ) = (ρ − b)/(2γλ),   b = 1 − γ + λ,   ρ = √(b² + 4γλ),   m' = −dm/dλ,
        E ½(W·x − y)² = ½[|β|²λ²m' + σ²γ(m − λm') + σ²].

    It is evaluated without differences of close numbers: with t = λm and c = 1 − γ − λ, for which
    γt² + bt = λ and ρ² − c² = 4λ,

        λ²m' = t(γt + λ)/ρ,   γ(m − λm') = γt(ρ + c)/(2λρ) = 2γt/(ρ(ρ − c)).

    At λ = 0, least squares, the bias is |β|²(1 − 1/γ)₊/2 and the variance ½σ²γ/(1 − γ) for γ < 1,
    ½σ²/(γ − 1) for γ > 1, and infinite for γ = 1.

    Taking n → ∞ first and then N → ∞, or the reverse, gives the limits γ → 0 and γ → ∞.

    Parameters
    ----------
    features_per_sample
        γ = N/n > 0.
    penalty
        λ ≥ 0.
    noise_std
        σ, the standard deviation of ε.
    signal
        |β|.

    Raises
    ------
    InvalidInput
        For a penalty of 0 at γ = 1 with noise: it has no limit.

    Examples
    --------
    >>> import largen as lg
    >>> round(lg.regression.ridge_test_error(3.0, 0.1, noise_std=0.5).total, 4)
    0.5132
    """
    gamma = real("features_per_sample", features_per_sample, above=0.0)
    lam = real("penalty", penalty, at_least=0.0)
    sigma = real("noise_std", noise_std, at_least=0.0)
    beta = real("signal", signal, at_least=0.0)
    b, c = 1 - gamma + lam, 1 - gamma - lam
    root = np.hypot(b, 2 * np.sqrt(gamma * lam))
    if root == 0 and sigma > 0:
        raise InvalidInput(
            "penalty: at features_per_sample=1 the variance grows as 1/√penalty; wanted a penalty "
            "> 0, or no noise."
        )
    t = 2 * lam / (b + root) if b > 0 else (root - b) / (2 * gamma)
    shrunk = t * (gamma * t + lam) / root if root else 0.0
    if c > 0:  # and b > 0, so that t/λ = 2/(b + ρ) also at λ = 0
        spread = gamma * (root + c) / (b + root) / root
    else:
        spread = 2 * gamma * t / (root - c) / root if root else 0.0
    bias, variance, noise = beta**2 * shrunk / 2, sigma**2 * spread / 2, sigma**2 / 2
    return RidgeError(*(float(f) for f in (bias + variance + noise, bias, variance, noise)))
