"""Singular values of products of square Gaussian matrices: the two limits of depth and width."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, polygamma

from largen.arrays import numbers
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.results import brief, fields_over, in_notebooks, plot_result, save_result
from largen.scalars import integer

_HALVINGS, _REACH = 100, 400.0  # of the logarithm of an angle


@cites("newman1986distribution")
class LyapunovExponents(NamedTuple):
    """Growth of the singular values of products of Gaussian matrices, largest first.

    Attributes
    ----------
    exponents
        μ_i, (mode,): the mean of log s_i grows by μ_i with each factor.
    variances
        v_i, (mode,): the variance of log s_i grows by v_i.
    """

    exponents: np.ndarray
    variances: np.ndarray

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(exponents=("mode",), variances=("mode",))
    save = save_result
    plot = plot_result


def lyapunov_exponents(width: int) -> LyapunovExponents:
    """Return the Lyapunov exponents of products of square Gaussian matrices.

    For L → ∞ factors of N × N independent entries of variance 1/N, at fixed N, the singular values
    s_1 > s_2 > … of the product are independent log-normals (Newman 1986), with mean and variance
    of log s_i

        L μ_i,  μ_i = ½[ψ((N − i + 1)/2) + log(2/N)],      L v_i,  v_i = ¼ψ'((N − i + 1)/2).

    This is the input-output Jacobian of deep linear networks at L ≫ N. For L ≪ N see
    :func:`product_density`; there is no closed form in between.

    Parameters
    ----------
    width
        N.

    Raises
    ------
    InvalidInput
        If the width is not a positive integer.

    Examples
    --------
    Even the largest one shrinks by 1/(2N) or so with each factor, and the spread is as large:

    >>> import largen as lg
    >>> result = lg.criticality.lyapunov_exponents(100)
    >>> result.exponents[0].round(5), result.variances[0].round(5)
    (np.float64(-0.00502), np.float64(0.00505))
    """
    width = integer("width", width, at_least=1)
    half = np.arange(width, 0, -1) / 2
    return LyapunovExponents((digamma(half) + np.log(2 / width)) / 2, polygamma(1, half) / 4)


@cites("penson2011product")
def product_density(values: Any, *, factors: int) -> np.ndarray:
    """Return the density of squared singular values of a product of L Gaussian matrices.

    For N × N matrices of independent entries of variance 1/N, at N → ∞ and fixed L: the free
    product of L laws of Marchenko and Pastur, whose moments are the Fuss-Catalan numbers. In terms
    of an angle 0 < θ < π/(L + 1) (Penson and Życzkowski 2011),

        x = sin^{L+1}((L+1)θ) / (sin θ sin^L(Lθ)),
        ρ(x) = sin²θ sin^{L−1}(Lθ) / (π sin^L((L+1)θ)),

    and ρ = 0 beyond the edge (L+1)^{L+1}/L^L. For L ≫ N see :func:`lyapunov_exponents`.

    Parameters
    ----------
    values
        x > 0, any shape.
    factors
        L.

    Returns
    -------
    numpy.ndarray
        ρ in the shape of the values.

    Raises
    ------
    InvalidInput
        For values that are not positive, and a number of factors that is not a positive integer.

    Examples
    --------
    >>> import largen as lg
    >>> lg.criticality.product_density([0.5, 2.0, 5.0], factors=1).round(4)  # √(4 − x)/(2π√x)
    array([0.4211, 0.1592, 0.    ])
    """
    factors = integer("factors", factors, at_least=1)
    given = numbers("values", values)
    if not (given > 0).all():
        raise InvalidInput(f"values: wanted positive numbers, got {given.min():g}.")
    x = given.ravel()
    # Of θ = π/(L + 1) − ω, x = 0 at ω = 0; bisection in log ω, to keep small x accurate.
    top = np.pi / (factors + 1)
    low, high = np.full(x.shape, np.log(top) - _REACH), np.full(x.shape, np.log(top))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = _log_value(np.exp(middle), factors) < np.log(x)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    omega = np.exp((low + high) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner, last = np.sin(factors * (top - omega)), np.sin((factors + 1) * omega)
        log = 2 * np.log(np.sin(top - omega)) + (factors - 1) * np.log(inner)
        density = np.exp(log - factors * np.log(last)) / np.pi
    edge = (factors + 1) * np.log(factors + 1) - factors * np.log(factors)
    return np.where(np.log(x) < edge, density, 0.0).reshape(given.shape)


def _log_value(omega: np.ndarray, factors: int) -> np.ndarray:
    """Return log x at θ = π/(L + 1) − ω."""
    theta = np.pi / (factors + 1) - omega
    with np.errstate(divide="ignore", invalid="ignore"):
        log = (factors + 1) * np.log(np.sin((factors + 1) * omega)) - np.log(np.sin(theta))
        return np.where(theta > 0, log - factors * np.log(np.sin(factors * theta)), np.inf)
