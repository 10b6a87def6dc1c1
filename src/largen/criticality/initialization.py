"""Recommended σ_w and σ_b for propagating signals through a given depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from largen.bibliography import cites
from largen.criticality.all_fixed_points import depth_scale
from largen.criticality.edge import CriticalPoint, edge_of_chaos
from largen.criticality.maps import checked_activation, expectations
from largen.criticality.residual import relative_variance
from largen.errors import InvalidInput, NoTheory, one_of
from largen.expectations import ActivationFunction
from largen.results import Result, with_labels
from largen.scalars import integer, integers

if TYPE_CHECKING:
    import xarray

NETWORKS = ("plain", "residual", "layer_norm", "rms_norm")


@cites("poole2016exponential", "schoenholz2017deep", "roberts2022principles")
@dataclass(frozen=True, repr=False)
class Initialization(Result):
    """Recommended constants; made by :func:`critical_initialization`.

    Attributes
    ----------
    weight_std, bias_std
        σ_w and σ_b.
    variance
        The corresponding K of the first layer; 1 if every variance is a fixed point.
    gradient_growth
        The factor by which the mean square of gradients changes over the depth, ∏ χ_⊥.
    correlation_depth
        ξ_c in layers: infinite at criticality, negative where gradients grow.
    variance_depth
        ξ_q in layers: infinite at criticality, and where every variance is a fixed point.
    depth
        L, as given.
    effective_depth
        V/K² at the last layer: the relative variance of a single network's kernel, which grows
        with depth over width; None without widths. Beyond about 1 the infinite-width limit says
        little about a single network. 0 for normalised networks, whose kernel of one input is the
        same in every network.
    reason
        The reason for the recommendation, in words.
    """

    weight_std: float
    bias_std: float
    variance: float
    gradient_growth: float
    correlation_depth: float
    variance_depth: float
    depth: int
    effective_depth: float | None
    reason: str

    @property
    def relative_depth(self) -> float:
        """ξ_c/L: signals propagate through the network if its absolute value is at least 1."""
        return self.correlation_depth / self.depth

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return each number as a scalar variable; the reason is an attribute."""
        import xarray

        names = [name for name in self.__dataclass_fields__ if name != "reason"]
        numbers = {name: ((), getattr(self, name)) for name in names}
        if self.effective_depth is None:
            numbers["effective_depth"] = ((), np.nan)
        return xarray.Dataset(numbers, attrs={"reason": self.reason})

    def __repr__(self) -> str:
        head = f"Initialization: weight_std={self.weight_std:.9g}, bias_std={self.bias_std:.9g}"
        lines = [head, self.reason]
        lines.append(
            f"mean square of gradients × {self.gradient_growth:.4g} over the depth, "
            f"ξ_c/L = {_shown(self.relative_depth)}, ξ_q/L = "
            f"{_shown(self.variance_depth / self.depth)}"
        )
        if self.effective_depth is not None:
            lines.append(
                f"relative variance of the kernel at this width {self.effective_depth:.3g}"
            )
        return "\n  ".join(lines)


def _shown(depth: float) -> str:
    return "∞" if depth == inf else f"{depth:.3g}"


def critical_initialization(
    activation: Any,
    *,
    depth: int,
    widths: int | Sequence[int] | None = None,
    network: Literal["plain", "residual", "layer_norm", "rms_norm"] = "plain",
) -> Initialization:
    """Recommend σ_w and σ_b for a network of given depth.

    For a plain network this is the doubly critical point (χ_∥ = χ_⊥ = 1) if one attracts
    variances, else the point of the edge of chaos with the largest χ_∥. With widths, the variance
    of a single network's kernel of one input is computed by the recursion at order 1/n,

        V ← χ_∥² V + σ_w⁴ Var(φ²)/n,

    which gives V/K² = 5 Σ1/n for relu and (2/3) Σ1/n if K* = 0.

    Parameters
    ----------
    activation
        φ: a name or an elementwise JAX function.
    depth
        The number L of hidden layers, or of branches of a residual network.
    widths
        Widths of the hidden layers: one number, or one for each layer, all equal in a residual
        network.
    network
        ``"plain"``; ``"residual"``, h ← h + Wφ(h)/√(Ln), which needs no tuning;
        ``"layer_norm"`` or ``"rms_norm"``, a plain network that normalises φ(h) in every layer,
        so that K = σ_w²: at K = 1 its gradients grow by E[φ'²]/Var φ or E[φ'²]/E[φ²] > 1 a
        layer. Both normalisations of preactivations, which have no mean, count as the latter.

    Raises
    ------
    InvalidInput
        For unequal widths in a residual network.
    NoTheory
        If φ jumps, or has no edge of chaos with σ_b² ≥ 0.

    Examples
    --------
    >>> import largen as lg
    >>> lg.criticality.critical_initialization("relu", depth=50, widths=100)
    Initialization: weight_std=1.41421356, bias_std=0
      scale-invariant: every variance is kept, and so are gradients
      mean square of gradients × 1 over the depth, ξ_c/L = ∞, ξ_q/L = ∞
      relative variance of the kernel at this width 2.5
    """
    phi = checked_activation(activation, "lg.criticality.critical_initialization")
    depth = integer("depth", depth, at_least=1)
    inverse = _inverse_widths(widths, depth)
    one_of("network", network, NETWORKS)
    if network == "residual":
        return _residual(phi, depth, inverse)
    if network != "plain":
        return _normalise(phi, depth, network, inverse)
    edge = edge_of_chaos(phi)
    attracting = [p for p in edge.critical_points if p.attracts != "nothing"]
    if attracting:
        best = attracting[0]
        K = best.variance or 1 / (1 - best.curvature / 2)  # a size that is quickly forgotten
        return _at(phi, best.weight_std, best.bias_std, K, depth, inverse, _reason(best))
    if not len(edge.variance):
        raise NoTheory(
            f"lg.criticality.critical_initialization: {phi} has no edge of chaos: σ_w² = 1/E[φ'²] "
            "makes the variance grow at every K. Subtract its mean, or take a residual network."
        )
    i = int(np.argmin(np.abs(1 - np.abs(edge.chi_parallel))))
    parallel = float(edge.chi_parallel[i])
    reason = (
        f"on the edge of chaos at K* = {edge.variance[i]:.4g}: gradients are kept, each layer "
        f"multiplies differences of the variance by {parallel:.4g}; no point of the edge is "
        "critical in both"
        + (", nor does this one attract variances near it" if abs(parallel) > 1 + 1e-6 else "")
    )
    constants = float(edge.weight_std[i]), float(edge.bias_std[i]), float(edge.variance[i])
    return _at(phi, *constants, depth, inverse, reason, parallel)


