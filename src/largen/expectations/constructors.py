"""Constructors of activations with parameters."""

from __future__ import annotations

from math import factorial
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.expectations.activations import ActivationFunction, as_activation, of_family
from largen.expectations.families import Elu, Gaussian, Kinked, LeakyRelu, Polynomial, Rbf
from largen.expectations.nodes import jumps as discontinuities
from largen.scalars import flag, integer, real

LARGEST_DEGREE = 16  # cancellation leaves fewer than ten digits at higher degrees


def leaky_relu(slope: float = 0.01) -> ActivationFunction:
    """Return φ(x) = x for x > 0, and slope · x below.

    Examples
    --------
    >>> from largen.expectations import leaky_relu, second_moment
    >>> float(second_moment(leaky_relu(0.5), 2.0))
    1.25
    """
    return of_family(LeakyRelu(real("slope", slope)))


def elu(alpha: float = 1.0) -> ActivationFunction:
    """Return φ(x) = x for x > 0, and α(eˣ − 1) below.

    Examples
    --------
    >>> import largen as lg
    >>> from largen.expectations import elu
    >>> lg.mlp(1, elu(0.5)) == lg.mlp(1, elu(0.5))
    True
    """
    return of_family(Elu(real("alpha", alpha)))


def gaussian(width: float = 1.0) -> ActivationFunction:
    """Return φ(x) = e^(−x²/2w²) with E[φ(u)φ(v)] = ((1 + q1/w²)(1 + q2/w²) − q12²/w⁴)^(−½).

    Examples
    --------
    >>> from largen.expectations import gaussian, second_moment
    >>> float(second_moment(gaussian(2.0), 6.0))
    0.5
    """
    return of_family(Gaussian(real("width", width, above=0)))


def rbf(gamma: float = 1.0) -> ActivationFunction:
    """Return φ(x) = √2 sin(√(2γ) x + π/4), with E[φ(u)φ(v)] = e^(−γ E[(u − v)²]).

    After one affine map its kernel is the radial basis function kernel e^(−γσ_w²|x − x'|²/D).

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> from largen.expectations import rbf
    >>> lg.nngp_kernel(lg.mlp(1, rbf(0.5)), np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    """
    return of_family(Rbf(real("gamma", gamma, above=0)))


def with_kinks(function: Any, kinks: Any, *, jumps: bool = False) -> ActivationFunction:
    """Return a function as an activation, integrated piece by piece between its kinks.

    Up to eight kinks between −48 and 48 are found automatically. For other functions, or for
    certainty, list all points where φ or one of its first few derivatives jumps; a missing one
    increases the estimated error. The time for a pair grows with the square of the number of
    kinks, so list only those within eight standard deviations of the inputs of φ.

    Parameters
    ----------
    function
        φ as an elementwise JAX function.
    kinks
        Positions of the kinks, in any order.
    jumps
        Pass True if φ itself jumps, so that it has an NNGP kernel but no NTK. Jumps at the points
        of the list are found in any case.

    Raises
    ------
    InvalidInput
        If the function is not elementwise, or the kinks are not finite numbers.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from largen.expectations import second_moment, with_kinks
    >>> def triangle(x):
    ...     return jnp.abs((x - 1) % 4 - 2) - 1
    >>> phi = with_kinks(triangle, range(-19, 20, 2))
    >>> round(float(second_moment(phi, 1e-2)), 6)
    0.01
    """
    phi = as_activation(function)
    try:
        places = np.atleast_1d(np.asarray(list(kinks), np.float64))
    except (TypeError, ValueError):
        raise InvalidInput(f"kinks: wanted numbers, got {kinks!r}.") from None
    if places.ndim != 1 or not np.isfinite(places).all():
        raise InvalidInput(f"kinks: wanted finite numbers, got {kinks!r}.")
    ascending = tuple(float(k) for k in np.unique(places))
    given = of_family(Kinked(phi.function, ascending, flag("jumps", jumps)))
    if given.jumps or not _jumps(given):
        return given
    return of_family(Kinked(phi.function, ascending, True))


def _jumps(phi: ActivationFunction) -> bool:
    """Return whether φ jumps at one of its kinks; False if it holds traced values."""
    try:
        return discontinuities(phi)[0]
    except jax.errors.JAXTypeError:
        return False


def polynomial(coefficients: Any) -> ActivationFunction:
    """Return φ(x) = Σ_j coefficients[j] xʲ, the lowest power first as in numpy.polynomial.

    Parameters
    ----------
    coefficients
        Coefficients up to degree 16.

    Raises
    ------
    InvalidInput
        If the coefficients are not finite numbers, or too many.

    Examples
    --------
    >>> from largen.expectations import mean, polynomial
    >>> float(mean(polynomial([1.0, 0.0, 0.5]), 2.0))
    2.0
    """
    try:
        numbers = np.atleast_1d(np.asarray(coefficients, np.float64))
    except (TypeError, ValueError):
        raise InvalidInput(f"coefficients: wanted numbers, got {coefficients!r}.") from None
    if numbers.ndim != 1 or not 1 <= len(numbers) <= LARGEST_DEGREE + 1:
        raise InvalidInput(
            f"coefficients: wanted a sequence of 1 to {LARGEST_DEGREE + 1} numbers, got shape "
            f"{numbers.shape}."
        )
    if not np.isfinite(numbers).all():
        raise InvalidInput(f"coefficients: wanted finite numbers, got {coefficients!r}.")
    return of_family(Polynomial(tuple(float(c) for c in numbers)))


def monomial(degree: int) -> ActivationFunction:
    """Return φ(x) = xⁿ, up to degree 16.

    Examples
    --------
    >>> from largen.expectations import monomial, second_moment
    >>> float(second_moment(monomial(2), 2.0))  # 3 q²
    12.0
    """
    n = _degree(degree)
    return of_family(Polynomial((0.0,) * n + (1.0,), f"monomial({n})"))


def hermite(degree: int) -> ActivationFunction:
    """Return the orthonormal Hermite polynomial He_n(x)/√n!, up to degree 16.

    He_n is the probabilists' polynomial, ``scipy.special.hermitenorm``. At variance 1
    E[φ(u)φ(v)] = cⁿ.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> from largen.expectations import hermite
    >>> x = np.array([[1.0, 1.0], [1.0, 0.0]]) / np.array([[1.0], [0.5**0.5]])
    >>> lg.nngp_kernel(lg.mlp(1, hermite(4)), x).round(4)
    array([[1.  , 0.25],
           [0.25, 1.  ]])
    """
    n = _degree(degree)
    coefficients = np.polynomial.hermite_e.herme2poly([0] * n + [1]) / np.sqrt(float(factorial(n)))
    return of_family(Polynomial(tuple(float(c) for c in coefficients), f"hermite({n})"))


def _degree(degree) -> int:
    n = integer("degree", degree, at_least=0)
    if n > LARGEST_DEGREE:
        raise InvalidInput(f"degree: wanted at most {LARGEST_DEGREE}, got {n}.")
    return n
