"""Kernels behind infinite depth for relu, leaky relu or linear branches with biases.

For branches σ_w W φ(h) + σ_b b with φ(x) = a x + b |x|, kernels grow as e^{rτ} with the share τ of
the blocks, where r = v (a² + b²) and v = σ_w². This factor is divided out: a tilde marks quantities
multiplied by e^{−rτ}. With the angle θ between the preactivations of two samples and
F = √(q₁q₂) (sin θ − θ cos θ),

    q̃(τ) = q(0) + σ_b² (1 − e^{−rτ})/r,     ∂τ gap̃ = −v (2b²/π) F̃,
    ∂τ Θ̃ = ρ v ⟨φφ⟩~ − v (2b²/π) θ Θ̃ + ρ_b σ_b² e^{−rτ},

where ⟨φφ⟩~ = (a² + b²) K̃ + (2b²/π) F̃ and K̃ = (q̃₁ + q̃₂)/2 − gap̃. These are the equations of
``rules.infinite_depth`` (Bordelon et al., Depthwise hyperparameter transfer in residual networks,
Proposition 2) for these φ. Without the growth, solutions vary slowly in τ, and few steps suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations.closed_form import of_one_rank
from largen.expectations.homogeneous import angle_and_folding
from largen.kernels.rules.depth_steps import StreamConstants, by_rows, integrate, usual_steps
from largen.kernels.rules.dispatch import States, rule
from largen.kernels.rules.homogeneous_depth import slopes_of_branch
from largen.kernels.state import AffineConstants, KernelState, Side, Wanted, opposite
from largen.programs import Operation, Program


@dataclass(frozen=True)
class BiasedDepth(Operation):
    """Infinitely many residual blocks, each with such an activation and a ``Dense`` with biases."""

    # odd, even: a and b in φ(x) = a x + b |x|.
    odd: float
    even: float


def with_biases(
    reads: tuple[int, ...], branch: Program, constants: tuple[Any, ...], square: float
) -> tuple[Operation, StreamConstants] | None:
    """Return the operation of such branches and its constants, or None for any other branch.

    ``square`` is the squared factor of the branch, relative to 1/L.
    """
    slopes = slopes_of_branch(branch)
    if slopes is None:
        return None
    numbers: AffineConstants = constants[-1]
    if not numbers.weight_variance > 0:
        return None
    weight, bias = square * numbers.weight_variance, square * numbers.bias_variance
    scaled = AffineConstants(weight, bias, numbers.weight_rate, numbers.bias_rate)
    return BiasedDepth(reads, *slopes[:2]), StreamConstants(scaled, usual_steps())


@rule.register
def _(
    operation: BiasedDepth, constants: StreamConstants, states: States, behind: Wanted
) -> KernelState:
    (state,), (numbers, steps) = states, constants
    size, bend = operation.odd**2 + operation.even**2, 2 * operation.even**2 / np.pi
    rate = numbers.weight_variance * size
    xp = np if isinstance(state.gap, np.ndarray) else jnp

    def flat(q: Any, tau: Any) -> Any:
        """Return q̃(τ), from q(0)."""
        return q - numbers.bias_variance * xp.expm1(-rate * tau) / rate

    growth = xp.exp(rate)
    if xp is np:  # only the size of variances is determined: gaps may be inexact
        state = state.with_sides(lambda side: side._replace(q=growth * flat(side.q, 1.0)))
        return state._replace(gap=growth * state.gap)

    def slope(q1: Any, q2: Any, tau: Any, y: tuple[Any, Any]) -> tuple[Any, Any]:
        gap, ntk = y
        q1, q2 = flat(q1, tau), flat(q2, tau)
        theta, folded = angle_and_folding(q1, q2, gap)
        turned = numbers.weight_variance * bend * folded
        if ntk is None:
            return -turned, None
        own = numbers.weight_rate * (rate * ((q1 + q2) / 2 - gap) + turned)
        own = own + numbers.bias_rate * numbers.bias_variance * jnp.exp(-rate * tau)
        return -turned, own - numbers.weight_variance * bend * theta * ntk

    def through_stream(q1: Any, q2: Any, gap: Any, ntk: Any) -> tuple[Any, Any]:
        q1, q2, gap = of_one_rank(q1, q2, gap)

        def of_some(rows: tuple[Any, Any, Any]) -> tuple[Any, Any]:
            q1, gap, ntk = rows
            return integrate(lambda tau, y: slope(q1, q2, tau, y), (gap, ntk), steps)

        some = by_rows if gap.ndim == 2 else (lambda function, rows: function(rows))
        return jax.tree.map(lambda x: growth * x, some(of_some, (q1, gap, ntk)))

    def of_side(side: Side) -> Side:
        within = side.within
        if within is not None:
            within, _ = through_stream(*opposite(side.q), within, None)
        return side._replace(q=growth * flat(side.q, 1.0), within=within)

    q1, q2 = state.facing(state.first.q, state.second.q)
    gap, ntk = through_stream(q1, q2, state.gap, state.ntk)
    return KernelState(of_side(state.first), of_side(state.second), gap, ntk, state.same)