def _inverse_widths(widths: int | Sequence[int] | None, depth: int) -> np.ndarray | None:
    if widths is None:
        return None
    if isinstance(widths, (int, np.integer)):
        return np.full(depth, 1 / integer("widths", widths, at_least=1))
    sizes = integers("widths", widths, at_least=1)
    if len(sizes) != depth:
        raise InvalidInput(f"widths: wanted one for each of {depth} layers, got {len(sizes)}.")
    return 1 / np.array(sizes, float)


def _reason(point: CriticalPoint) -> str:
    if point.kind == "scale-invariant":
        return "scale-invariant: every variance is kept, and so are gradients"
    if point.kind == "K* = 0":
        return (
            "critical at K* = 0: the variance falls as 1/ℓ whatever the inputs' size, and "
            f"gradients' mean squares change as ℓ^{-point.gradient_exponent:.3g}"
        )
    return (
        f"half-stable at K* = {point.variance:.7g}: scale inputs to this variance; it attracts "
        f"from {point.attracts} only, and there is another fixed point close by "
        "(lg.criticality.variance_fixed_points)"
    )


def _at(phi, weight_std, bias_std, K, depth, inverse, reason, parallel=1.0) -> Initialization:
    weight, bias, start = weight_std**2, bias_std**2, float(K)
    growth, V = 1.0, 0.0
    for layer in range(depth):
        moments = expectations(phi, np.array([K]))
        second, slope = float(moments.second[0, 0]), float(moments.slope[0, 0])
        if inverse is not None:
            noise = weight**2 * (float(moments.fourth[0]) - second**2)
            V = (weight * float(moments.second[1, 0])) ** 2 * V + noise * inverse[layer]
        growth *= weight * slope
        K = bias + weight * second
    effective = None if inverse is None else V / K**2
    scales = inf, depth_scale(parallel), depth
    return Initialization(weight_std, bias_std, start, growth, *scales, effective, reason)


def _residual(phi: ActivationFunction, depth: int, inverse: np.ndarray | None) -> Initialization:
    weight_std = float(expectations(phi, np.ones(1)).slope[0, 0]) ** -0.5
    K, growth, difference = 1.0, 1.0, 1.0
    for _ in range(depth):
        moments = expectations(phi, np.array([K]))
        difference *= 1 + weight_std**2 * float(moments.second[1, 0]) / depth
        growth *= 1 + weight_std**2 * float(moments.slope[0, 0]) / depth
        K += weight_std**2 * float(moments.second[0, 0]) / depth
    reason = (
        "branches of 1/√L: variances and gradients grow by a bounded factor at any depth and any "
        "constants of order one; these let gradients grow by about e"
    )
    effective = None
    if inverse is not None:
        if np.ptp(inverse) > 0:
            raise InvalidInput("widths: a residual network has one width, got several.")
        width = round(1 / inverse[0])
        effective = relative_variance(phi, weight_std**2, 1 / depth, depth, width, 1.0)
    scales = depth_scale(growth ** (1 / depth)), depth_scale(difference ** (1 / depth)), depth
    return Initialization(weight_std, 0.0, 1.0, growth, *scales, effective, reason)


def _normalise(
    phi: ActivationFunction, depth: int, network: str, inverse: np.ndarray | None
) -> Initialization:
    moments = expectations(phi, np.ones(1))
    second, mean = float(moments.second[0, 0]), float(moments.mean[0])
    spread = second - (mean**2 if network == "layer_norm" else 0)
    chi = float(moments.slope[0, 0]) / spread
    reason = (
        f"normalised in every layer: gradients grow by {chi:.4g} a layer at K = 1, and more than 1 "
        "at every K (Poincaré's inequality: only a linear φ has 1). Put the normalisation into "
        "residual branches instead"
    )
    scales = depth_scale(chi), 0.0, depth  # every input has the same variance in each layer
    effective = None if inverse is None else 0.0
    return Initialization(1.0, 0.0, 1.0, chi**depth, *scales, effective, reason)
