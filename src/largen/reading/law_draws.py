"""Entries of parameters, drawn in JAX from the laws of a model's construction."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from scipy import optimize

from largen.reading.laws import TRUNCATED, Law, Parameter

WIDEST = 9.0  # bounds of a cut in standard deviations beyond which a normal law is not cut
NARROWEST = 1e-2


def drawn(parameter: Parameter, key: Any, dtype: Any) -> Any | None:
    """Return the entries of a parameter, or None if nothing draws its law."""
    if parameter.law is None:
        return None
    entries = _entries(parameter.law, parameter.shape, key, dtype)
    if entries is not None and parameter.zero_row is not None:
        entries = entries.at[parameter.zero_row].set(0)
    return entries


def _entries(law: Law, shape: tuple[int, ...], key: Any, dtype: Any) -> Any | None:
    std = law.variance**0.5
    match law.kind:
        case "constant":
            return jnp.full(shape, law.mean, dtype)
        case "uniform":
            half = 3**0.5 * std
            return jax.random.uniform(key, shape, dtype, law.mean - half, law.mean + half)
        case "normal":
            return law.mean + std * jax.random.normal(key, shape, dtype)
        case "orthogonal":
            return _orthogonal(std, shape, key, dtype)
    if law.kind == TRUNCATED:
        bound, size = _cut(law.excess)
        cut = jax.random.truncated_normal(key, -bound, bound, shape, dtype)
        return law.mean + std / size * cut
    return None


def _orthogonal(std: float, shape: tuple[int, ...], key: Any, dtype: Any) -> Any:
    rows, columns = shape[0], math.prod(shape[1:])
    few, many = sorted((rows, columns))
    matrix = jax.random.orthogonal(key, few, m=many, dtype=dtype) * (std * many**0.5)
    return (matrix if rows <= columns else matrix.T).reshape(shape)


@cache
def _cut(excess: float) -> tuple[float, float]:
    """Return c and the standard deviation of normal numbers between ±c, which have an excess."""
    bound: Any = WIDEST
    if _moments(WIDEST)[1] > excess:  # otherwise the excess is 0 but for rounding
        bound = optimize.brentq(lambda c: _moments(c)[1] - excess, NARROWEST, WIDEST)
    return bound, _moments(bound)[0] ** 0.5


def _moments(c: float) -> tuple[float, float]:
    """Return the variance and the excess kurtosis of normal numbers between ±c."""
    mass = math.erf(c / math.sqrt(2))
    at_ends = 2 * c * math.exp(-(c**2) / 2) / math.sqrt(2 * math.pi) / mass
    second = 1 - at_ends
    fourth = 3 * second - c**2 * at_ends  # both by parts
    return second, fourth / second**2 - 3
