"""Kernels behind infinite depth for relu, leaky relu or linear branches without biases.

For branches σ_w W φ(h) with φ(x) = a x + b |x| and v = σ_w², variances grow as q e^{vτ(a² + b²)}
with the share τ of the blocks, and the angle θ between the preactivations of two samples obeys an
equation of its own,

    ∂τ cos θ = v (2b²/π) (sin θ − θ cos θ),

so that all kernels behind the blocks are √(q₁q₂) times functions of the angle θ before them:

    1 − cos θ(1) = (1 − w(θ)) (1 − cos θ),     Θ(1) = ρ √(q₁q₂) body(θ) + gain(θ) Θ(0),
    ∂τ body = v (e^{vτ(a² + b²)} κ(θ(τ)) + κ'(θ(τ)) body),     ∂τ gain = v κ'(θ(τ)) gain

where √(q₁q₂) κ = ⟨φφ⟩ and κ' = ⟨φ'φ'⟩ = a² + b² − 2b²θ/π. Since ∂τ log F = −v (2b²/π) θ for
F(θ) = sin θ − θ cos θ, the last of them has the solution gain = e^{v(a² + b²)} F(θ(1))/F(θ). These
are the equations of ``rules.infinite_depth`` (Bordelon et al., Depthwise hyperparameter transfer in
residual networks, Proposition 2) for these φ. The functions w, body and gain are represented by
their polynomial interpolants at the Chebyshev points of [0, π].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.expectations.homogeneous import angle_of
from largen.kernels.rules.depth_steps import integrate_plainly
from largen.kernels.rules.dispatch import States, rule
from largen.kernels.state import AffineConstants, KernelState, Side, Wanted, opposite
from largen.programs import Affine, Function, Operation, Program

NODES = 33
SMALL = 1e-12  # relative size of coefficients that may be dropped; the interpolants' error


@dataclass(frozen=True)
class HomogeneousDepth(Operation):
    """Infinitely many residual blocks, each with such an activation and a ``Dense``, no biases."""

    # odd, even, slope_at_zero: a and b in φ(x) = a x + b |x|, and φ'(0).
    odd: float
    even: float
    slope_at_zero: float


class Angular(NamedTuple):
    """The constants of a :class:`HomogeneousDepth`."""

    variance: Any  # the variance v of the weights
    rate: Any  # the relative rate ρ of the weights
    coefficients: Any  # coefficients of w, body and gain in powers of 2θ/π − 1, (3, degree + 1)


def in_closed_form(
    reads: tuple[int, ...], branch: Program, constants: tuple[Any, ...], square: float
) -> tuple[Operation, Angular] | None:
    """Return the operation of such branches and its constants, or None for any other branch.

    ``square`` is the squared factor of the branch, relative to 1/L.
    """
    slopes = slopes_of_branch(branch)
    if slopes is None:
        return None
    numbers: AffineConstants = constants[-1]
    if numbers.bias_variance > 0:
        return None
    variance = float(numbers.weight_variance * square)
    coefficients = _coefficients(*slopes[:2], variance)
    if coefficients is None:
        return None
    return HomogeneousDepth(reads, *slopes), Angular(variance, numbers.weight_rate, coefficients)


def slopes_of_branch(branch: Program) -> tuple[float, ...] | None:
    """Return a, b and φ'(0) of a branch W φ(h) with φ(x) = a x + b |x|; None for other branches."""
    match branch.operations:
        case (_, Function(phi=phi, gains=()), Affine(reads=(1,), window=None)):
            form = phi.closed_form
            return None if form is None else form.slopes
    return None


