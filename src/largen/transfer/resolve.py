"""The settings of each weight from its properties in the user's model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from largen.parameterizations import Parameterization, Power, Rule
from largen.transfer.experts import rule_of_number, with_experts
from largen.transfer.initial import InitialDistribution
from largen.transfer.plan_entries import ScaledWeight
from largen.transfer.roles import family
from largen.transfer.rules import fold, ratios, rule, value, with_decay
from largen.transfer.schemes import as_built
from largen.transfer.updates import MUONS, Update, update_of


@dataclass(frozen=True)
class FoundWeight:
    """The properties of one weight before any rule is applied."""

    # name, role, in_branch: the weight's name and role, and whether it is inside a residual branch.
    name: str
    role: str
    in_branch: bool
    # base_shape, shape: the weight's shapes in the base model and in the target.
    base_shape: tuple[int, ...]
    shape: tuple[int, ...]
    n: float  # ratio of its fan-in to the base, or of its fan-out if the fan-in is fixed
    # Ratio of the width on which the builder's initialisation depends: n, or for a weight of fixed
    # size the ratio of its layer.
    built_n: float
    distribution: InitialDistribution  # the builder's initialisation of the weight
    # Whether the optimizer treats it as a matrix: Muon updates no other weights.
    matrix: bool = True
    tied: tuple[str, ...] = ()  # other names of the same tensor
    fan_in: int = 1  # the axis of a matrix that is summed over
    # The number of widths whose product the fan-in of a hidden weight is, such as 2 of products of
    # two signals.
    factors: int = 1
    # e, the ratio of the numbers of experts, for weights of experts and routers.
    experts: float = 1.0
    # How often l effects of one update add up, so that the rate is ∝ l^(−adds_up): once those of a
    # gain or bias of every block that acts on the residual stream itself, as those of post-norm do;
    # and, under gradient descent, once more those of a weight that all blocks share.
    adds_up: int = 0


@dataclass(frozen=True)
class Folded:
    """A multiplier of the forward pass that is to be folded into a weight."""

    kind: str
    factor: Power


def resolve(
    param: Parameterization,
    optimizer: Update,
    found: FoundWeight,
    l: float,  # ratio of the depths
    # Multipliers to be folded in, in addition to the read-out's own.
    folds: tuple[Folded, ...] = (),
    *,
    keep_output: bool = False,  # whether the read-out's own multiplier stays in the forward pass
) -> ScaledWeight:
    """Apply the rule of a weight's role, and fold multipliers into it."""
    own_update = _moved_by(optimizer, found)
    own = rule(param, own_update, found.role, found.in_branch)
    if found.factors > 1 and family(found.role) == "hidden":
        # Gradients are n^(−½−d) with the fan-out's n = (fan-in)^(1/factors) instead of the fan-in.
        excess, d, half = 1 - Fraction(1, found.factors), param.canonical_d, Fraction(1, 2)
        power = {"proportional": 2 * d, "normalised": d - half, "orthogonal": d}[own_update.kind]
        own = replace(
            own,
            lr=own.lr * Power(width=-power * excess),
            eps=own.eps * Power(width=(d + half) * excess),
        )
    if found.adds_up:
        own = replace(own, lr=own.lr * Power(depth=-found.adds_up))
    total, kinds = Power(), []
    if family(found.role) == "output" and not keep_output and own.multiplier != Power():
        folds = (Folded("output", own.multiplier), *folds)
    for folded in folds:
        if folded.factor != Power():
            own = fold(own, folded.factor**-1, own_update)
            total = total * folded.factor
            kinds.append(f"{folded.kind} × {ratios(folded.factor)}")
    own = with_decay(own, own_update)
    columns = ("init_std", "lr", "weight_decay", "eps")
    powers = {column: getattr(own, column) for column in columns}
    number = rule_of_number(own_update)
    of_e = {c: getattr(number, c) if found.experts != 1.0 else Power() for c in columns}
    return ScaledWeight(
        name=found.name,
        role=found.role,
        in_branch=found.in_branch,
        base_shape=found.base_shape,
        shape=found.shape,
        n=found.n,
        init=_initial_factor(param, found, own, total, l),
        **{
            column: value(power, found.n, l) * value(of_e[column], found.experts, 1.0)
            for column, power in powers.items()
        },
        powers={
            column: with_experts(ratios(power), of_e[column]) for column, power in powers.items()
        },
        folded=tuple(kinds),
        fold=value(total, found.n, l),
        moved_by=own_update.name,
        tied=found.tied,
        fan_in=found.fan_in,
    )


def _moved_by(optimizer: Update, found: FoundWeight) -> Update:
    kind = family(found.role)
    return update_of(optimizer, kind if found.matrix or kind not in MUONS else "vector")


def _initial_factor(
    param: Parameterization, found: FoundWeight, own: Rule[Power], total: Power, l: float
) -> float:
    """Return the powers that the builder's values lack relative to the rule.

    Constants (zeros, ones) receive the folded multipliers only. A scheme without powers of depth
    keeps the builder's dependence on depth; the standard scheme keeps every dependence.
    """
    factor = value(total, found.n, l)
    if not found.distribution.std or as_built(param):
        return factor
    wanted = own.init_std / total  # the weight's own standard deviation, without folded factors
    factor *= found.n ** float(wanted.width) / found.built_n**found.distribution.width
    if param.branch:
        factor *= l ** (float(wanted.depth) - found.distribution.depth)
    return factor
