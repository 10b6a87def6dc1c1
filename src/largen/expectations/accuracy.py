"""Error bounds on the computed expectations of an activation, evaluated at a few variances.

The cost does not depend on the number of pairs: for |c| ≤ 1 every bound of the Hermite series is
largest where the inputs coincide, so that it suffices to evaluate the bounds, in NumPy, at given
variances.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.expectations.activations import ActivationFunction
from largen.expectations.angular import reach_for
from largen.expectations.angular_pair import angular_error
from largen.expectations.closed_form import ClosedForm
from largen.expectations.hermite_series import basis, tolerance
from largen.expectations.kept_tables import kept
from largen.expectations.panels import graded_nodes
from largen.expectations.quadrature import half_nodes
from largen.progress import lines

PROBES = 8
ANGLES = (1e-5, 0.02, 0.6, 1.9, 3.1)  # at which the errors of integrals over pieces are evaluated
UNRESOLVED = 0.1  # relative change of coefficients beyond which the bound is infinite
AS_GOOD = 3  # error of the series, in units of its tolerance, for which it replaces integrals
RESOLVED = 1e-8  # largest error of the Hermite series at variance 1 for which it is used
HOPELESS = 1e-6  # error by the angle at variance 1 beyond which φ bends or jumps elsewhere
_VARIANCES = 2.0 ** np.arange(-6, 8)  # at which the series is tried
FARTHEST = 8.0**5  # largest √q for integrals by the angle; larger ones take gigabytes
DEFAULT_RTOL = {"float64": 1e-8, "float32": 1e-4}


class RelativeError(NamedTuple):
    """Bounds on relative errors, for |c| ≤ 1, at each of some variances."""

    value: np.ndarray  # error of E[φ(u)φ(v)] over E[φ²]
    derivative: np.ndarray  # error of E[φ'(u)φ'(v)] over E[φ'²]


@lru_cache(maxsize=256)
def by_angle(phi: ActivationFunction) -> bool:
    """Whether φ takes the angle: it asks for it (``reach``), or its series fails at variance 1."""
    if phi.closed_form is not None or phi.reach is not None:
        return phi.closed_form is None
    try:
        with jax.ensure_compile_time_eval():
            bounds = _series_error(phi, np.ones(1), np.dtype(np.float64))
    except jax.errors.JAXTypeError:  # φ holds traced values and cannot be evaluated here
        return False
    return not max(float(bound[0]) for bound in bounds) < RESOLVED


def relative_error(
    phi: ActivationFunction, q: np.ndarray, dtype: type = np.float64
) -> RelativeError:
    """Return bounds on the relative errors of ``pair_moments`` at q₁ = q₂ = q, (batch,) each.

    Closed forms have rounding errors only. For integrals between kinks the bound is the change
    under a finer rule; for the Hermite series Parseval's bound, plus the change of the coefficients
    under a finer and wider quadrature, with a safety factor; for integrals by the angle one bound
    serves all variances. Bounds are infinite where the function is not resolved or not finite.
    Features of φ narrower than the nodes' spacing (:func:`largen.expectations.pair_error`) are
    missed.
    """
    q = np.asarray(q, np.float64)
    rounding = np.full(q.shape, 32 * float(np.finfo(dtype).eps))
    if phi.closed_form is not None:
        if phi.closed_form.error is None:
            return RelativeError(rounding, rounding)
        return RelativeError(*(rounding + bound for bound in _pieces_error(phi.closed_form, q)))
    if by_angle(phi):
        if phi.series_below:
            rounding = rounding + AS_GOOD * tolerance(np.dtype(dtype))
        known = kept(phi)
        if known is not None and known.covers(np.sqrt(np.min(q)), np.sqrt(np.max(q))):
            return RelativeError(*(bound + rounding for bound in known.errors))
        with jax.enable_x64(True):
            bounds = angular_error(phi, jax.numpy.asarray(q), jax.numpy.asarray(q))
        return RelativeError(*(np.where(np.isnan(b), np.inf, b) + rounding for b in bounds))
    return RelativeError(*(bound + rounding for bound in _series_error(phi, q, np.dtype(dtype))))


def _pieces_error(known: ClosedForm, q: np.ndarray) -> tuple[float, float]:
    """Return the largest errors at a few pairs of variances and angles between u and v."""
    places = np.quantile(q, [0, 0.5, 1])
    q1, q2, theta = np.array(list(product(places, places, ANGLES))).T
    size = np.sqrt(q1) * np.sqrt(q2)
    gap = (np.sqrt(q1) - np.sqrt(q2)) ** 2 / 2 + 2 * size * np.sin(theta / 2) ** 2
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        bounds, sizes = _errors_and_sizes(known, *map(jax.numpy.asarray, (q1, q2, gap)))
    sizes = [np.where(np.asarray(size) > 0, size, 1) for size in sizes]
    value, slope = (np.max(np.asarray(b) / s) for b, s in zip(bounds, sizes, strict=True))
    return float(value), float(slope)


@partial(jax.jit, static_argnums=0)
def _errors_and_sizes(known, q1, q2, gap):
    sizes = [
        jax.numpy.sqrt(moment(q1)) * jax.numpy.sqrt(moment(q2))
        for moment in (known.second_moment, known.derivative_second_moment)
    ]
    return known.error(q1, q2, gap), sizes


def _series_error(phi, q, dtype) -> list[np.ndarray]:
    coarse, fine = _coefficients(phi, q, dtype)
    bounds = []
    with np.errstate(all="ignore"):
        for one, other in zip(coarse, fine, strict=True):
            norm = np.sum(other.table**2, axis=0)
            change = np.sqrt(np.sum((one.table - other.table) ** 2, axis=0) / norm)
            change = np.where(change < UNRESOLVED, change, np.inf)
            captured = np.sum(one.table**2, axis=0)
            left = np.maximum(1 - captured / one.total, tolerance(dtype))
            bound = np.where(other.total == 0, 0, 2 * left + 16 * change)
            bounds.append(np.where(np.isnan(bound), np.inf, bound))
    return bounds


class _Coefficients(NamedTuple):
    table: np.ndarray  # (degree, batch)
    total: np.ndarray  # E[f²] by the same quadrature, (batch,)


def _coefficients(phi, q, dtype) -> list[list[_Coefficients]]:
    """Return Hermite coefficients and second moments of φ and of φ', coarse and refined."""
    coefficients = []
    for refined, functions in zip((False, True), _on_nodes(phi, q, dtype), strict=True):
        even, odd = (b.astype(np.float64, copy=False) for b in basis(dtype, refined))
        root = even[:1].T  # √weight: the Hermite polynomial of degree 0 is 1
        with np.errstate(all="ignore"):
            plus, minus = (root * np.concatenate(f, axis=1) for f in zip(*functions, strict=True))
            table = np.concatenate([even @ (plus + minus) / 2, odd @ (plus - minus) / 2])
            total = np.sum(plus**2 + minus**2, axis=0) / 2
        n = len(q)
        cuts = slice(n), slice(n, None)
        coefficients.append([_Coefficients(table[:, cut], total[cut]) for cut in cuts])
    return coefficients


