"""Adaptive optimizers in the mean-field limit: RMSProp and Adam, weight by weight.

The size of an update is the learning rate, whatever the size of the gradient (Golikov, *Towards a
general theory of infinite-width limits of neural classifiers*, (21)), so that increments of order
one need learning rates of the order of the initial weights, η_θ ∝ σ_θ (§4.1). Every weight has
averages of its own gradient. These are not invariant under rotations of the weights, so that a
neuron is represented by its D weights themselves.

The gradient of a weight θ = s·θ̂ in units of its rule's eps, ∇/eps, is of order one in N, and

    θ̂ ← θ̂ − (η₀r/s) [ m̂/(√v̂ + ε₀) ] − η₀λ₀ θ̂,   m ← β₁m + (1 − β₁)∇,   v ← β₂v + (1 − β₂)∇²,

with the learning rate r of its rule. RMSProp has β₁ = 0, and its m̂ and v̂ are without Adam's bias
correction.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from largen.parameterizations import Power
from largen.parameterizations.weight_rules import first_fan_in
from largen.runs import Run
from largen.theories.mean_field.running_averages import check_limit


class AdaptiveConstants(NamedTuple):
    """Constants of one kind of weight."""

    std: float  # σ: of preactivations for the read-in, of z for the read-out, of f for its bias
    # The factor that converts the step of gradient descent at unit learning rates to ∇/eps.
    unit: float
    # r/s, the learning rate of θ̂ over η₀; for the read-out's bias, that of its effect on f.
    step: float
    distribution: str  # the distribution of single weights at initialisation


def weights_of(run: Run) -> dict[tuple[str, str], AdaptiveConstants]:
    """Return the constants of every weight by role and kind, such as ``("input", "weight")``."""
    table = run.param.table(run.net, run.optimizer, inputs=run.data.inputs)
    rows = {(row.site.role, row.kind): row for row in table.rows}
    first = table.rows[0].site
    inputs = first_fan_in(run.data.inputs, first)
    at: dict[str, Any] = {"width": 1, "depth": 1, "inputs": inputs}
    readout = rows["output", "weight"]
    # The weight with which one neuron out of rN enters f, σ_out/(γ₀√r N).
    outward = readout.rule.multiplier * readout.rule.init_std
    neurons = ratio_of(run) ** 0.5
    found = {}
    for (role, kind), row in rows.items():
        size = row.rule.multiplier * row.rule.init_std
        per_unit = (row.rule.init_std * row.rule.eps) ** -1
        step = row.rule.lr / row.rule.init_std
        if (role, kind) == ("output", "weight"):
            std, gradient = size * Power(run.param.gamma * neurons, width=1), size * per_unit
        elif role == "output":
            # The initial value vanishes, so that it cannot serve as the unit of the weight.
            std, step = Power(), row.rule.multiplier * row.rule.lr
            gradient = row.rule.multiplier / row.rule.eps
        else:
            std = size * Power(inputs=Fraction(1, 2)) if kind == "weight" else size
            gradient = outward * per_unit
        check_limit(run, row, step, gradient, std)
        gradient = Power(gradient.constant, inputs=gradient.inputs, depth=gradient.depth)
        found[role, kind] = AdaptiveConstants(
            std.at(**at), gradient.at(**at), step.at(**at), row.distribution
        )
    return found


def ratio_of(run: Run) -> float:
    """Return r, the number of hidden neurons per unit of width."""
    return float(run.program.weights[0].width_ratio)