@lru_cache(maxsize=64)
def _coefficients(odd: float, even: float, variance: float) -> np.ndarray | None:
    """Return the coefficients of w, body and gain; None where NODES points do not resolve them.

    That is the case for small v, where these functions vary within an angle √v ≪ 1 of θ = π.
    """
    size, bend = odd**2 + even**2, 2 * even**2 / np.pi
    theta = np.pi / 2 * (1 + np.polynomial.chebyshev.chebpts1(NODES))

    def slope(y: np.ndarray) -> np.ndarray:
        shortfall, body, growth = y  # the first is 1 − cos θ
        angle = _angle(shortfall)
        folded = _folded(angle)
        kernel = size * np.cos(angle) + bend * folded
        derivative = size - bend * angle
        return variance * np.array(
            [-bend * folded, growth * kernel + derivative * body, size * growth]
        )

    start = 2 * np.sin(theta / 2) ** 2
    ones = np.ones_like(theta)
    end, body, growth = integrate_plainly(slope, np.array([start, 0 * ones, ones]))
    gain = growth * _folded(_angle(end)) / _folded(theta)
    values = np.stack([1 - end / start, body, gain], axis=-1)
    found = np.polynomial.chebyshev.chebfit(2 * theta / np.pi - 1, values, NODES - 1).T
    matter = int(np.flatnonzero(np.abs(found).max(0) > SMALL * np.abs(found).max()).max())
    if matter > NODES - 3:
        return None
    # Degrees are multiples of 4, so that few programs are compiled. The conversion to powers is
    # accurate: coefficients of the series decrease faster than those of powers in T_n increase.
    degree = min(4 * (matter // 4 + 1), NODES - 1)
    powers = np.zeros((len(found), degree + 1))
    for own, series in zip(powers, found[:, : degree + 1], strict=True):
        converted = np.polynomial.chebyshev.cheb2poly(series)  # without trailing zeros
        own[: len(converted)] = converted
    return powers


def _angle(shortfall: np.ndarray) -> np.ndarray:
    """Return θ from 1 − cos θ."""
    return 2 * np.arcsin(np.sqrt(np.clip(shortfall / 2, 0, 1)))


def _folded(theta: np.ndarray) -> np.ndarray:
    """Return sin θ − θ cos θ, where θ is small by its series, which has no cancellation."""
    s = theta**2
    nested = 1 - s / 28 * (1 - s / 54 * (1 - s / 88 * (1 - s / 130)))
    series = theta**3 * (1 / 3 - s / 30 * nested)
    return np.where(theta < 0.5, series, np.sin(theta) - theta * np.cos(theta))


@rule.register
def _(
    operation: HomogeneousDepth, constants: Angular, states: States, behind: Wanted
) -> KernelState:
    (state,) = states
    variance, rate, coefficients = constants
    growth = jnp.exp(variance * (operation.odd**2 + operation.even**2))
    if isinstance(state.gap, np.ndarray):  # only the size of variances matters
        grown = state.with_sides(lambda side: side._replace(q=growth * side.q))
        return grown._replace(gap=growth * state.gap)

    def gap_behind(q1: Any, q2: Any, gap: Any) -> Any:
        uneven = ((q1 - q2) / (_root(q1) + _root(q2))) ** 2 / 2
        turned = gap - uneven  # √(q₁q₂) (1 − cos θ)
        (w,) = _at_angles(coefficients[:1], angle_of(q1, q2, gap))
        return growth * (gap - turned * w)

    def of_side(side: Side) -> Side:
        within = side.within
        if within is not None:
            within = gap_behind(*opposite(side.q), within)
        return side._replace(q=growth * side.q, within=within)

    q1, q2 = state.facing(state.first.q, state.second.q)
    ntk = state.ntk
    if ntk is not None:
        body, gain = _at_angles(coefficients[1:], angle_of(q1, q2, state.gap))
        gain = _where_there(operation, variance, q1, q2, gain)
        ntk = rate * _root(q1) * _root(q2) * body + gain * ntk
    gap = gap_behind(q1, q2, state.gap)
    return KernelState(of_side(state.first), of_side(state.second), gap, ntk, state.same)


def _root(q: Any) -> Any:
    """Return √q, with the derivative 0 where q = 0."""
    return jnp.sqrt(jnp.maximum(q, jnp.finfo(q.dtype).tiny))


def _where_there(operation: HomogeneousDepth, variance: Any, q1: Any, q2: Any, gain: Any) -> Any:
    """Return the gain; where a variance is 0, and θ undefined, the one that φ'(0) gives."""
    one, none = (
        jnp.exp(variance * operation.slope_at_zero * other)
        for other in (operation.odd, operation.slope_at_zero)
    )
    alone = jnp.where(jnp.maximum(q1, q2) > 0, one, none)
    return jnp.where(jnp.minimum(q1, q2) > 0, gain, alone)


def _at_angles(coefficients: Any, theta: Any) -> list[Any]:
    """Return the values of polynomials in 2θ/π − 1, by Horner's scheme."""
    # The barriers keep the angle and each polynomial in separate loops over all pairs. Fused into
    # one loop they take three times as long.
    x, found = lax.optimization_barrier(2 / np.pi * theta - 1), []
    for of_one in coefficients:
        value = of_one[-1]
        for n in range(len(of_one) - 2, -1, -1):
            value = of_one[n] + x * value
        x, value = lax.optimization_barrier((x, value))
        found.append(value)
    return found
