"""Tables of ``angular`` that are made once for an activation and serve all data.

A table for the standard deviations of some data has Chebyshev polynomials on one range of asinh s.
Making it takes a second, as long as half a million pairs. A kept table holds for all standard
deviations up to a largest one: its range is cut into panels with polynomials of their own, and the
few combinations of these that h, S and D consist of, by a singular value decomposition, are its
functions of s.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.linalg import qr

from largen.expectations.activations import ActivationFunction
from largen.expectations.angular import (
    Table,
    chebyshev,
    collinear,
    derivative_moments,
    polynomials,
    reach_of,
    resolution,
    tabulate,
)
from largen.expectations.angular_error import LEAST, errors_at

LARGEST = 4096.0  # reach up to which tables are kept
_EDGES = (0.0, 0.15, 0.35, 0.7, 1.2, 1.8, 2.4)  # in asinh s: poles of h in s lie near ±0.3i
_WIDEST = 0.75  # panel beyond the last of these edges
_TERMS = 12  # polynomials on each panel
_ANGLES = (0.0, 0.1, 1.0, 2.2, np.pi)  # at which D has all the functions of s that it consists of
_ACCEPTED = 1e-9  # error of h, S and D for which a table is used
# Standard deviations at which a table is compared with integrals, over the largest one.
_PROBES = np.array([1e-7, 1e-5, 1.1e-3, 0.013, 0.031, 0.063, 0.12, 0.26, 0.37, 0.53, 0.71, 0.93, 1])


class Kept(NamedTuple):
    """A table for all standard deviations between two numbers."""

    table: Table
    edges: np.ndarray  # edges of the panels in asinh s, (panel + 1,)
    # The functions of s, in Chebyshev polynomials on each panel, (panel, degree, function).
    functions: np.ndarray
    # least, most: the smallest and the largest standard deviation for which it holds.
    least: float
    most: float
    # Bounds on its errors, as those of expectations.angular_pair.angular_error.
    errors: tuple[float, float]

    def covers(self, low: Any, high: Any) -> Any:
        """Return whether the table holds for all standard deviations of a range."""
        return (low >= self.least) & (high <= self.most)

    def basis(self, s: Array) -> Array:
        """Return the functions of s at given standard deviations, along a new first axis."""
        x = jnp.arcsinh(s)
        panel = jnp.searchsorted(jnp.asarray(self.edges[1:-1], x.dtype), x)
        total = jnp.zeros((self.functions.shape[-1], *x.shape), x.dtype)
        for n, coefficients in enumerate(self.functions.astype(x.dtype)):
            low, high = self.edges[n : n + 2]
            place = jnp.clip((2 * x - (low + high)) / (high - low), -1, 1)
            here = jnp.tensordot(coefficients.T, polynomials(_TERMS, place), 1)
            total = jnp.where(panel == n, here, total)
        return total


@lru_cache(maxsize=64)
def kept(phi: ActivationFunction) -> Kept | None:
    """Return the table of φ up to its reach, or None if one for the data is to be made."""
    fine = resolution(reach_of(phi))
    if fine.reach > LARGEST:
        return None
    more = int(np.ceil((np.arcsinh(fine.reach) - _EDGES[-1]) / _WIDEST))
    edges = np.array([*_EDGES[:-1], *np.linspace(_EDGES[-1], np.arcsinh(fine.reach), more + 1)])
    places, to_terms = chebyshev(_TERMS)
    nodes = (edges[:-1, None] + edges[1:, None]) / 2 + np.diff(edges)[:, None] / 2 * places
    try:
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            made = _tabulate(phi, np.sinh(nodes.ravel()), fine.stds)
            if made is None:
                return None
            table, functions = made
            functions = to_terms @ functions.reshape(len(nodes), _TERMS, -1)
            known = Kept(table, edges, functions, 0.0, fine.reach, (np.inf, np.inf))
            s = jnp.asarray(fine.reach * _PROBES)
            errors = [np.asarray(e) for e in _errors(phi, table, known.basis(s), s)]
    except jax.errors.JAXTypeError:  # φ holds traced values and cannot be evaluated here
        return None
    comparable = _PROBES[:, None] >= LEAST * _PROBES
    errors = [np.where(comparable & comparable.T, np.max(e, axis=0), 0) for e in errors]
    for first in range(len(_PROBES) - 1):  # φ may be far smaller at small arguments
        bounds = tuple(float(np.max(e[first:, first:])) for e in errors)
        if max(bounds) <= _ACCEPTED:
            least = fine.reach * _PROBES[first] if first else 0.0
            return known._replace(least=least, errors=bounds)
    return None


def _tabulate(
    phi: ActivationFunction, s: np.ndarray, count: int
) -> tuple[Table, np.ndarray] | None:
    """Return a table in the ``count`` most important functions of s, and these at all s.

    They are those of h and of D at a few angles. The whole table is made at the s where these are
    most independent. None if D is not finite.
    """
    parts = np.asarray(_at_few_angles(phi, jnp.asarray(s)))
    largest = np.max(np.abs(parts), axis=(1, 2), keepdims=True)
    if not np.isfinite(largest).all():
        return None
    both = np.concatenate(parts / np.where(largest > 0, largest, 1), axis=1)
    functions = np.linalg.svd(both, full_matrices=False)[0][:, :count]
    pivots: Any = qr(functions.T, mode="r", pivoting=True)
    chosen = np.sort(pivots[1][:count])
    *values, sharpness = map(np.asarray, _whole_table(phi, jnp.asarray(s[chosen])))
    inverse = np.linalg.inv(functions[chosen])
    cores: list[Any] = [*(inverse @ part @ inverse.T for part in values), sharpness]
    return Table(*cores), functions


@partial(jax.jit, static_argnums=0)
def _at_few_angles(phi: ActivationFunction, s: Array) -> Array:
    fine = resolution(reach_of(phi))
    slopes = lax.map(partial(derivative_moments, phi, fine, s), jnp.asarray(_ANGLES, s.dtype))
    return jnp.concatenate([collinear(phi, fine, s)[None], slopes])


@partial(jax.jit, static_argnums=0)
def _whole_table(phi: ActivationFunction, s: Array) -> Table:
    fine = resolution(reach_of(phi))
    return tabulate(phi, fine, s, jnp.asarray(3 * fine.reach, s.dtype))


@partial(jax.jit, static_argnums=0)
def _errors(phi: ActivationFunction, table: Table, basis: Array, s: Array) -> tuple[Array, Array]:
    return errors_at(phi, table, basis, s)
