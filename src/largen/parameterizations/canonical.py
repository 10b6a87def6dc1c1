"""A parameterization at infinite width: the constants of order one that remain.

The abc-symmetry moves every weight to standard Gaussian initialisation. There, a weight with
rule (multiplier m, standard deviation s, rate r) has the multiplier m·s and the rate r/s², and
what remains after the powers of the canonical form

    preactivations  σ/√fan_in      read-out  σ/(γ√N)      rates  ρ·γ²

is σ, the weight's effective standard deviation, and ρ, its rate relative to the others. All
theories of infinite width read these constants, so that what holds for one parameterization holds
for all that are equivalent to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction

from largen.architectures import Layer, depth, endless_stack
from largen.errors import NoTheory
from largen.parameterizations.averages import Velocity
from largen.parameterizations.distributions import GAUSSIAN
from largen.parameterizations.optimizers import temperature_of
from largen.parameterizations.parameterization import Parameterization
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Row, Rule, RuleTable
from largen.parameterizations.stepping import Optimizer
from largen.parameterizations.weight_rules import fan_in, first_fan_in
from largen.programs import Weight

HALF = Fraction(1, 2)
FROM_ZERO = 1e-6  # σ of a weight whose initial values vanish with the width, relative to its σ_w


@dataclass(frozen=True)
class CanonicalWeight:
    """The constants σ and ρ of one weight or bias of a network.

    Attributes
    ----------
    site
        Its place in the network.
    kind
        ``"weight"`` or ``"bias"``.
    std
        σ, the effective standard deviation: σ_w, or σ_b for a bias.
    rate
        ρ, the rate relative to η₀γ²; 1 in :func:`largen.ntk` and :func:`largen.mean_field`.
    distribution
        The distribution of single weights at initialisation; see
        :meth:`largen.scaling.Parameterization.with_distribution`.
    """

    site: Weight
    kind: str
    std: float
    rate: float
    distribution: str = GAUSSIAN


@dataclass(frozen=True)
class CanonicalForm:
    """A network in a parameterization, at infinite width.

    Attributes
    ----------
    weights
        The constants of every weight and bias by name, such as ``"0.weight"``.
    branch
        The factor of residual branches, L^(−α) at the network's depth; at infinite depth its
        constant, without the power of L.
    gamma
        γ₀.
    d
        The power of N in γ: 0 for the kernel limit, ½ for the mean-field limit. It is that of the
        outputs at initialisation, whatever share of it the parameterization calls γ.
    diffusive
        At infinite depth, whether branches have α = ½, so that the stream diffuses; for α > ½ it
        is constant at initialisation. None for networks with a number of blocks.
    gains
        ρ of trained gains and offsets by name, such as ``"1.gain"``.
    from_zero
        The name of the weight that starts from zero, if there is one.
    """

    weights: dict[str, CanonicalWeight]
    branch: float
    gamma: float
    d: Fraction
    diffusive: bool | None = None
    gains: Mapping[str, float] = field(default_factory=dict)
    from_zero: str | None = None


def canonical_form(
    param: Parameterization,
    net: Layer,
    optimizer: Optimizer,
    inputs: int | tuple[int, ...],
    *,
    gaussian: tuple[str, ...] = ("input", "bias"),
    leading_rates: bool = False,
    noise: bool = False,
    infinite_depth: bool = False,
    from_zero: bool = False,
) -> CanonicalForm:
    """Reduce a parameterization to the constants that infinite width leaves of it.

    Parameters
    ----------
    param, net, optimizer
        What is trained, and how.
    inputs
        D, or the shape (*space, channels) of a sample.
    gaussian
        Roles whose weights the theory takes to be Gaussian. Hidden matrices of any distribution
        act as Gaussian ones, and in the kernel limit the read-out does.
    leading_rates
        Whether rates that grow or vanish with the width are divided by their largest power of N,
        so that weights of lower powers do not move, instead of being refused.
    noise
        Whether the theory has a rule for Langevin noise, which makes every weight move at order
        one.
    infinite_depth
        Whether the theory has the limit of infinitely many blocks. Rates of branches are then
        relative to L^(2α−1), with which they act on the tangent kernel at order one.
    from_zero
        Whether features move in the theory's limit, and one weight may start from zero, that is
        from values that vanish with the width while its updates do not (Golikov, *Towards a
        general theory of infinite-width limits of neural classifiers*, Appendices E.3 and E.4).
        They then have a small size, which keeps their signs.

    Raises
    ------
    NoTheory
        If a preactivation or an update vanishes or diverges with the width; the message names
        the weight and the power of N that is too much. If a weight that must be Gaussian is not.
        If the network is infinitely deep and the theory has no such limit, or there is none.

    Examples
    --------
    >>> import largen as lg
    >>> form = canonical_form(lg.mup(), lg.mlp(1, "tanh"), lg.gd(0.1), inputs=10)
    >>> form.weights["0.weight"].rate, form.weights["2.weight"].rate
    (10.0, 1.0)
    """
    _check_optimizer(optimizer, noise)
    table = param.table(net, optimizer, inputs=inputs)
    first = table.rows[0].site
    blocks, diffusive = depth(net), None
    if blocks == math.inf:
        if not infinite_depth:
            raise NoTheory(
                "this limit needs a number of blocks, and the network is infinitely deep: take "
                "e.g. lg.residual_mlp(16)."
            )
        endless_stack(net)
        diffusive = -table.branch.depth == HALF
        table, blocks = _at_infinite_depth(table, param), 1
    d, gamma = param.canonical_d, Power(param.gamma, width=param.canonical_d)
    at = {"width": 1, "depth": max(blocks, 1), "inputs": first_fan_in(inputs, first)}
    constants = [_constants(row, first, gamma) for row in table.rows]
    if leading_rates:
        constants = _leading(constants)
    at_zero = _from_zero(table.rows, first, param) if from_zero else None
    if at_zero is not None:
        d, constants = HALF, at_zero[1]
    weights, gains = {}, {}
    for row, (std, rate) in zip(table.rows, constants, strict=True):
        _check_powers(param, row, std, rate)
        if row.site.gain:
            gains[row.name] = rate.at(**at)
            continue
        _check_distribution(row, gaussian)
        weights[row.name] = CanonicalWeight(
            row.site, row.kind, std.at(**at), rate.at(**at), row.distribution
        )
    branch = table.branch.at(**at)
    zero = None if at_zero is None else at_zero[0]
    return CanonicalForm(weights, branch, param.gamma, d, diffusive, gains, zero)


def _check_optimizer(optimizer: Optimizer, noise: bool) -> None:
    """Refuse optimizers whose steps are not proportional to the gradient."""
    if optimizer.adaptive:
        raise NoTheory(
            f"{type(optimizer).__name__} has no implemented limit here: its update is not "
            "proportional to the gradient. Use lg.gd, lg.sgd or lg.gradient_flow; lg.solve has "
            "limits of adaptive optimizers in lg.mean_field() and lg.ntk()."
        )
    if not isinstance(optimizer.says("averages"), Velocity):
        raise NoTheory(
            f"{type(optimizer).__name__} has no implemented limit here: its update is no velocity "
            "v ← βv − η∇ with one β."
        )
    if optimizer.backward != "gradients":
        raise NoTheory(
            f"{optimizer} has no implemented limit here: its weights do not follow the "
            "gradient. lg.theories.FeedbackMeanField and FeedbackKernelLimit are its limits."
        )
    if temperature_of(optimizer) and not noise:
        raise NoTheory(
            f"{optimizer} has no implemented limit here: its noise moves every weight at order "
            "one, so that features forget their initial values in every parameterization. "
            "lg.mean_field() has one."
        )


def _check_powers(param: Parameterization, row: Row[Power], std: Power, rate: Power) -> None:
    """Refuse outputs and updates that grow or vanish with the width."""
    for what, power in (("its output", std), ("its update", rate)):
        if power.width and power.constant:
            grows = "grows" if power.width > 0 else "vanishes"
            raise NoTheory(
                f"{param} has no infinite-width limit with this optimizer: {what} at the weight "
                f"{row.name} ({row.site.role}) {grows} as N^{power.width} instead of N^0. "
                "lg.ntk() and lg.mean_field() have one."
            )


def _check_distribution(row: Row[Power], gaussian: tuple[str, ...]) -> None:
    """Refuse other distributions than the Gaussian where single weights matter."""
    if row.distribution != GAUSSIAN and row.role in gaussian:
        raise NoTheory(
            f"{row.name} starts with the {row.distribution} distribution, and this limit depends "
            "on the distribution of single weights there: it is implemented for Gaussian ones. "
            f"With many inputs, sums over them are Gaussian: leave {row.role!r} out of "
            "distribution."
        )


def _at_infinite_depth(table: RuleTable[Power], param: Parameterization) -> RuleTable[Power]:
    """Return the table without its powers of the depth L, of which none may be left as L → ∞.

    L branches of size L^(−α) move the stream by L^(1−2α) in square, and their weights the tangent
    kernel by that times their rates.
    """
    alpha = -Fraction(table.branch.depth)
    if alpha < HALF:
        raise NoTheory(
            f"{param} has no limit of infinite depth: L branches of size L^(−{alpha}) make the "
            f"stream's variance grow as L^{1 - 2 * alpha}. It takes α ≥ 1/2, as in "
            "lg.depth_mup() or lg.complete_p()."
        )
    rows = []
    for row in table.rows:
        std, update = _sizes(row)
        power = update.depth + (1 - 2 * alpha if row.site.in_branch else 0)
        if std.depth or power > 0:
            what, power = ("its output", std.depth) if std.depth else ("its update", power)
            raise NoTheory(
                f"{param} has no limit of infinite depth: {what} at the weight {row.name} "
                f"({row.site.role}) goes as L^{power}."
            )
        flat = {f.name: replace(getattr(row.rule, f.name), depth=0) for f in fields(row.rule)}
        if power < 0:
            flat["lr"] = Power(0.0)
        rows.append(replace(row, rule=Rule(**flat)))
    branch = replace(table.branch, depth=0)
    return RuleTable(table.title, tuple(rows), branch, table.gamma)


def _leading(constants: list[tuple[Power, Power]]) -> list[tuple[Power, Power]]:
    """Return rates over their largest power of N: those of lower powers become 0."""
    largest = max((rate.width for _, rate in constants if rate.constant), default=0)
    unit, frozen = Power(width=largest), Power(0.0)
    return [(std, rate / unit if rate.width == largest else frozen) for std, rate in constants]


def _from_zero(
    rows: tuple[Row[Power], ...], first: Weight, param: Parameterization
) -> tuple[str, list[tuple[Power, Power]]] | None:
    """Return the name of the weight that starts from zero, and constants in which it is small.

    None unless there is a limit with exactly one such weight.
    """
    gamma = Power(param.gamma, width=min(param.canonical_d, HALF))
    constants = [_constants(row, first, gamma) for row in rows]
    small = [i for i, (std, _) in enumerate(constants) if std.constant and std.width < 0]
    if len(small) != 1 or rows[small[0]].kind != "weight":
        return None
    std, rate = constants[small[0]]
    start = Power(FROM_ZERO, width=-std.width)
    constants[small[0]] = std * start, rate / start**2
    if any(power.constant and power.width for pair in constants for power in pair):
        return None
    return rows[small[0]].name, constants


def _constants(row: Row[Power], first: Weight, gamma: Power) -> tuple[Power, Power]:
    """Return σ and ρ as powers, constant in N where the limit exists."""
    std, update = _sizes(row)
    if row.site.role == "output":
        std = std * gamma
    if row.kind == "weight":
        std = std * fan_in(row.site, first) ** Fraction(1, 2)
    return std, update / gamma**2


def _sizes(row: Row[Power]) -> tuple[Power, Power]:
    """Return the effective standard deviation and rate; for gains, 1 and the rate of m·θ."""
    rule = row.rule
    if row.site.gain:
        return Power(1.0), rule.lr * rule.multiplier**2
    return rule.multiplier * rule.init_std, rule.lr / rule.init_std**2
