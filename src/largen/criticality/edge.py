"""The edge of chaos, on which gradients neither vanish nor explode, and its critical points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.arrays import floating, numbers
from largen.bibliography import cites
from largen.criticality.maps import (
    checked_activation,
    expectations,
    next_correlation,
    on_grid,
    scale_invariant,
)
from largen.criticality.roots import sign_changes
from largen.errors import InvalidInput, NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import jumps, kinks_of, values
from largen.results import Result, with_labels
from largen.scalars import real
from largen.text import aligned

if TYPE_CHECKING:
    import xarray

_LARGEST_BIAS = 25.0  # beyond which K* of saturating activations is not below 1e3
Kind = Literal["scale-invariant", "K* = 0", "half-stable"]


@dataclass(frozen=True)
class CriticalPoint:
    """A doubly critical point, χ_∥ = χ_⊥ = 1, and the algebraic change of signals there.

    Roberts, Yaida and Hanin, chapter 5. ℓ counts layers, and all formulas are of leading order
    at large ℓ.

    Attributes
    ----------
    kind
        ``"scale-invariant"``: φ(sz) = s φ(z), every variance is a fixed point. ``"K* = 0"``: the
        variance falls as 1/ℓ. ``"half-stable"``: a double root K* > 0 that attracts from one side.
    variance, weight_std, bias_std
        K* (1 represents all fixed points of a scale-invariant φ), σ_w and σ_b.
    curvature
        M''(K*), so that K − K* → −2/(M''ℓ), from one side.
    attracts
        ``"below"``, ``"above"``, ``"both"`` or ``"nothing"``: the side from which variances
        converge to K*. If a point K* = 0 attracts nothing, small variances grow.
    gradient_exponent
        p in χ_⊥ = 1 − p/ℓ, b₁/a₁ at K* = 0; gradients' mean squares change as ℓ^(−p).
    correlation
        The limit of correlations: 1, or ½ at K* = 0 if φ has a second derivative there; NaN if
        the limit depends on the initial correlation, as for an odd φ.
    correlation_exponent
        p in the distance ℓ^(−p) from this limit: at K* > 0, 1 for a smooth φ and 2 for one with
        kinks; at K* = 0, s₂²/(4|a₁|); NaN if the limit depends on the initial correlation.
    """

    kind: Kind
    variance: float
    weight_std: float
    bias_std: float
    curvature: float
    attracts: str
    gradient_exponent: float
    correlation: float
    correlation_exponent: float

    def variance_after(self, layers: ArrayLike) -> np.ndarray:
        """Return K after many layers, K* − 2/(M''ℓ), or K* for a scale-invariant φ."""
        layers = np.asarray(layers, np.float64)
        if self.kind == "scale-invariant":
            return np.full_like(layers, self.variance)
        return np.asarray(self.variance - 2 / (self.curvature * layers))


@cites("poole2016exponential", "schoenholz2017deep", "roberts2022principles")
@dataclass(frozen=True, repr=False)
class EdgeOfChaos(Result):
    """The line χ_⊥ = 1 of an activation, parameterised by K*; made by :func:`edge_of_chaos`.

    ``largen.plots.edge_figure`` draws it.

    Attributes
    ----------
    activation
        φ.
    variance, weight_std, bias_std, chi_parallel
        K*, σ_w, σ_b and χ_∥ along the line, (point,) each.
    critical_points
        The points of the line with χ_∥ = 1.
    """

    activation: ActivationFunction
    variance: np.ndarray
    weight_std: np.ndarray
    bias_std: np.ndarray
    chi_parallel: np.ndarray
    critical_points: tuple[CriticalPoint, ...]

    def correlation_gap_after(self, layers: ArrayLike, variance: float) -> np.ndarray:
        """Return 1 − c after many layers on the line at a K* > 0, to leading order.

        2/(σ_w²K* E[φ''²] ℓ) for a smooth φ. With jumps Δ_i of φ' at κ_i and the normal density n,

            1 − c → 9/(S²ℓ²),   S = σ_w² Σ_i Δ_i² n(κ_i/√K*)/√π,

        (9π²/2)/ℓ² for relu; it follows from E[φ'φ'] = E[φ'²] − (S/σ_w²)√(1 − c).

        Parameters
        ----------
        layers
            ℓ, any shape.
        variance
            K* of the point on the line.
        """
        K = real("variance", variance, above=0.0)
        return np.asarray(asymptotic_gap(self.activation, K, np.asarray(layers, np.float64)))

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the line over ``variance`` and the doubly critical points over ``critical``."""
        import xarray

        line = {
            name: ("variance", getattr(self, name))
            for name in ("weight_std", "bias_std", "chi_parallel")
        }
        variances = self.critical_points
        points = {
            f"critical_{name}": ("critical", np.array([getattr(p, name) for p in variances]))
            for name in CriticalPoint.__dataclass_fields__
        }
        return xarray.Dataset(
            line | points, {"variance": self.variance}, {"activation": str(self.activation)}
        )

    def __repr__(self) -> str:
        head = f"EdgeOfChaos: {self.activation}, {len(self.variance)} points"
        if len(self.variance):
            low, high = self.weight_std.min(), self.weight_std.max()
            head += f", weight_std {low:.6g} to {high:.6g}"
        if not self.critical_points:
            return f"{head}; none of them with χ_∥ = 1"
        rows = [["class", "K*", "weight_std", "bias_std", "M''", "attracts"]]
        rows += [
            [
                p.kind,
                "every" if p.kind == "scale-invariant" else f"{p.variance:.8g}",
                f"{p.weight_std:.9g}",
                f"{p.bias_std:.9g}",
                f"{p.curvature:.4g}",
                p.attracts,
            ]
            for p in self.critical_points
        ]
        return "\n  ".join([head, *aligned(rows)])


def edge_of_chaos(
    activation: Any,
    variances: ArrayLike | Sequence[float] | None = None,
    *,
    bias_std: ArrayLike | Sequence[float] | None = None,
) -> EdgeOfChaos:
    """Return the line χ_⊥ = σ_w² E[φ'²] = 1 between order and chaos.

    Parameterised by the variance K* instead of σ_b, the line is explicit:

        σ_w² = 1/E[φ'²],   σ_b² = K* − σ_w² E[φ²],   kept where it is not negative.

    "Criticality" sometimes denotes the whole line and sometimes requires χ_∥ = 1 as well: on the
    line of tanh, χ_∥ = 0.548 at K* = ½, and 1 only at K* = 0.

    Parameters
    ----------
    activation
        φ: a name or an elementwise JAX function.
    variances
        K* > 0 of the points to return, (point,); by default from 1e-3 to 1e3. Critical points are
        searched for between 1e-6 and 1e3, and at 0.
    bias_std
        Values of σ_b, (value,), of the points to return instead: which σ_w are critical at a given
        σ_b? Points have the order of the values, and of K* at each. There may be none, as for relu
        at σ_b > 0. Variances near K* converge to it where |χ_∥| < 1.

    Raises
    ------
    InvalidInput
        For variances that are not positive, σ_b outside 0 to 25, both of them, or an activation
        that is constant.
    NoTheory
        If φ jumps.
    NumericalFailure
        If averages at one of the given variances are not resolved, as for exp at large variances,
        or K* of a small σ_b > 0 is below 1e-6.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.criticality.edge_of_chaos("gelu", [3.0, 5.0]))
    EdgeOfChaos: gelu, 2 points, weight_std 1.40224 to 1.41282
      class        K*         weight_std  bias_std     M''         attracts
      -----------  ---------  ----------  -----------  ----------  --------
      K* = 0       0          2           0            3.82        nothing
      half-stable  3.5615528  1.40821101  0.415839381  -0.0002873  above
    >>> lg.criticality.edge_of_chaos("tanh", bias_std=0.05**0.5).weight_std.round(4)
    array([1.327])
    """
    phi = checked_activation(activation, "lg.criticality.edge_of_chaos")
    if bias_std is not None:
        if variances is not None:
            raise InvalidInput("variances: are found from bias_std; pass only one of both.")
        return _at_biases(phi, bias_std)
    K = np.geomspace(1e-3, 1e3, 241) if variances is None else _checked(variances)
    moments = expectations(phi, K)
    if not np.isfinite(moments.slope[0]).all():
        if variances is not None:
            unknown = K[~np.isfinite(moments.slope[0])].min()
            raise NumericalFailure(
                f"variances: the averages of {phi} at K = {unknown:g} are not resolved: the weight "
                "of φ² lies far out in the Gaussian's tail. Take smaller variances."
            )
        K = K[np.isfinite(moments.slope[0])]
        moments = expectations(phi, K)
    weight = 1 / moments.slope[0]
    bias = K - weight * moments.second[0]
    kept = bias >= -1e-13 * K
    return EdgeOfChaos(
        phi,
        K[kept],
        np.sqrt(weight[kept]),
        np.sqrt(np.maximum(bias[kept], 0)),
        (weight * moments.second[1])[kept],
        _critical_points(phi),
    )


def _checked(variances: ArrayLike | Sequence[float]) -> np.ndarray:
    K = np.asarray(floating("variances", np.atleast_1d(numbers("variances", variances)), ndim=1))
    if (K <= 0).any():
        raise InvalidInput(f"variances: wanted numbers > 0, got {K.min():g}.")
    return K


def _at_biases(phi: ActivationFunction, given: Any) -> EdgeOfChaos:
    """Return the points of the edge at given σ_b, of all K* between 1e-6 and 1e3, and of K* = 0."""
    biases = np.asarray(floating("bias_std", np.atleast_1d(numbers("bias_std", given)), ndim=1))
    if ((biases < 0) | (biases > _LARGEST_BIAS)).any():
        raise InvalidInput(
            f"bias_std: wanted numbers from 0 to {_LARGEST_BIAS:g}, got {biases.tolist()}."
        )
    critical = _critical_points(phi)
    at_zero = [p for p in critical if p.kind != "half-stable"]  # σ_b = 0, for all K* or K* = 0
    grid, known = on_grid(phi)
    squares = grid - known.second[0] / known.slope[0]  # σ_b² along the line

    def excess(square: float, K: float) -> float:
        moments = expectations(phi, np.array([K]))
        return float(K - moments.second[0, 0] / moments.slope[0, 0] - square)

    rows = []
    for bias in biases.tolist():
        if bias == 0:
            rows += [(p.variance, p.weight_std, 0.0, 1.0) for p in at_zero]
        if scale_invariant(phi):
            continue
        line = squares - bias**2
        if bias and line[0] > 0:
            raise NumericalFailure(
                f"bias_std: K* of {bias:g} is below {grid[0]:g}, where it is not resolved; take 0, "
                "or a larger one."
            )
        line = np.where(np.abs(line) < 1e-13 * grid, 0, line)
        for K in sign_changes(partial(excess, bias**2), grid, line):
            moments = expectations(phi, np.array([K]))
            weight = 1 / float(moments.slope[0, 0])
            rows.append((K, weight**0.5, bias, weight * float(moments.second[1, 0])))
    variance, weight_std, bias_std, parallel = np.array(rows).reshape(-1, 4).T
    return EdgeOfChaos(phi, variance, weight_std, bias_std, parallel, critical)


def _critical_points(phi: ActivationFunction) -> tuple[CriticalPoint, ...]:
    if scale_invariant(phi):
        weight = 1 / float(expectations(phi, np.ones(1)).slope[0, 0])
        end = (1.0, 2.0) if kinks_of(phi) else (float("nan"), float("nan"))
        return (CriticalPoint("scale-invariant", 1.0, weight**0.5, 0.0, 0.0, "both", 0.0, *end),)
    points = [] if (at_zero := _at_zero(phi)) is None else [at_zero]
    grid, known = on_grid(phi)

    def excess(second: np.ndarray, slope: np.ndarray) -> np.ndarray:
        return second[1] / slope[0] - 1  # χ_∥ − 1 on the edge

    def at(K: float) -> float:
        moments = expectations(phi, np.array([K]))
        return float(excess(moments.second, moments.slope)[0])

    # χ_∥ → 1 wherever E[φφ''] vanishes asymptotically: that is not a root.
    line = excess(known.second, known.slope)
    for K in sign_changes(at, grid, np.where(np.abs(line) < 1e-9, 0, line)):
        moments = expectations(phi, np.array([K]))
        weight = 1 / float(moments.slope[0, 0])
        bias = K - weight * float(moments.second[0, 0])
        if bias >= 0:
            curvature = weight * float(moments.second[2, 0])
            exponent = 2 * weight * float(moments.slope[1, 0]) / curvature
            side = "below" if curvature > 0 else "above"
            power = 2.0 if _bends(phi) else 1.0
            constants = K, weight**0.5, bias**0.5, curvature, side, exponent, 1.0, power
            points.append(CriticalPoint("half-stable", *constants))
    return tuple(points)


def taylor_coefficients(phi: ActivationFunction) -> np.ndarray:
    """Return φ, φ', φ'' and φ''' at 0, (4,)."""
    with jax.enable_x64(True):
        function, derivatives = phi.function, []
        for _ in range(4):
            derivatives.append(float(function(jnp.zeros((), jnp.float64))))
            function = jax.grad(function)
    return np.array(derivatives)


def _at_zero(phi: ActivationFunction) -> CriticalPoint | None:
    """Return the critical point K* = 0: φ(0) = 0, φ'(0) ≠ 0, without a kink at 0.

    With φ/φ'(0) = z + s₂z²/2 + s₃z³/6 + …, a₁ = s₃ + ¾s₂² and b₁ = s₃ + s₂²,

        M(K) = K + a₁K²,   χ_∥ = 1 − 2/ℓ,   χ_⊥ = 1 − (b₁/a₁)/ℓ,

    and correlations obey c ← c + K(s₂²/4)(1 − c)(1 − 2c): they converge to ½ if s₂ ≠ 0.
    """
    if 0.0 in kinks_of(phi) or values(phi, np.zeros(1))[0][0] != 0:
        return None
    _, s1, s2, s3 = taylor_coefficients(phi)
    if s1 == 0:
        return None
    s2, s3 = s2 / s1, s3 / s1
    a1, b1 = s3 + 0.75 * s2**2, s3 + s2**2
    if a1 == 0:
        return None
    return CriticalPoint(
        "K* = 0",
        0.0,
        float(1 / abs(s1)),
        0.0,
        float(2 * a1),
        "above" if a1 < 0 else "nothing",
        float(b1 / a1),
        0.5 if s2 else float("nan"),
        float(s2**2 / (4 * abs(a1))) if s2 else float("nan"),
    )


def asymptotic_gap(phi: ActivationFunction, K: float, layers: np.ndarray) -> Any:
    """Return the leading order of 1 − c on the edge at K > 0."""
    weight = 1 / float(expectations(phi, np.array([K])).slope[0, 0])
    if not _bends(phi):
        return 2 / (weight * K * _second_derivative_square(phi, K) * layers)
    kinks = np.asarray(kinks_of(phi))
    density = np.exp(-(kinks**2) / (2 * K)) / np.sqrt(2 * np.pi)
    total = weight * float(np.sum(jumps(phi)[1] ** 2 * density)) / np.sqrt(np.pi)
    return 9 / (total**2 * layers**2)


def _bends(phi: ActivationFunction) -> bool:
    """Whether φ' jumps; kinks of φ' alone, as elu has, do not count."""
    return bool(np.any(np.abs(jumps(phi)[1]) > 1e-5))


def _second_derivative_square(phi: ActivationFunction, K: float) -> float:
    """Return E[φ''²], the slope of E[φ'φ'] in the covariance where both are equal."""
    step = 1e-5
    near = next_correlation(phi, K, 1.0, np.array([0.0, step, 2 * step]))[1]
    return float((3 * near[0] - 4 * near[1] + near[2]) / (2 * step * K))
