"""The rule of one weight: powers of the width and depth from the exponents of its role."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Protocol, runtime_checkable

from largen.parameterizations.exponents import Exponents
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Rule
from largen.programs import Weight


@runtime_checkable
class Scaling(Protocol):
    """Fields of a :class:`largen.scaling.Parameterization` that determine the rules of weights."""

    @property
    def input(self) -> Exponents:
        """The exponents of the first affine map."""
        ...

    @property
    def hidden(self) -> Exponents:
        """The exponents of all maps between hidden layers."""
        ...

    @property
    def output(self) -> Exponents:
        """The exponents of the read-out."""
        ...

    @property
    def bias(self) -> Exponents:
        """The exponents of all biases."""
        ...

    @property
    def d(self) -> Fraction:
        """The exponent of N in γ = γ₀Nᵈ."""
        ...

    @property
    def gamma(self) -> float:
        """γ₀."""
        ...

    @property
    def branch(self) -> Fraction:
        """α: residual branches carry L^(−α)."""
        ...

    @property
    def branch_rate(self) -> Fraction:
        """The exponent of L in the rates within branches."""
        ...

    @property
    def std_in(self) -> str:
        """Whether σ_w is in the ``"multiplier"`` or in ``"init_std"``."""
        ...


def rule_of(param: Scaling, site: Weight, kind: str, first: Weight, adaptive: bool) -> Rule[Power]:
    """Return the rule of parameters of one kind; ``first`` is the network's first map."""
    if kind == "weight":
        # 1/√(fan-in), whose power of N is among the exponents of the role.
        fixed = replace(fan_in(site, first), width=0)
        constant = Power(site.weight_std) * fixed ** Fraction(-1, 2)
        return _rule(param, site, getattr(param, site.role), constant, adaptive)
    rule = _rule(param, site, param.bias, Power(site.bias_std or 1.0), adaptive)
    return replace(rule, init_std=Power(0.0)) if site.gain else rule


def _rule(
    param: Scaling,
    site: Weight,
    exponents: Exponents,
    constant: Power,
    adaptive: bool,
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
