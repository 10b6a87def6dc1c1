"""The phase diagram over σ_w and σ_b: order, chaos, and depth scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from scipy.interpolate import CubicHermiteSpline

from largen.architectures import Layer
from largen.arrays import floating, numbers
from largen.bibliography import cites
from largen.criticality.drawn import DrawnNetworks, draw
from largen.criticality.edge import edge_of_chaos
from largen.criticality.maps import LARGEST, checked_activation, on_grid
from largen.criticality.plane import stationary_correlations
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction
from largen.results import Result, with_labels
from largen.scalars import integer, random_key

if TYPE_CHECKING:
    import xarray

_LAYERS = 4000  # after which the variance has converged or counts as unbounded


@cites("poole2016exponential", "schoenholz2017deep")
@dataclass(frozen=True, repr=False)
class PhaseDiagram(Result):
    """Stationary quantities over a grid of σ_w and σ_b; made by :func:`phase_diagram`.

    ``largen.plots.phase_figure`` draws it.

    Attributes
    ----------
    activation
        φ.
    weight_std, bias_std
        The grid, (i,) and (j,).
    variance
        K*, the limit of an input's variance 1, (i, j); infinite where it grows without bound.
    chi_parallel, chi_perp
        χ_∥ and χ_⊥ at K*; χ_⊥ < 1 is order, χ_⊥ > 1 chaos. NaN where the variance grows.
    correlation
        c*, the limit of two inputs' correlation, (i, j): 1 in order, less in chaos. NaN where the
        variance grows.
    correlation_depth
        ξ_c = −1/log(σ_w² E[φ'φ'] at c*), the layers in which the distance of correlations to c*
        falls by a factor e, (i, j).
    edge
        (σ_w, σ_b) along the line χ_⊥ = 1, (point, 2).
    kernel_variance
        V/K² of a network's last layer, (i, j), at the given width and depth; None if they were not
        given.
    networks
        Measurements of drawn networks of that size; None if none were requested.
    """

    activation: ActivationFunction
    weight_std: np.ndarray
    bias_std: np.ndarray
    variance: np.ndarray
    chi_parallel: np.ndarray
    chi_perp: np.ndarray
    correlation: np.ndarray
    correlation_depth: np.ndarray
    edge: np.ndarray
    kernel_variance: np.ndarray | None
    networks: DrawnNetworks | None = None

    @property
    def gradient_depth(self) -> np.ndarray:
        """|1/log χ_⊥|, the layers in which gradients' mean squares change by a factor e; (i, j)."""
        with np.errstate(divide="ignore"):
            return np.abs(1 / np.log(self.chi_perp))

    @property
    def variance_depth(self) -> np.ndarray:
        """|1/log |χ_∥||, the layers in which changes of variance grow or fall by e; (i, j)."""
        with np.errstate(divide="ignore"):
            return np.abs(1 / np.log(np.abs(self.chi_parallel)))

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the numbers over ``weight_std`` and ``bias_std``, and the edge over ``point``."""
        import xarray

        axes = ("weight_std", "bias_std")
        names = (
            "variance", "chi_parallel", "chi_perp", "correlation", "correlation_depth",
            "gradient_depth", "variance_depth",
        )  # fmt: skip
        variables: dict[str, Any] = {name: (axes, getattr(self, name)) for name in names}
        if self.kernel_variance is not None:
            variables["kernel_variance"] = (axes, self.kernel_variance)
        if self.networks is not None:
            for name in ("growth", "growth_error", "correlation", "correlation_error"):
                variables[f"network_{name}"] = (axes, getattr(self.networks, name))
        variables["edge_weight_std"] = ("point", self.edge[:, 0])
        variables["edge_bias_std"] = ("point", self.edge[:, 1])
        return xarray.Dataset(
            variables,
            {"weight_std": self.weight_std, "bias_std": self.bias_std},
            {"activation": str(self.activation)},
        )

    def __repr__(self) -> str:
        known = np.isfinite(self.variance)
        chaos = np.mean(self.chi_perp[known] > 1) if known.any() else 0.0
        return (
            f"PhaseDiagram: {self.activation}, {len(self.weight_std)} × {len(self.bias_std)} "
            f"points, {chaos:.0%} of them chaotic, {np.mean(~known):.0%} with unbounded variance"
            f"{self._agreement()}"
        )

    def _agreement(self) -> str:
        if self.networks is None:
            return ""
        seen = np.isfinite(self.networks.growth) & np.isfinite(self.chi_perp)
        same = (self.networks.growth > 0) == (self.chi_perp > 1)
        return (
            f"\n  {self.networks.draws} networks of width {self.networks.width}, depth "
            f"{self.networks.depth}: at {np.mean(same[seen]) if seen.any() else 0.0:.0%} of points "
            "gradients grow or vanish as in the limit"
        )


def phase_diagram(
    activation: Any,
    weight_std: ArrayLike | Sequence[float] | None = None,
    bias_std: ArrayLike | Sequence[float] | None = None,
    *,
    width: int | None = None,
    depth: int | None = None,
    draws: int = 0,
    key: Any = 0,
) -> PhaseDiagram:
    """Return the phase diagram over the plane of σ_w and σ_b (Poole et al., 2016).

    The variance map is iterated from 1 until it converges; averages are interpolated between 1080
    variances, to about eight digits. Stationary correlations are those of
    :mod:`largen.criticality.plane`, to eight digits for a smooth φ and three for one with kinks.
    :func:`largen.criticality.network_diagram` is about networks of a given depth, such as residual
    ones.

    Parameters
    ----------
    activation
        φ: a name or an elementwise JAX function.
    weight_std, bias_std
        Values of the grid, (i,) and (j,); by default 0.5 to 3 and 0 to 1.5.
    width, depth
        If both are given, the relative variance V/K² of the kernel of a network of this size is
        computed at every point, to leading order in 1/width: where it exceeds 1, the
        infinite-width limit says little about a single network.
    draws
        Number of networks of this width and depth to draw, with the same weights at every point,
        for comparison with the diagram: at least 2, or 0.
    key
        A JAX key or an integer, for the networks.

    Raises
    ------
    InvalidInput
        For values that are not positive (σ_b: not negative), only one of width and depth, or
        draws without width and depth.
    NoTheory
        If φ jumps.

    Examples
    --------
    >>> import largen as lg
    >>> lg.criticality.phase_diagram("tanh", [0.5, 2.0], [0.1, 0.2])
    PhaseDiagram: tanh, 2 × 2 points, 50% of them chaotic, 0% with unbounded variance
    >>> lg.criticality.phase_diagram("tanh", [0.5, 2.0], [0.1], width=50, depth=5, draws=4, key=0)
    PhaseDiagram: tanh, 2 × 1 points, 50% of them chaotic, 0% with unbounded variance
      4 networks of width 50, depth 5: at 100% of points gradients grow or vanish as in the limit
    """
    if isinstance(activation, Layer) and not activation.elementwise:
        raise InvalidInput(
            "activation: wanted a name or a function, got a network; for its phases pass a "
            "function of σ_w and σ_b that returns it to lg.criticality.network_diagram."
        )
    phi = checked_activation(activation, "lg.criticality.phase_diagram")
    w = axis("weight_std", np.linspace(0.5, 3.0, 61) if weight_std is None else weight_std, 1e-12)
    b = axis("bias_std", np.linspace(0.0, 1.5, 61) if bias_std is None else bias_std, 0.0)
    if (width is None) != (depth is None):
        raise InvalidInput("width, depth: wanted both or neither.")
    draws = integer("draws", draws, at_least=0)
    if draws and (width is None or draws == 1):
        raise InvalidInput(
            f"draws: wanted width, depth and at least 2 networks, got {draws} of width {width}."
        )
    drawing = random_key(key) if draws else None
    second, slope, fourth = _tables(phi)
    weight, bias = np.meshgrid(w**2, b**2, indexing="ij")
    K = np.ones_like(weight)
    for _ in range(_LAYERS):
        new = np.where(np.isfinite(K), bias + weight * second(K), np.inf)
        new = np.where(new > LARGEST, np.inf, new)
        with np.errstate(invalid="ignore"):
            still = (new == K) | (np.abs(new - K) <= 1e-12 * new)
        K = new
        if still.all():
            break
    unbounded = ~np.isfinite(K)
    at = np.where(unbounded, 1.0, K)
    parallel = np.where(unbounded, np.nan, weight * second(at, 1))
    perp = np.where(unbounded, np.nan, weight * slope(at))
    correlation, slope = (
        np.where(unbounded, np.nan, each.reshape(K.shape))
        for each in stationary_correlations(
            phi, weight.ravel(), bias.ravel(), at.ravel(), np.nan_to_num(perp).ravel()
        )
    )
    with np.errstate(divide="ignore"):
        depth_of_correlation = np.abs(1 / np.log(slope))
    line = edge_of_chaos(phi)
    spread = drawn = None
    if width is not None and depth is not None:
        width, depth = integer("width", width, at_least=1), integer("depth", depth, at_least=1)
        spread = _kernel_variance(weight, bias, second, fourth, width, depth)
        if draws:
            drawn = draw(phi, np.sqrt(weight), np.sqrt(bias), width, depth, draws, drawing)
    edge = np.stack([line.weight_std, line.bias_std], axis=1)
    return PhaseDiagram(
        phi, w, b, K, parallel, perp, correlation, depth_of_correlation, edge, spread, drawn
    )


def axis(name: str, given: ArrayLike | Sequence[float], least: float) -> np.ndarray:
    """Return an axis of the plane, whose values are at least ``least``."""
    x = np.asarray(floating(name, numbers(name, given), ndim=1))
    if (x < least).any():
        wanted = "> 0" if least else "≥ 0"
        raise InvalidInput(f"{name}: wanted numbers {wanted}, got {x.min():g}.")
    return x


class _Table:
    """A function of K between grid points, and its first derivative; constant below the grid."""

    def __init__(self, grid: np.ndarray, value: np.ndarray, slope: np.ndarray):
        self._low, self._high = grid[0], grid[-1]
        self._value = CubicHermiteSpline(np.log(grid), value, slope * grid)

    def __call__(self, K: np.ndarray, order: int = 0) -> np.ndarray:
        inside = np.clip(K, self._low, self._high)
        value = self._value(np.log(inside), order)
        return value / inside if order else value


def _tables(phi: ActivationFunction):
    grid, known = on_grid(phi)
    fourth = np.gradient(known.fourth, grid)
    return (
        _Table(grid, known.second[0], known.second[1]),
        _Table(grid, known.slope[0], known.slope[1]),
        _Table(grid, known.fourth, fourth),
    )


def _kernel_variance(weight, bias, second, fourth, width: int, depth: int) -> np.ndarray:
    """Return V/K² after ``depth`` layers, V ← χ_∥²V + σ_w⁴ Var(φ²)/n."""
    K, V = np.ones_like(weight), np.zeros_like(weight)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(depth):
            noise = weight**2 * (fourth(K) - second(K) ** 2) / width
            V = (weight * second(K, 1)) ** 2 * V + noise
            K = bias + weight * second(K)
            K = np.where(K > LARGEST, np.nan, K)
        return V / K**2
