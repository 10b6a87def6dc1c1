"""The maps that carry variances, gradients and correlations through a wide layer.

With z ~ N(0, K) and the constants σ_w, σ_b of an affine map (Bahri and Hanin, Les Houches lectures,
section 2.2; Roberts, Yaida and Hanin, chapter 5),

    M(K) = σ_b² + σ_w² E[φ(z)²],        χ_∥ = M'(K) = (σ_w²/2) E[(φ²)''],
    χ_⊥(K) = σ_w² E[φ'(z)²],            c ← [σ_b² + σ_w² E[φ(u)φ(v)]]/K.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import InvalidInput, NoTheory
from largen.expectations import ActivationFunction, as_activation, pair_moments
from largen.expectations.nodes import derivatives_in_variance, jumps, nodes_for, values
from largen.scalars import real

SMALLEST, LARGEST = 1e-6, 1e3  # variances between which fixed points are searched for
_GRID = 1080
_AT_ONCE = 2**21  # values of φ held at a time
TINY = 1e-10  # the variance that replaces 0 in derivatives


@dataclass(frozen=True)
class Expectations:
    """Averages of φ at given variances, without σ_w and σ_b; arrays of the shape of K."""

    second: np.ndarray  # E[φ²] and its derivatives in K up to the third, (4, *K)
    slope: np.ndarray  # E[φ'²] and its derivatives up to the second, (3, *K)
    # fourth, slope_fourth: E[φ⁴] and E[φ'⁴].
    fourth: np.ndarray
    slope_fourth: np.ndarray
    mean: np.ndarray  # E[φ]


def expectations(phi: ActivationFunction, variance: np.ndarray) -> Expectations:
    """Return averages of φ at variances K > 0; NaN where they are not resolved."""
    K = np.asarray(variance, np.float64)
    flat = K.ravel()
    parts, start = [], 0
    while start < flat.size:
        many = max(1, _AT_ONCE // len(nodes_for(phi, flat[start : start + 1]).z))
        parts.append(_expectations(phi, flat[start : start + many]))
        start += many
    joined = [np.concatenate(x, axis=-1) for x in zip(*parts, strict=True)]
    return Expectations(*(x.reshape(*x.shape[:-1], *K.shape) for x in joined))


def _expectations(phi: ActivationFunction, K: np.ndarray) -> tuple[np.ndarray, ...]:
    nodes = nodes_for(phi, K)
    value, slope = values(phi, np.sqrt(K) * nodes.z)
    # Averages dominated by z beyond the last nodes, as those of exp at large K, are not resolved.
    outer = np.where(np.abs(nodes.z) > 8, value**2 + slope**2, 0) * nodes.z**4 * nodes.weights
    lost = np.sum(outer, axis=0) > 1e-8 * np.sum((value**2 + slope**2) * nodes.weights, axis=0)
    value, slope = np.where(lost, np.nan, value), np.where(lost, np.nan, slope)
    return (
        derivatives_in_variance(value**2, nodes, K, 3),
        derivatives_in_variance(slope**2, nodes, K, 2),
        np.sum(value**4 * nodes.weights, axis=0),
        np.sum(slope**4 * nodes.weights, axis=0),
        np.sum(value * nodes.weights, axis=0),
    )


@lru_cache(maxsize=64)
def on_grid(phi: ActivationFunction) -> tuple[np.ndarray, Expectations]:
    """Return variances in geometric steps up to :data:`LARGEST` or overflow, and the averages."""
    grid = np.geomspace(SMALLEST, LARGEST, _GRID)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [expectations(phi, part) for part in np.split(grid, 12)]
        joined = Expectations(
            *(
                np.concatenate([getattr(f, name) for f in parts], axis=-1)
                for name in Expectations.__dataclass_fields__
            )
        )
    fine = np.isfinite(joined.second).all(axis=0) & np.isfinite(joined.slope).all(axis=0)
    count = len(grid) if fine.all() else int(np.argmin(fine))
    cut = Expectations(
        *(getattr(joined, name)[..., :count] for name in Expectations.__dataclass_fields__)
    )
    return grid[:count], cut


@lru_cache(maxsize=256)
def scale_invariant(phi: ActivationFunction) -> bool:
    """Whether φ(sz) = s φ(z) for s > 0, so that E[φ²] is proportional to K."""
    x = np.array([0.37, 1.0, 2.9, 11.0])
    for side in (x, -x):
        value, _ = values(phi, side)
        if not np.allclose(value / side, value[1] / side[1], rtol=1e-12, atol=0):
            return False
    return float(values(phi, np.zeros(1))[0][0]) == 0.0


def next_correlation(
    phi: ActivationFunction, variance: float, weight: float, gap: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 − c after a layer and σ_w²E[φ'φ'], given 1 − c before it, at fixed variance K."""
    with jax.enable_x64(True):
        K = jnp.asarray(variance, jnp.float64)
        moments = pair_moments(phi, K, K, K * jnp.asarray(gap, jnp.float64))
    new, slope = (np.asarray(weight * np.asarray(each)) for each in moments)
    return np.asarray(new / variance), slope


def checked_activation(spec: object, what: str) -> ActivationFunction:
    """Check the argument ``activation``: φ must be continuous and not constant."""
    phi = as_activation(spec)
    if jumps(phi)[0]:
        raise NoTheory(
            f"{what}: {phi} jumps, so that the average of φ'² diverges: no initialisation of it "
            "keeps gradients finite."
        )
    value, slope = values(phi, np.linspace(-3, 3, 61))
    if not np.isfinite(value).all() or not np.isfinite(slope).all():
        raise InvalidInput(f"activation: {phi} is not finite between −3 and 3.")
    if not slope.any():
        raise InvalidInput(f"activation: {phi} is constant, so that no input passes through it.")
    return phi


def checked_constants(weight_std: object, bias_std: object) -> tuple[float, float]:
    """Check the arguments σ_w and σ_b."""
    return real("weight_std", weight_std, above=0.0), real("bias_std", bias_std, at_least=0.0)