def _on_nodes(phi: ActivationFunction, q: np.ndarray, dtype: np.dtype) -> list:
    """Return [φ, φ'], each as pairs (at √q z, at −√q z), at the coarse and the refined nodes z."""
    sets = [half_nodes(dtype, refined)[0].astype(np.float64) for refined in (False, True)]
    x = np.sqrt(q) * np.concatenate(sets)[:, None]
    with jax.enable_x64(True):
        both = [np.asarray(f, np.float64) for f in _evaluate(phi, np.stack([x, -x]))]
    cut = len(sets[0])
    return [[(f[0, nodes], f[1, nodes]) for f in both] for nodes in (slice(cut), slice(cut, None))]


@partial(jax.jit, static_argnums=0)
def _evaluate(phi, x):
    return phi(x), phi.derivative(x)


class SingleMoments(NamedTuple):
    """E[φ²], E[φ'²] and E[φ] under one Gaussian, or their errors."""

    second_moment: Any
    derivative_second_moment: Any
    mean: Any


def moments_at(phi: ActivationFunction, q: np.ndarray) -> SingleMoments:
    """Return moments of φ without closed form at variances (batch,), infinite at q = ∞."""
    if not np.isfinite(q).all():
        return SingleMoments(*np.full((3, *q.shape), np.inf))
    if by_angle(phi):
        z, weights = graded_nodes(reach_for(np.sqrt(np.max(q))))
        x = z[:, None] * np.sqrt(q)
        with jax.enable_x64(True):
            parts = [tuple(np.asarray(f)) for f in _evaluate(phi, np.stack([x, -x]))]
    else:
        _, weights = half_nodes(np.dtype(np.float64))
        parts = _on_nodes(phi, q, np.dtype(np.float64))[0]
    (plus, minus), slopes = parts
    square, steep = (weights @ (a**2 + b**2) / 2 for a, b in ((plus, minus), slopes))
    return SingleMoments(square, steep, weights @ (plus + minus) / 2)


