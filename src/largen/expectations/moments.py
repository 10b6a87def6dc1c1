"""Gaussian moments of activations, the interface to the rest of the library."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from largen.arrays import floating, is_traced, like, precision
from largen.errors import InvalidInput, NumericalFailure
from largen.expectations.accuracy import (
    DEFAULT_RTOL,
    SingleMoments,
    by_angle,
    shortfall,
    with_suitable_method,
)
from largen.expectations.activations import ActivationFunction, Elementwise, as_activation
from largen.expectations.angular import reach_of
from largen.expectations.angular_pair import angular_error, angular_pair
from largen.expectations.closed_form import divide
from largen.expectations.quadrature import gaussian_mean, gaussian_mean_error
from largen.expectations.series_error import series_error
from largen.expectations.series_pair import series_pair, square
from largen.expectations.watching import current_watch, pair, single
from largen.scalars import flag, real

_ROUNDING = 1e-6  # of numbers that ought not to be negative, over the largest of them
Spec = str | Elementwise | ActivationFunction


class PairMoments(NamedTuple):
    """The moments of φ under two correlated Gaussians u and v that a layer requires.

    Attributes
    ----------
    gap
        Half the mean squared distance of φ(u) and φ(v), E[(φ(u) − φ(v))²]/2.
    derivative
        E[φ'(u)φ'(v)].
    """

    gap: Array
    derivative: Array


def pair_moments(phi: Spec, q1: ArrayLike, q2: ArrayLike, gap: ArrayLike) -> PairMoments:
    """Return the gap of (φ(u), φ(v)) and E[φ'(u)φ'(v)] for two Gaussians u and v.

    With V = E[φ(u)φ(v)] and V_i = E[φ²] at variance q_i,

        gap' = (V_1 + V_2)/2 − V,     V = E[φ(u)φ(v)],   gap = (q1 + q2)/2 − E[uv].

    Kernels of deep relu networks depend on √(1 − c) near correlation c = 1, where 1 − c computed by
    subtraction has the rounding error of c. The gap is a sum of non-negative terms and keeps its
    relative precision through any number of layers; gap = 0 gives gap' = 0.

    Parameters
    ----------
    phi
        Name, elementwise JAX function or :class:`ActivationFunction`.
    q1, q2, gap
        Variances of u and v, and half their mean squared distance; shapes that broadcast. The
        shapes (n, 1), (1, m) and (n, m) cost least.

    Returns
    -------
    PairMoments
        Two arrays of the broadcast shape. They are differentiable any number of times, also where
        u and v coincide; relu's derivative kernel has a kink there, to which slope 0 is assigned.

    Raises
    ------
    InvalidInput
        For variances or gaps below 0. Traced arrays are not checked; NaN gives NaN.

    Notes
    -----
    The method is a closed form where one exists (Cho & Saul 2009 for relu; Williams 1997 for erf),
    an integral over the angle for piecewise linear functions (Plackett 1954), the Hermite series
    for other smooth functions, tables of integrals in polar coordinates for functions with a bend
    at 0, such as elu, and integrals over the pieces, at about a millisecond for each pair, for
    functions with kinks elsewhere; :func:`pair_error` bounds the errors. The precision is that of
    the arrays in JAX: call this within ``largen.arrays.precision`` for float64.

    Examples
    --------
    >>> from largen.expectations import pair_moments
    >>> gap, derivative = pair_moments("relu", 1.0, 1.0, 0.0)
    >>> float(gap), float(derivative)
    (0.0, 0.5)
    """
    phi = as_activation(phi)
    if (who := current_watch()) is not None:
        return PairMoments(*pair(who, phi, q1, q2, gap))
    _check_signs(q1=q1, q2=q2, gap=gap)
    return PairMoments(*_pair(phi, *_floats(q1, q2, gap)))


def pair_error(phi: Spec, q1: ArrayLike, q2: ArrayLike, gap: ArrayLike) -> PairMoments:
    """Return bounds on the absolute errors of :func:`pair_moments`, entry by entry.

    For the Hermite series the bound consists of Parseval's bound on the truncation error, the
    change of the coefficients when the quadrature is refined, and rounding. For functions with a
    bend at 0 or with kinks elsewhere it is the difference from finer integrals, and for closed
    forms it is rounding. Activations that are smooth, or smooth but for a few kinks, reach 1e-10 in
    float64 at moderate variances; those with many kinks do not, and have a larger bound.

    Bounds are computed from samples of φ and φ', and hold for functions that these resolve: nodes
    are √q/24 apart, √q/72 where they are refined, and kinks are searched for on points about 1/128
    apart. A narrower feature, such as a bump e^(−(x/w)²) with w = 1e-4, can lie between all of
    these points, and is then missed by both moments and bounds. Supply a closed form for such
    functions.

    Parameters
    ----------
    phi, q1, q2, gap
        As in :func:`pair_moments`.

    Raises
    ------
    InvalidInput
        As :func:`pair_moments` does.

    Examples
    --------
    >>> import jax
    >>> from largen.expectations import pair_error
    >>> with jax.enable_x64(True):
    ...     bounds = pair_error(jax.nn.elu, 1.0, 1.0, 0.0)
    >>> float(bounds.derivative) < 1e-10
    True
    """
    phi = as_activation(phi)
    _check_signs(q1=q1, q2=q2, gap=gap)
    return PairMoments(*_error(phi, *_floats(q1, q2, gap)))


def second_moment(phi: Spec, q: ArrayLike) -> Any:
    """Return E[φ(√q z)²] for z ~ N(0, 1), elementwise in the variance q ≥ 0.

    Examples
    --------
    >>> from largen.expectations import second_moment
    >>> float(second_moment("relu", 3.0))
    1.5
    """
    return _one(phi, "second_moment", q)


def derivative_second_moment(phi: Spec, q: ArrayLike) -> Any:
    """Return E[φ'(√q z)²] for z ~ N(0, 1), elementwise in the variance q ≥ 0.

    Examples
    --------
    >>> from largen.expectations import derivative_second_moment
    >>> float(derivative_second_moment("relu", 3.0))
    0.5
    """
    return _one(phi, "derivative_second_moment", q)


def mean(phi: Spec, q: ArrayLike) -> Any:
    """Return E[φ(√q z)] for z ~ N(0, 1), elementwise in the variance q ≥ 0.

    Examples
    --------
    >>> from largen.expectations import mean
    >>> round(float(mean("relu", 2.0)), 4)
    0.5642
    """
    return _one(phi, "mean", q)


def _one(phi: Spec, moment: str, q: ArrayLike) -> Any:
    phi = as_activation(phi)
    if (who := current_watch()) is not None:
        return single(who, phi, moment, q)
    _check_signs(q=q)
    return _single(phi, moment, *_floats(q))


def moment_error(phi: Spec, q: ArrayLike) -> SingleMoments:
    """Return estimates of the absolute errors of the moments under one Gaussian of variance q.

    The estimate is rounding for closed forms, and otherwise :func:`gaussian_mean_error`.

    Examples
    --------
    >>> import jax
    >>> from largen.expectations import moment_error
    >>> with jax.enable_x64(True):
    ...     error = moment_error("tanh", 2.0)
    >>> float(error.second_moment) < 1e-13
    True
    """
    phi = as_activation(phi)
    _check_signs(q=q)
    return SingleMoments(*_single_error(phi, *_floats(q)))


def gaussian_moments(
    activation: Any,
    q1: ArrayLike,
    q12: ArrayLike,
    q2: ArrayLike,
    *,
    rtol: float | None = None,
    throw: bool = True,
) -> tuple[Any, Any]:
    """Return E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for centred Gaussians with given covariances.

    Parameters
    ----------
    activation
        Name, elementwise JAX function or :class:`ActivationFunction`.
    q1, q12, q2
        E[u²], E[uv] and E[v²]: numbers or arrays that broadcast. Near coincidence
        :func:`pair_moments` is more precise, since it takes the gap instead of q12.
    rtol
        Accepted error, relative to E[φ²] and E[φ'²]; by default 1e-8 in float64 and 1e-4 in
        float32.
    throw
        Whether a larger error raises an exception; otherwise the moments are returned anyway.

    Returns
    -------
    tuple
        Two arrays of the broadcast shape; float64 for NumPy float64 and for Python numbers.

    Raises
    ------
    InvalidInput
        For variances below 0, |q12| > √(q1 q2), NaN or infinity, shapes that do not broadcast,
        an unknown activation.
    NumericalFailure
        If the error may exceed ``rtol``, for activations with more kinks than the search allows
        or at very large variances, or if the moments overflow. The exception carries the moments
        as ``result``. Traced arrays are not checked, and features of φ below its sampling are
        missed: see :func:`pair_error`.

    Examples
    --------
    >>> from largen.expectations import gaussian_moments
    >>> value, derivative = gaussian_moments("erf", 1.0, 0.5, 1.0)
    >>> round(float(value), 6), round(float(derivative), 6)
    (0.216347, 0.450158)
    """
    phi, throw = _activation(activation), flag("throw", throw)
    names = ("q1", "q12", "q2")
    arrays = [floating(n, q) for n, q in zip(names, (q1, q12, q2), strict=True)]
    q1, q12, q2 = arrays
    try:
        np.broadcast_shapes(*(q.shape for q in arrays))
    except ValueError:
        shapes = ", ".join(f"{n} {q.shape}" for n, q in zip(names, arrays, strict=True))
        raise InvalidInput(f"the shapes do not broadcast: {shapes}.") from None
    words = None
    if not is_traced(q1, q12, q2):
        _check_covariance(q1, q12, q2)
        words, phi = _accuracy(phi, np.append(q1, q2), np.result_type(*arrays, np.float32), rtol)
    with precision(q1, q12, q2):
        a, b, ab = (jnp.asarray(x) for x in (q1, q2, q12))
        gap, derivative = pair_moments(phi, a, b, jnp.maximum((a + b) / 2 - ab, 0))
        value = (second_moment(phi, a) + second_moment(phi, b)) / 2 - gap
        result = like((value, derivative), q1, q12, q2)
    # The derivative's moment of equal numbers is infinite if φ jumps.
    if not is_traced(*result) and not (np.isfinite(result[0]) & ~np.isnan(result[1])).all():
        most = max(float(np.max(q, initial=0)) for q in (q1, q2))
        words = f"gaussian_moments: the moments overflow at variances up to {most:.3g}."
    if words is not None and throw:
        raise NumericalFailure(words, result)
    return result


def _accuracy(phi, q, dtype, rtol) -> tuple[str | None, ActivationFunction]:
    """Return an error message about the accuracy, if any, and φ with the method to use."""
    name = "float64" if dtype == np.float64 else "float32"
    rtol = DEFAULT_RTOL[name] if rtol is None else real("rtol", rtol, above=0.0)
    dtype = np.dtype(name).type
    phi = with_suitable_method(phi, q, rtol, dtype)
    return shortfall(phi, q, rtol, dtype), phi


_activation = as_activation  # gaussian_moments has an argument of this name


def _check_signs(**given: Any) -> None:
    """Raise for numbers that are below 0 by more than rounding errors."""
    for name, q in given.items():
        if not is_traced(q):
            q = np.asarray(q)
            if (q < -_ROUNDING * np.max(np.abs(q), initial=0)).any():
                raise InvalidInput(f"{name}: wanted variances ≥ 0, got {np.nanmin(q):g}.")


def _check_covariance(q1, q12, q2) -> None:
    q1, q12, q2 = (np.asarray(q) for q in (q1, q12, q2))
    for name, q in (("q1", q1), ("q2", q2)):
        if (q < 0).any():
            raise InvalidInput(f"{name}: wanted variances ≥ 0, got {q.min():g}.")
    largest = np.sqrt(q1) * np.sqrt(q2)
    slack = 8 * np.finfo(np.result_type(q1, q12, q2)).eps * (q1 + q2)
    excess = np.abs(q12) - largest - slack
    if (excess > 0).any():
        raise InvalidInput(
            "q12: wanted |q12| ≤ √(q1 q2), since u and v would have a correlation above 1; "
            f"it is exceeded by up to {excess.max():g}."
        )


def _floats(*arrays: ArrayLike) -> tuple[Array, ...]:
    dtype = jnp.promote_types(jnp.result_type(*arrays), jnp.float32)
    return tuple(jnp.asarray(x, dtype) for x in arrays)


@partial(jax.jit, static_argnums=0)
def _pair(phi: ActivationFunction, q1: Array, q2: Array, gap: Array):
    if phi.closed_form is not None:
        return phi.closed_form.pair(q1, q2, gap)
    if by_angle(phi):
        return angular_pair(phi, q1, q2, gap)
    return series_pair(phi, q1, q2, gap)


@partial(jax.jit, static_argnums=0)
def _error(phi: ActivationFunction, q1: Array, q2: Array, gap: Array):
    if by_angle(phi):
        value, slope = angular_error(phi, q1, q2)
        singles = [
            [gaussian_mean(square(f), q, reach=reach_of(phi)) for q in (q1, q2)]
            for f in (phi, phi.derivative)
        ]
        values, slopes = (jnp.broadcast_arrays(*pair, gap)[:2] for pair in singles)
        return value * (values[0] + values[1]), slope * jnp.sqrt(slopes[0] * slopes[1])
    if phi.closed_form is None:
        return series_error(phi, q1, q2, gap)
    rounding = 16 * jnp.finfo(gap.dtype).eps
    single = phi.closed_form.second_moment
    slope = phi.closed_form.derivative_second_moment
    q1, q2, gap = jnp.broadcast_arrays(q1, q2, gap)
    bounds = rounding * (single(q1) + single(q2)), rounding * jnp.sqrt(slope(q1) * slope(q2))
    if phi.closed_form.error is None:
        return bounds
    return tuple(map(jnp.add, bounds, phi.closed_form.error(q1, q2, gap)))


def _functions(phi: ActivationFunction) -> dict[str, Elementwise]:
    return {
        "second_moment": square(phi),
        "derivative_second_moment": square(phi.derivative),
        "mean": phi,
    }


def _reach(phi: ActivationFunction) -> float | None:
    return reach_of(phi) if by_angle(phi) else None


@partial(jax.jit, static_argnums=(0, 1))
def _single(phi: ActivationFunction, moment: str, q: Array) -> Array:
    if phi.closed_form is not None:
        return getattr(phi.closed_form, moment)(q)
    return gaussian_mean(_functions(phi)[moment], q, reach=_reach(phi))


@partial(jax.jit, static_argnums=0)
def _single_error(phi: ActivationFunction, q: Array) -> tuple[Array, ...]:
    if phi.closed_form is None:
        reach = _reach(phi)
        return tuple(gaussian_mean_error(f, q, reach=reach) for f in _functions(phi).values())
    rounding = 16 * jnp.finfo(q.dtype).eps
    known = phi.closed_form
    values = known.second_moment(q), known.derivative_second_moment(q)
    value, slope = (rounding * jnp.abs(v) for v in values)
    if known.error is not None:  # the errors for independent and for equal u and v
        value, slope = value + known.error(q, q, q)[0], slope + known.error(q, q, 0 * q)[1]
    return value, slope, divide(value, jnp.sqrt(values[0]))
