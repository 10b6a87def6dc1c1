"""All fixed points of the variance and the correlation of deep networks."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf, log
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from largen.bibliography import cites
from largen.criticality.maps import (
    LARGEST,
    TINY,
    checked_activation,
    checked_constants,
    expectations,
    next_correlation,
    on_grid,
    scale_invariant,
)
from largen.criticality.roots import all_roots
from largen.errors import NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import values
from largen.results import Result, with_labels
from largen.scalars import flag, real
from largen.text import aligned

if TYPE_CHECKING:
    import xarray

RTOL = 1e-10  # of M(K) − K relative to K, for a double root
NEUTRAL = 1e-9  # of |χ_∥| − 1
_STEPS = 20_000  # layers within which an oscillating variance must converge


@dataclass(frozen=True)
class FixedPoint:
    """A fixed point K* = M(K*) of the variance, and the dynamics near it.

    Attributes
    ----------
    variance
        K*.
    chi_parallel, chi_perp
        χ_∥ = M'(K*), the factor by which a small change of the variance grows in one layer,
        negative if it oscillates; χ_⊥ = σ_w² E[φ'²], the factor for a gradient's mean square.
    curvature
        M''(K*).
    stable_from_below, stable_from_above
        Whether slightly smaller, or slightly larger, variances converge to K*.
    correlation
        c*, the limit of the correlation of inputs with this variance.
    variance_depth, correlation_depth
        ξ_q = −1/log|χ_∥| and ξ_c = −1/log(σ_w² E[φ'φ'] at c*): layers in which a perturbation falls
        by a factor e; negative if it grows, infinite at criticality.
    """

    variance: float
    chi_parallel: float
    chi_perp: float
    curvature: float
    stable_from_below: bool
    stable_from_above: bool
    correlation: float
    variance_depth: float
    correlation_depth: float

    @property
    def stable(self) -> bool:
        """Whether variances from both sides converge to K*; at K* = 0 only from above."""
        return self.stable_from_above and (self.stable_from_below or self.variance == 0)

    @property
    def half_stable(self) -> bool:
        """Whether K* > 0 and variances converge to K* from one side only."""
        return self.variance > 0 and self.stable_from_below != self.stable_from_above

    @property
    def oscillates(self) -> bool:
        """Whether the variance alternates about K* from layer to layer (χ_∥ < 0)."""
        return self.chi_parallel < 0


@cites("poole2016exponential", "schoenholz2017deep", "bahri2022les")
@dataclass(frozen=True, repr=False)
class FixedPoints(Result):
    """All fixed points of the variance for given constants; made by :func:`variance_fixed_points`.

    Attributes
    ----------
    activation, weight_std, bias_std
        φ, σ_w and σ_b.
    points
        The fixed points in ascending order of their variance.
    every_variance
        Whether every K is a fixed point: φ(sz) = s φ(z) with σ_w² E[φ²] = K. One point, at
        variance 1, then represents all.
    """

    activation: ActivationFunction
    weight_std: float
    bias_std: float
    points: tuple[FixedPoint, ...]
    every_variance: bool = False

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> FixedPoint:
        return self.points[index]

    def reached_from(self, variance: float) -> FixedPoint | None:
        """Return the fixed point to which a variance of the first layer converges.

        None if the variance grows without bound or does not converge.

        Parameters
        ----------
        variance
            K¹, at least 0.
        """
        K = real("variance", variance, at_least=0.0)
        if self.every_variance:
            return self.points[0]
        grid, known = on_grid(self.activation)
        between = self.weight_std**2 * known.second[1]
        for point in self.points:
            if abs(K - point.variance) <= 4e-16 * point.variance:
                return point
        if np.all(between >= 0) and grid[-1] >= K:  # the map is monotone: none is passed over
            return self._next(K)
        return self._iterate(K)

    def _next(self, K: float) -> FixedPoint | None:
        if self._step(K) > K:
            return min(
                (p for p in self.points if p.variance > K), key=lambda p: p.variance, default=None
            )
        return max(
            (p for p in self.points if p.variance < K), key=lambda p: p.variance, default=None
        )

    def _step(self, K: float) -> float:
        if K == 0:
            value = float(values(self.activation, np.zeros(1))[0][0])
            return self.bias_std**2 + self.weight_std**2 * value**2
        second = expectations(self.activation, np.array([K])).second[0, 0]
        return self.bias_std**2 + self.weight_std**2 * float(second)

    def _iterate(self, K: float) -> FixedPoint | None:
        for _ in range(_STEPS):
            new = self._step(K)
            if not new < 10 * LARGEST:
                return None
            if abs(new - K) <= 1e-13 * max(new, 1e-300):
                break
            K = new
        near = [p for p in self.points if abs(K - p.variance) <= 1e-2 * max(p.variance, K)]
        return min(near, key=lambda p: abs(K - p.variance), default=None)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the attributes of all points over ``point``."""
        import xarray

        names = list(FixedPoint.__dataclass_fields__)
        return xarray.Dataset(
            {name: ("point", np.array([getattr(p, name) for p in self.points])) for name in names},
            attrs={
                "activation": str(self.activation),
                "weight_std": self.weight_std,
                "bias_std": self.bias_std,
            },
        )

    def __repr__(self) -> str:
        head = (
            f"FixedPoints: {self.activation}, weight_std={self.weight_std:.8g}, "
            f"bias_std={self.bias_std:.8g}"
        )
        if not self.points:
            return f"{head}: none; the variance grows without bound"
        rows = [["variance", "χ_∥", "χ_⊥", "stable from", "c*", "ξ_q", "ξ_c"]]
        for p in self.points:
            sides = [
                name
                for name, there in (
                    ("below", p.stable_from_below and p.variance > 0),
                    ("above", p.stable_from_above),
                )
                if there
            ]
            rows.append(
                [
                    "every" if self.every_variance else f"{p.variance:.7g}",
                    f"{p.chi_parallel:.7g}",
                    f"{p.chi_perp:.7g}",
                    " and ".join(sides) or "nowhere",
                    f"{p.correlation:.4g}",
                    f"{p.variance_depth:.4g}",
                    f"{p.correlation_depth:.4g}",
                ]
            )
        return "\n  ".join([head, *aligned(rows)])


def variance_fixed_points(
    activation: Any, weight_std: float, bias_std: float = 0.0, *, throw: bool = True
) -> FixedPoints:
    """Return all fixed points of the variance, K* = σ_b² + σ_w² E[φ(√K* z)²].

    Poole et al. (2016); Schoenholz et al. (2017); Bahri and Hanin, Les Houches lectures, eqs.
    (38)-(43), of which (43) prints ξ_c for ξ_c⁻¹. The search covers variances from 1e-6 to 1e3
    and 0; double roots, at which M touches the diagonal, are found as roots of M' = 1.

    Parameters
    ----------
    activation
        φ: a name or an elementwise JAX function.
    weight_std, bias_std
        σ_w and σ_b of every affine map.
    throw
        Whether to raise if there is no fixed point.

    Raises
    ------
    InvalidInput
        For constants that are not finite or of the wrong sign, or an activation that is constant.
    NoTheory
        If φ jumps.
    NumericalFailure
        If the variance grows without bound from every input; ``result`` has no points.

    Examples
    --------
    >>> import largen as lg
    >>> result = lg.criticality.variance_fixed_points("tanh", 1.5)
    >>> print(result)
    FixedPoints: tanh, weight_std=1.5, bias_std=0
      variance  χ_∥        χ_⊥       stable from      c*  ξ_q     ξ_c
      --------  ---------  --------  ---------------  --  ------  ------
      0         2.25       2.25      nowhere          1   -1.233  -1.233
      0.793354  0.5046778  1.139323  below and above  0   1.462   17.05
    >>> round(result.reached_from(0.01).variance, 6)
    0.793354
    """
    phi = checked_activation(activation, "lg.criticality.variance_fixed_points")
    weight_std, bias_std = checked_constants(weight_std, bias_std)
    throw = flag("throw", throw)
    if scale_invariant(phi):
        result = _of_scale_invariant(phi, weight_std, bias_std)
    else:
        result = FixedPoints(phi, weight_std, bias_std, _found(phi, weight_std**2, bias_std**2))
    if throw and not result.points:
        raise NumericalFailure(
            f"lg.criticality.variance_fixed_points: with weight_std={weight_std:g} the variance of "
            f"{phi} grows without bound. Take a smaller one; lg.criticality.edge_of_chaos has "
            f"where gradients are kept.",
            result,
        )
    return result


def _of_scale_invariant(phi: ActivationFunction, weight_std: float, bias_std: float) -> FixedPoints:
    weight, bias = weight_std**2, bias_std**2
    ratio = weight * float(expectations(phi, np.ones(1)).second[0, 0])
    neutral = abs(ratio - 1) < NEUTRAL
    if bias == 0:
        place = 1.0 if neutral else 0.0
    elif ratio < 1 and not neutral:
        place = bias / (1 - ratio)
    else:
        return FixedPoints(phi, weight_std, bias_std, ())
    point = _point(phi, weight, bias, place)
    return FixedPoints(phi, weight_std, bias_std, (point,), neutral)


def _found(phi: ActivationFunction, weight: float, bias: float) -> tuple[FixedPoint, ...]:
    grid, known = on_grid(phi)

    def derivatives(K: np.ndarray) -> np.ndarray:
        return _shift(expectations(phi, K).second, weight, bias, K)

    roots = all_roots(derivatives, grid, _shift(known.second, weight, bias, grid), RTOL)
    places = [root.place for root in roots]
    at_zero = bias + weight * float(values(phi, np.zeros(1))[0][0]) ** 2
    if at_zero == 0:
        places = [0.0, *places]
    return tuple(
        _point(phi, weight, bias, place, double)
        for place, double in zip(
            places, [False] * (at_zero == 0) + [root.double for root in roots], strict=True
        )
    )


def _shift(second: np.ndarray, weight: float, bias: float, K: np.ndarray) -> np.ndarray:
    """Return M(K) − K with its first two derivatives."""
    return np.stack([bias + weight * second[0] - K, weight * second[1] - 1, weight * second[2]])


def _point(
    phi: ActivationFunction, weight: float, bias: float, K: float, double: bool = False
) -> FixedPoint:
    moments = expectations(phi, np.array([max(K, TINY)]))
    _, parallel, curvature = weight * moments.second[:3, 0]
    perp = weight * float(moments.slope[0, 0])
    if scale_invariant(phi):
        parallel, curvature = perp, 0.0
    if double or abs(abs(parallel) - 1) < NEUTRAL:
        # Displacements δ move by M''δ²/2 in a layer: towards 0 on one side only.
        below, above = bool(curvature >= 0), bool(curvature <= 0)
        parallel = 1.0 if double else parallel
    else:
        below = above = bool(abs(parallel) < 1)
    correlation, slope = _correlation(phi, K, weight, perp)
    return FixedPoint(
        variance=float(K),
        chi_parallel=float(parallel),
        chi_perp=perp,
        curvature=float(curvature),
        stable_from_below=below,
        stable_from_above=above,
        correlation=correlation,
        variance_depth=depth_scale(float(parallel)),
        correlation_depth=depth_scale(slope),
    )


def depth_scale(factor: float) -> float:
    """Return −1/log|χ|, infinite within rounding of |χ| = 1, and 0 for χ = 0."""
    size = abs(factor)
    if size == 0:
        return 0.0
    exponent = log(size)
    return inf if abs(exponent) < NEUTRAL else -1 / exponent


def _correlation(
    phi: ActivationFunction, K: float, weight: float, perp: float
) -> tuple[float, float]:
    """Return c* and the slope of the correlation's map there.

    The map is a power series in c with non-negative coefficients, hence convex for c ≥ 0: if its
    slope at c = 1 exceeds 1, it crosses the diagonal once more, between 0 and 1.
    """
    if K == 0 or perp <= 1 + NEUTRAL:
        return 1.0, perp

    def excess(gap: float) -> float:
        return float(next_correlation(phi, K, weight, np.array(gap))[0]) - gap

    smallest = 1e-12
    while smallest < 1 and excess(smallest) <= 0:  # rounding near criticality
        smallest *= 10
    if smallest >= 1 or isinf(smallest):
        return 1.0, perp
    gap = 1.0 if excess(1.0) >= -1e-14 else float(brentq(excess, smallest, 1.0, xtol=1e-15))  # type: ignore[arg-type]
    slope = float(next_correlation(phi, K, weight, np.array(gap))[1])
    return 1 - gap, slope
