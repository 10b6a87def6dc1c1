"""The rule of one weight: powers of the width and depth from the exponents of its role."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from largen.parameterizations.exponents import Exponents
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Rule
from largen.programs import Weight

if TYPE_CHECKING:
    from largen.parameterizations.parameterization import Parameterization


def rule_of(
    param: Parameterization, site: Weight, kind: str, first: Weight, adaptive: bool
) -> Rule[Power]:
    """Return the rule of parameters of one kind; ``first`` is the network's first map."""
    if kind == "weight":
        # 1/√(fan-in), whose power of N is among the exponents of the role.
        fixed = replace(fan_in(site, first), width=0)
        constant = Power(site.weight_std) * fixed ** Fraction(-1, 2)
        return _rule(param, site, getattr(param, site.role), constant, adaptive)
    rule = _rule(param, site, param.bias, Power(site.bias_std or 1.0), adaptive)
    return replace(rule, init_std=Power(0.0)) if site.gain else rule


def _rule(
    param: Parameterization, site: Weight, exponents: Exponents, constant: Power, adaptive: bool
) -> Rule[Power]:
    gamma = Power(param.gamma, width=param.d)
    out, is_output = param.output, site.role == "output"
    multiplier = Power(width=-exponents.a)
    init_std = Power(width=-exponents.b / 2)
    rate = gamma**2 * Power(width=-exponents.c)
    # The backward signal ∂f/∂(layer's output); the read-out's own is 1/γ.
    backward = gamma**-1
    if not is_output:
        backward = backward * Power(width=-out.a - out.b / 2)
    if site.in_branch:
        rate = rate * Power(depth=param.branch_rate)
        backward = backward * Power(depth=-param.branch)
    gradient = multiplier * backward
    if exponents.adaptive_eps is not None:
        gradient = Power(width=-exponents.adaptive_eps)
    if adaptive and exponents.adaptive_rate is not None:
        rate = Power(width=-exponents.adaptive_rate)
    elif adaptive:
        rate = rate * gradient
    if param.std_in == "multiplier":
        multiplier = multiplier * constant
    else:
        init_std = init_std * constant
    if is_output:
        multiplier = multiplier / gamma
    return Rule(multiplier, init_std, rate, rate**-1, gradient)


def fan_in(site: Weight, first: Weight) -> Power:
    """Return the fan-in of an affine map's outputs, in powers of N and D."""
    if site.role == "input":
        return Power(float(site.patch / first.patch), inputs=1)
    return Power(float(site.patch), width=1)


def first_fan_in(inputs: int | tuple[int, ...], first: Weight) -> int:
    """Return D, the fan-in of the first affine map's outputs."""
    channels = inputs[-1] if isinstance(inputs, tuple) else inputs
    return int(channels * first.patch)
