"""Ridge regression in the proportional limit of samples and features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.bibliography import cites
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

        m(λ) = [−(1 − γ + λ) + √((1 − γ + λ)² + 4γλ)]/(2γλ),   m' = −dm/dλ,
        E ½(W·x − y)² = ½[|β|²λ²m' + σ²γ(m − λm') + σ²].

    Taking n → ∞ first and then N → ∞, or the reverse, gives the limits γ → 0 and γ → ∞.

    Parameters
    ----------
    features_per_sample
        γ = N/n > 0.
    penalty
        λ > 0.
    noise_std
        σ, the standard deviation of ε.
    signal
        |β|.

    Raises
    ------
    InvalidInput
        For numbers that are not positive.

    Examples
    --------
    >>> import largen as lg
    >>> round(lg.ridge_test_error(3.0, 0.1, noise_std=0.5).total, 4)
    0.5132
    """
    gamma = real("features_per_sample", features_per_sample, above=0.0)
    lam = real("penalty", penalty, above=0.0)
    sigma = real("noise_std", noise_std, at_least=0.0)
    beta = real("signal", signal, at_least=0.0)
    b = 1 - gamma + lam
    root = np.hypot(b, 2 * np.sqrt(gamma * lam))
    # The root of γλm² + bm = 1 without cancellation, and its derivative from the same equation.
    m = 2 / (b + root) if b > 0 else (root - b) / (2 * gamma * lam)
    slope = (gamma * m**2 + m) / root
    bias = beta**2 * lam**2 * slope / 2
    variance = sigma**2 * gamma * (m - lam * slope) / 2
    noise = sigma**2 / 2
    return RidgeError(*(float(f) for f in (bias + variance + noise, bias, variance, noise)))
