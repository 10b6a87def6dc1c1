"""Steps through a stream of residual blocks without end, and how long they are.

Behind a share τ ∈ [0, 1] of the blocks, variances, gaps and the tangent kernel obey ∂τ y = f(y)
with the kernels f of the branch. Dormand and Prince's method of order 8 solves that in fixed steps,
the same for all pairs of samples, so that kernels of tiles stay symmetric and positive. For
activations with kinks, opposite samples leave their angle π as π − θ ∝ √τ; steps in s = τ^(1/p) see
something smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

STAGES = 13
MOST_STEPS = 32

_TABLEAU = diffrax.Dopri8.tableau
# Rows a_ij of the stages, and the weights b_j of the step behind them. The tableau has a last
# stage more, at the end of the step, for interpolation.
_ROWS = np.zeros((STAGES, STAGES))
for _stage, _row in enumerate(_TABLEAU.a_lower[: STAGES - 1], start=1):
    _ROWS[_stage, :_stage] = _row
_STEP = np.asarray(_TABLEAU.b_sol)[:STAGES]
_PLACES = np.concatenate([[0.0], np.asarray(_TABLEAU.c)])[:STAGES]


def steps_of(count: int, grading: int) -> np.ndarray:
    """Return dτ of each stage, (MOST_STEPS, STAGES), for steps that are equal in s = τ^(1/grading).

    Steps that are not taken have zeros.
    """
    ends = np.linspace(0, 1, count + 1)[:, None]
    length = 1 / count
    s = ends[:-1] + length * _PLACES
    found = np.zeros((MOST_STEPS, STAGES))
    found[:count] = length * grading * s ** (grading - 1)
    return found


USUAL = steps_of(8, 3)  # where nothing is known of the samples


def integrate_plainly(slope: Callable[[np.ndarray], np.ndarray], y: np.ndarray) -> np.ndarray:
    """Return y(1) in NumPy, by the most steps there are."""
    for dt in steps_of(MOST_STEPS, 4):
        known = np.zeros((STAGES, *y.shape))
        for n, row in enumerate(_ROWS):
            known[n] = dt[n] * slope(y + np.tensordot(row, known, 1))
        y = y + np.tensordot(_STEP, known, 1)
    return y


def integrate(slope: Callable[[Any], Any], y: Any, steps: Any) -> Any:
    """Return y(1) for ∂τ y = slope(y) from y(0), with y any tree of arrays.

    Parameters
    ----------
    slope
        The vector field.
    y
        The start.
    steps
        The steps from :func:`steps_of`; steps of size zero are skipped.
    """
    leaves, tree = jax.tree.flatten(y)

    def stage(leaves: list[Any], dt: Any) -> list[Any]:
        found = jax.tree.leaves(slope(jax.tree.unflatten(tree, leaves)))
        return [dt * f for f in found]

    def step(leaves: list[Any], dt: Any) -> list[Any]:
        rows = jnp.asarray(_ROWS, dt.dtype)

        def one(n: Any, known: list[Any]) -> list[Any]:
            at = [y + jnp.tensordot(rows[n], k, 1) for y, k in zip(leaves, known, strict=True)]
            return [
                lax.dynamic_update_index_in_dim(k, f, n, 0)
                for k, f in zip(known, stage(at, dt[n]), strict=True)
            ]

        def scanned(known: list[Any], n: Any) -> tuple[list[Any], None]:
            return one(n, known), None

        empty = [jnp.zeros((STAGES, *y.shape), y.dtype) for y in leaves]
        known, _ = lax.scan(scanned, empty, jnp.arange(STAGES))
        weights = jnp.asarray(_STEP, dt.dtype)
        return [y + jnp.tensordot(weights, k, 1) for y, k in zip(leaves, known, strict=True)]

    def taken(leaves: list[Any], dt: Any) -> tuple[list[Any], None]:
        return lax.cond(dt[-1] > 0, step, lambda leaves, dt: leaves, leaves, dt), None

    leaves, _ = lax.scan(taken, leaves, lax.stop_gradient(steps))
    return jax.tree.unflatten(tree, leaves)
