"""The constants of all weights of a network under an adaptive optimizer.

A weight θ = s θ̂ with a standard Gaussian θ̂ moves by θ̂ ← θ̂ − (η₀r/s) u, with the learning rate r of
its rule. Gradients are those of passes: backward fields γ₀ΔNγ₀ ∂f/∂h times what the weight reads,
in units of its initial size.

Where features stand still, γ = γ₀Nᵈ with d < ½, outputs are linear in the changes of all weights
around their initial values. So they are in lg.mean_field(γ₀) as γ₀ → 0, up to a part of order γ₀²:
to an opposite sign of γ₀ there is that of the read-out, whose distribution is symmetric. The same
equations then hold with a small γ₀ in place of that of the run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from largen.architectures import depth
from largen.parameterizations import Parameterization, Power
from largen.parameterizations.rules import Row
from largen.parameterizations.weight_rules import first_fan_in
from largen.runs import Run
from largen.theories.chains.constants import HALF
from largen.theories.mean_field.running_averages import check_limit

SMALL_GAMMA = 1e-2  # in place of γ₀ where features stand still


class WeightConstants(NamedTuple):
    """Constants of one weight.

    Those of a matrix are for N neurons that it reads; with rN of them, ``unit`` is to be divided,
    and ``step`` multiplied, by √r.
    """

    unit: float  # ∇/eps over the gradient of passes
    step: float  # r/s, the rate of θ̂ over η₀; of a bias of outputs, that of its effect on f


def constants_of(run: Run) -> dict[str, WeightConstants]:
    """Return the constants of every weight and bias by its name in the rule table."""
    table = run.param.table(run.net, run.optimizer, inputs=run.data.inputs)
    inputs = first_fan_in(run.data.inputs, table.rows[0].site)
    at: dict[str, Any] = {"width": 1, "depth": max(depth(run.net), 1), "inputs": inputs}
    found = {}
    for row in table.rows:
        unit, step = _powers(row, run.param)
        check_limit(run, row, step, unit, Power())
        unit = Power(unit.constant, inputs=unit.inputs, depth=unit.depth)
        found[row.name] = WeightConstants(unit.at(**at), step.at(**at))
    return found


def _powers(row: Row[Power], param: Parameterization) -> tuple[Power, Power]:
    """Return the constants of a weight as powers, constant in N where the limit exists."""
    rule, role, d = row.rule, row.site.role, param.canonical_d
    if role == "output" and row.kind == "bias":
        # Its initial value vanishes, so that it cannot serve as the unit.
        return rule.multiplier / rule.eps, rule.multiplier * rule.lr
    unit = (rule.init_std * rule.eps * Power(param.gamma**2, width=HALF + d)) ** -1
    step = rule.lr / rule.init_std
    if d < HALF:
        smaller = Power(SMALL_GAMMA / param.gamma)
        unit, step = unit / smaller, step * smaller * Power(width=HALF - d)
    if role == "hidden" and row.kind == "weight":
        root = Power(width=HALF)
        return unit / root, step * root
    return unit, step