def probes(q: np.ndarray) -> np.ndarray:
    """Return a few representative variances: order statistics, including the extremes."""
    q = np.ravel(q).astype(np.float64)
    places = np.linspace(0, len(q) - 1, PROBES).round().astype(int)
    return np.partition(q, places)[places]


@lru_cache(maxsize=64)
def _error_once(phi: ActivationFunction, q: tuple[float, ...], dtype: type) -> RelativeError:
    return relative_error(phi, np.array(q), dtype)


def _worst(phi, q, dtype, layers, derivative) -> float:
    """Return the bound for a product over layers, at a few representative variances."""
    if not np.isfinite(q).all():
        return np.inf
    bounds = _error_once(phi, tuple(probes(q)), dtype)
    return layers * max(np.max(bound) for bound in bounds[: 2 if derivative else 1])


def with_suitable_method(
    phi: ActivationFunction,
    q: np.ndarray,
    rtol: float,
    dtype: type = np.float64,
    layers: int = 1,
    derivative: bool = True,
) -> ActivationFunction:
    """Return φ with the method that computes its moments at these variances most accurately.

    φ itself if its method reaches ``rtol``, otherwise φ with integrals by the angle, if their error
    is smaller; where the series resolves half of the variances, it keeps their pairs, so that a few
    large variances do not slow all pairs.
    """
    if phi.closed_form is not None:
        return phi
    report = lines(f"accuracy of the activation {phi!r}")  # of features far below √q: minutes
    try:
        error = _worst(phi, q, dtype, layers, derivative)
        reaches = _reaches(phi, q, dtype, derivative) if error > rtol else []
    except jax.errors.JAXTypeError:  # φ holds traced values and cannot be evaluated here
        return phi
    best, below = phi, _series_below(phi, np.dtype(dtype)) if reaches else 0.0
    below = below if np.median(q) <= below else 0.0
    for done, reach in enumerate(reaches, 1):
        report(done, len(reaches) + 1)
        other = replace(phi, reach=reach, series_below=below)
        bound = _worst(other, q, dtype, layers, derivative)
        if bound < error:
            best, error = other, bound
        if error <= rtol:
            break
    return best


@lru_cache(maxsize=256)
def _series_below(phi: ActivationFunction, dtype: np.dtype) -> float:
    """Return the variance up to which the Hermite series keeps its tolerance; 0 for none."""
    bounds = np.max(_series_error(phi, _VARIANCES, dtype), axis=0)
    resolved = np.cumprod(bounds <= AS_GOOD * tolerance(dtype))
    return float(np.max(_VARIANCES * resolved))


def _reaches(phi, q, dtype, derivative) -> list[float]:
    """Return the reaches to try for integrals by the angle, in order."""
    largest = float(np.sqrt(np.max(q)))
    if largest > FARTHEST:
        return []
    if by_angle(phi) and _worst(phi, np.ones(PROBES), dtype, 1, derivative) > HOPELESS:
        return []  # a larger reach would not reduce the error
    return [reach_for(slack * largest) for slack in (1, 8)]  # 8 for variances of different sizes


def shortfall(
    phi: ActivationFunction,
    q: np.ndarray,  # all variances that occur, any shape
    rtol: float,  # the accepted relative error of the product over layers
    dtype: type = np.float64,  # the precision of the computation
    layers: int = 1,  # number of layers with this activation; their relative errors add up
    derivative: bool = True,  # whether E[φ'φ'] is needed as well
) -> str | None:
    """Return an error message if moments of φ at these variances may miss ``rtol``, else None."""
    if phi.closed_form is not None and phi.closed_form.error is None:
        return None
    some = probes(q)
    try:
        worst = _worst(phi, q, dtype, layers, derivative)
    except jax.errors.JAXTypeError:  # φ holds traced values: it cannot be looked at
        return None
    if worst <= rtol:
        return None
    size = f"{worst:.1e}" if np.isfinite(worst) else "an unknown size"
    if some[-1] > FARTHEST**2:
        cause = (
            f"variances above {FARTHEST**2:.1g} are not integrated. Scale the inputs to a mean "
            "square of order one,"
        )
    else:
        cause = (
            "it has bends or jumps that were not found, or a feature too sharp. Say where they "
            "are (largen.expectations.with_kinks), take smaller variances or a smoother function,"
        )
    return (
        f"the Gaussian expectations of the activation {phi!r} have an estimated relative error of "
        f"{size} at variances {some[0]:.3g} to {some[-1]:.3g}, above rtol = {rtol:g}: {cause} "
        "give its closed form (ActivationFunction.closed_form), or accept the error with rtol= "
        "(of lg.solve, kernel_rtol=) or throw=False."
    )
