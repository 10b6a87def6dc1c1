"""Integration of kernels over the depth of infinitely many residual blocks.

Behind a share τ ∈ [0, 1] of the blocks, variances, gaps and the tangent kernel obey ∂τ y = f(y)
with the kernels f of the branch. The method of Dormand and Prince of order 8 solves this equation
with the same steps for all pairs of samples, so that kernels computed in tiles stay symmetric and
positive semidefinite. For activations with kinks, the angle θ between two nearly opposite samples
departs from π as π − θ ∝ √(τ + τ₀); steps are therefore equal in √(τ + a), in which the solution is
smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

STAGES = 13
MOST_STEPS = 32
ROWS = 10  # rows of a kernel that are integrated together


class Tableau(NamedTuple):
    """Coefficients of a Runge-Kutta method."""

    rows: np.ndarray  # a_ij, of the slope at stage j in the argument of stage i, (STAGES, STAGES)
    step: np.ndarray  # weights b_j of the step, (STAGES,)
    places: np.ndarray  # where the stages are in the step, as a share of it, (STAGES,)


class StreamConstants(NamedTuple):
    """The constants of infinitely many blocks."""

    numbers: Any  # those of their branches
    steps: Any  # the steps in depth, from steps_of


@cache
def tableau() -> Tableau:
    """Return the coefficients of the method.

    The last stage of the published table, at the end of the step, only serves interpolation and is
    left out.
    """
    import diffrax  # takes longer to import than kernels of most networks to compute

    table = diffrax.Dopri8.tableau
    rows = np.zeros((STAGES, STAGES))
    for stage, row in enumerate(table.a_lower[: STAGES - 1], start=1):
        rows[stage, :stage] = row
    places = np.concatenate([[0.0], np.asarray(table.c)])[:STAGES]
    return Tableau(rows, np.asarray(table.b_sol)[:STAGES], places)


def steps_of(count: int, start: float) -> np.ndarray:
    """Return dτ and τ at each stage, (2, MOST_STEPS, STAGES), of ``count`` steps equal in s.

    With s from 0 to 1, τ = ((s + start)² − start²)/(1 + 2 start), so that s is linear in √(τ + a)
    for a = start²/(1 + 2 start). The remaining MOST_STEPS − ``count`` steps have zeros.
    """
    s = (np.arange(count)[:, None] + tableau().places) / count
    found = np.zeros((2, MOST_STEPS, STAGES))
    found[0, :count] = 2 * (s + start) / (1 + 2 * start) / count
    found[1, :count] = s * (s + 2 * start) / (1 + 2 * start)
    return found


@cache
def usual_steps() -> np.ndarray:
    """Return the steps to take where the angles between samples are not known."""
    return steps_of(8, 0.0)


def integrate_plainly(slope: Callable[[np.ndarray], np.ndarray], y: np.ndarray) -> np.ndarray:
    """Return y(1) for ∂τ y = slope(y) from y(0), in NumPy and with MOST_STEPS steps."""
    for dt in steps_of(MOST_STEPS, 0.0)[0]:
        known = np.zeros((STAGES, *y.shape))
        for n, row in enumerate(tableau().rows):
            known[n] = dt[n] * slope(y + np.tensordot(row, known, 1))
        y = y + np.tensordot(tableau().step, known, 1)
    return y


def integrate(slope: Callable[[Any, Any], Any], y: Any, steps: Any) -> Any:
    """Return y(1) for ∂τ y = slope(τ, y) from y(0), with y any tree of arrays.

    ``slope``: ``slope(τ, y)`` returns ∂τ y, a tree like y. ``y``: the value y(0). ``steps``: dτ and
    τ of the stages, from :func:`steps_of`; steps of length zero are skipped.
    """
    leaves, tree = jax.tree.flatten(y)

    def stage(leaves: list[Any], dt: Any, tau: Any) -> list[Any]:
        found = jax.tree.leaves(slope(tau, jax.tree.unflatten(tree, leaves)))
        return [dt * f for f in found]

    def step(leaves: list[Any], places: Any) -> list[Any]:
        dt, tau = places
        rows = jnp.asarray(tableau().rows, dt.dtype)

        def one(n: Any, known: list[Any]) -> list[Any]:
            at = [y + jnp.tensordot(rows[n], k, 1) for y, k in zip(leaves, known, strict=True)]
            return [
                lax.dynamic_update_index_in_dim(k, f, n, 0)
                for k, f in zip(known, stage(at, dt[n], tau[n]), strict=True)
            ]

        def scanned(known: list[Any], n: Any) -> tuple[list[Any], None]:
            return one(n, known), None

        empty = [jnp.zeros((STAGES, *y.shape), y.dtype) for y in leaves]
        known, _ = lax.scan(scanned, empty, jnp.arange(STAGES))
        weights = jnp.asarray(tableau().step, dt.dtype)
        return [y + jnp.tensordot(weights, k, 1) for y, k in zip(leaves, known, strict=True)]

    def taken(leaves: list[Any], places: Any) -> tuple[list[Any], None]:
        skip = lambda leaves, places: leaves  # noqa: E731
        return lax.cond(places[0][-1] > 0, step, skip, leaves, places), None

    leaves, _ = lax.scan(taken, leaves, tuple(lax.stop_gradient(steps)))
    return jax.tree.unflatten(tree, leaves)


def by_rows(function: Callable[[Any], Any], rows: Any) -> Any:
    """Return function(rows), evaluated for a few rows, of the first axis of all arrays, at a time.

    All stages of a step are kept in memory, and those of a few rows fit in a core's cache.
    """
    number = len(jax.tree.leaves(rows)[0])
    blocks = -(-number // ROWS)
    if blocks < 2:
        return function(rows)

    def cut(x: Any) -> Any:
        x = jnp.pad(x, [(0, blocks * ROWS - number), *[(0, 0)] * (x.ndim - 1)], mode="edge")
        return x.reshape(blocks, ROWS, *x.shape[1:])

    found = lax.map(function, jax.tree.map(cut, rows))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:number], found)
