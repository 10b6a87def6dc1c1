"""The parameterization: one class, one table of rules.

In the notation of Pehlevan and Bordelon's lecture notes, §4: multipliers N^(−a), variances
N^(−b), an output divided by γ = γ₀Nᵈ and rates η = η₀γ²N^(−c), with (a, b, c) for each role of a
weight. Everything else in the table follows.

* Weight decay: a step of the optimizer shrinks a weight by η·λ of itself, so λ scales as 1/η.
* Adaptive optimizers: the size of their update is the rate, whatever the gradient. Their updates
  have the same powers of N and L as those of gradient descent if their rate is gradient descent's
  times the size of the gradient, and if their ε is in units of that size. For the read-out
  |∇f| = N^(−a)/γ; for every other weight it is N^(−a) times the backward signal
  ∂f/∂h = N^(−a_out − b_out/2)/γ, times L^(−α) for a weight within a residual branch.
* Depth: branches carry L^(−α), and with gradient descent rates of branch weights L^(2α−1) keep
  their joint effect of order one (Bordelon et al., Table 1, for α = ½).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from largen.architectures import Layer, depth, mlp, residual_mlp, weight_sites
from largen.errors import InvalidInput, NoRule, instance_of, one_of
from largen.parameterizations.distributions import (
    ROLES,
    Distributions,
    checked_distributions,
    in_words,
)
from largen.parameterizations.exponents import Exponents, exact
from largen.parameterizations.optimizers import Adam, GradientDescent
from largen.parameterizations.powers import Power
from largen.parameterizations.rates import Rates, at_rates, rates_in_words, rates_of
from largen.parameterizations.reference import Numbers, from_reference_width
from largen.parameterizations.rules import Row, RuleTable, evaluate
from largen.parameterizations.stepping import Optimizer
from largen.parameterizations.weight_rules import first_fan_in, rule_of
from largen.programs import program_of
from largen.results import in_notebooks
from largen.scalars import integer, real, sample_shape

ORTHOGONAL = (
    "an orthogonalised update has no rates here, which depend on both sides of a matrix; "
    "lg.transfer plans for it."
)
SMALLEST_GAMMA = 1e-15  # whose inverse square is a number of 32 bits, and that of the largest


@dataclass(frozen=True)
class Reference:
    """A network at its reference width.

    Attributes
    ----------
    width
        N*.
    param
        The parameterization whose rules hold at N*.
    init_std, lr
        Initial standard deviations and rates at N* that replace those of ``param``, by role.
    """

    width: int
    param: Parameterization
    init_std: Numbers = ()
    lr: Numbers = ()

    def __str__(self) -> str:
        replaced = [f"{n}={dict(getattr(self, n))}" for n in ("init_std", "lr") if getattr(self, n)]
        return ", ".join([f"{self.param} at N={self.width}", *replaced])


@dataclass(frozen=True)
class Parameterization:
    """How multipliers, initial variances and learning rates scale with width and depth.

    Made by :func:`standard`, :func:`ntk`, :func:`mean_field`, :func:`mup`, :func:`depth_mup`,
    :func:`complete_p` or :func:`abc`. The fields are needed to write a new one.

    Attributes
    ----------
    name
        Its name in tables and results.
    input, hidden, output, bias
        The exponents of N for each role.
    d
        The exponent of N in γ = γ₀Nᵈ, by which the output is divided.
    gamma
        γ₀, the constant in γ = γ₀Nᵈ.
    branch
        α: residual branches carry L^(−α).
    branch_rate
        The exponent of L in gradient descent's rates within branches.
    std_in
        Whether σ_w and the read-in's 1/√D are in the multiplier (``"multiplier"``) or in the
        initial standard deviation (``"init_std"``).
    reference
        The reference network at which the powers of N start; see
        :func:`largen.scaling.from_reference`.
    distributions
        The distributions of single weights, by role, where they are not Gaussian; see
        :meth:`with_distribution`.
    rates
        Factors of the rates of some roles or weights; see :meth:`with_rates`.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.mean_field(gamma=2.0).table(lg.mlp(2, "tanh"), lg.gd(lr=0.5)))
    mean_field(gamma=2), gradient descent
    weight    role    multiplier  init_std  lr   weight_decay  eps
    --------  ------  ----------  --------  ---  ------------  ---------
    0.weight  input   D⁻¹ᐟ²       1         4·N  0.25·N⁻¹      0.5·N⁻¹
    2.weight  hidden  N⁻¹ᐟ²       1         4·N  0.25·N⁻¹      0.5·N⁻³ᐟ²
    4.weight  output  0.5·N⁻¹     1         4·N  0.25·N⁻¹      0.5·N⁻¹
    """

    name: str
    input: Exponents
    hidden: Exponents
    output: Exponents
    bias: Exponents
    d: Fraction = Fraction(0)
    gamma: float = 1.0
    branch: Fraction = Fraction(0)
    branch_rate: Fraction = Fraction(0)
    std_in: Literal["multiplier", "init_std"] = "multiplier"
    reference: Reference | None = None
    distributions: Distributions = ()
    rates: Rates = ()

    # Names of fields in the digests of runs and sweeps, where they differ from those of today:
    # files that were saved before keep their digests.
    saved_names: ClassVar[Mapping[str, str]] = {"distributions": "laws"}

    def __post_init__(self):
        gamma = real("gamma", self.gamma, above=0)
        if not SMALLEST_GAMMA <= gamma <= 1 / SMALLEST_GAMMA:
            bounds = f"{SMALLEST_GAMMA:g} and {1 / SMALLEST_GAMMA:g}"
            raise InvalidInput(f"gamma: wanted a number between {bounds}, got {gamma:g}.")
        object.__setattr__(self, "gamma", gamma)
        instance_of("name", self.name, str, "a name")

    def table(
        self,
        net: Layer,
        optimizer: Optimizer | None = None,
        *,
        width: int | None = None,
        inputs: int | tuple[int, ...] | None = None,
    ) -> RuleTable[Any]:
        """Return the rule of every weight of a network.

        Parameters
        ----------
        net
            The architecture; its number of residual branches is the depth L.
        optimizer
            The optimizer that the rates are for; gradient descent by default.
        width
            N. With a width the table holds numbers; without one, powers of N.
        inputs
            D, or the shape (*space, channels) of a sample; needed with a width. D is the fan-in of
            the first affine map. Without it (None), the constants of the powers do not count the
            positions behind ``Flatten``.

        Raises
        ------
        InvalidInput
            If a layer does not fit the samples, or a width is given to an infinitely deep
            network.
        NoRule
            If the optimizer does not say its kind, or its update is orthogonalised.
        """
        if optimizer is not None:
            instance_of("optimizer", optimizer, Optimizer, "an optimizer such as lg.gd(lr=0.1)")
            if optimizer.says("kind") == "orthogonal":
                raise NoRule("the rule table", optimizer, said=f"the rule table: {ORTHOGONAL}")
        adaptive = optimizer is not None and optimizer.adaptive
        shape = None if inputs is None else sample_shape("inputs", inputs)
        sites = weight_sites(net, shape)
        distributions, rows = dict(self.distributions), []
        for site in program_of(net, shape).weights:
            for kind in site.kinds:
                row = Row(site, kind, rule_of(self, site, kind, sites[0], adaptive))
                rows.append(row if site.gain else row.drawn_by(distributions))
        family = "adaptive optimizer" if adaptive else "gradient descent"
        branch = Power(depth=-self.branch)
        gamma = Power(self.gamma, width=self.canonical_d)
        symbolic = RuleTable(f"{self}, {family}", tuple(rows), branch, gamma)
        if self.reference is not None:
            at = self.reference
            rules = at.param.table(net, optimizer, inputs=inputs)
            symbolic = from_reference_width(symbolic, rules, at.width, at.init_std, at.lr)
        symbolic = at_rates(symbolic, self.rates)
        if width is None:
            return symbolic
        if shape is None:
            raise InvalidInput("table: a width needs inputs, too, the shape of a sample.")
        blocks = depth(net)
        if blocks == math.inf:
            raise InvalidInput(
                "net: it is infinitely deep, and a network to train needs a number of blocks, such "
                "as lg.residual_mlp(16); lg.kernel has the limit of infinite depth."
            )
        return evaluate(
            symbolic,
            width=integer("width", width, at_least=1),
            depth=blocks,
            inputs=first_fan_in(shape, sites[0]),
        )

    def shift(self, theta: Mapping[str, Fraction | int | str]) -> Parameterization:
        """Return an equivalent parameterization, moved along the abc-symmetry.

        A weight enters the network as m·θ. Put θ' = θ/λ and m' = mλ: the network is the same
        function, the initial standard deviation of θ' is 1/λ times that of θ, and its gradient is λ
        times that of θ. So

        * gradient descent (with momentum, weight decay, or as a flow) trains the same function at
          the rate η/λ², (a, b, c) → (a + θ, b − 2θ, c − 2θ) for λ = N^(−θ), Yang and Hu 2021,
          eq. (5);
        * Adam, whose step does not depend on the size of the gradient, does so at the rate η/λ and
          with ελ: its power c shifts by θ only, and ε's by −θ.

        Parameters
        ----------
        theta
            The exponent θ of 1/N that the multiplier gains, by role.

        Raises
        ------
        InvalidInput
            For a role that does not exist, or a power that is not a number.

        Examples
        --------
        >>> import largen as lg
        >>> print(lg.ntk().shift({"hidden": "-1/2"}).table(lg.mlp(2, "tanh"))["2.weight"])
        Rule(multiplier=1, init_std=N⁻¹ᐟ², lr=N⁻¹, weight_decay=N, eps=N⁻¹ᐟ²)
        """
        if not isinstance(theta, Mapping):
            raise InvalidInput(
                f"theta: wanted powers by role, such as {{'hidden': '-1/2'}}, got {theta!r}."
            )
        moved = {}
        for role, power in theta.items():
            one_of("theta", role, ROLES)
            moved[role] = getattr(self, role).shift(exact(f"theta[{role!r}]", power))
        return replace(self, name=f"{self.name} shifted", **moved)

    def with_distribution(self, distribution: Any) -> Parameterization:
        """Return this parameterization with another initial distribution of the weights.

        The distribution has mean 0 and the standard deviation of the rule table.

        Parameters
        ----------
        distribution
            ``"gaussian"``; ``"uniform"``, the distribution of Kaiming's and Glorot's uniform
            initialisations; ``"truncated"``, a Gaussian cut off at two standard deviations; or
            ``"sign"``, ±1. One name for all weights, or by role: ``{"output": "uniform"}``.

        Exponents of the width do not depend on the distribution. Limits depend on that of the first
        layer's weights unless there are many inputs, in the mean-field limit also on that of the
        last layer's, and never on that of hidden matrices.

        Raises
        ------
        InvalidInput
            If a distribution or a role is not known.

        Examples
        --------
        >>> import largen as lg
        >>> print(lg.ntk().with_distribution("uniform"))
        ntk, uniform weights
        """
        return replace(self, distributions=checked_distributions(distribution))

    def with_rates(self, rates: Mapping[str, float]) -> Parameterization:
        """Return this parameterization with other rates for some weights; a rate of 0 freezes them.

        A factor multiplies the rule's ``lr`` and divides its ``weight_decay``, so that a step
        still shrinks the weight by the fraction η₀λ₀; frozen weights do not decay. Finite networks
        and all limits read the same table: in the tangent kernel Σ_θ ρ_θ ∂f/∂θ ∂f'/∂θ the factor
        is ρ.

        Parameters
        ----------
        rates
            Factors ≥ 0 by role (``"input"``, ``"hidden"``, ``"output"``, ``"bias"``), by layer
            (``"2"``, weight and bias), or by weight (``"2.weight"``), with the names of the rule
            table. The most specific one holds. They replace all factors that were given before.

        Raises
        ------
        InvalidInput
            By :meth:`table`, if a name is neither a role nor a weight.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> readout = lg.ntk().with_rates({"input": 0.0, "hidden": 0.0})
        >>> nngp, ntk = lg.kernel(lg.mlp(2, "erf"), np.eye(2), param=readout)
        >>> bool(np.allclose(nngp, ntk))
        True
        """
        return replace(self, rates=rates_of(rates))

    @property
    def canonical_d(self) -> Fraction:
        """The power of 1/N of the outputs at initialisation, d + a + b/2 − 1/2 of the read-out.

        It is ``d`` where the read-out has the factor of the kernel scaling, 2a + b = 1. Which part
        of a factor of the outputs is said to be γ has no effect: (a, c, d) → (a − δ, c + 2δ, d + δ)
        of the read-out's a and of all c leaves every rule as it is.

        Examples
        --------
        >>> import largen as lg
        >>> own = lg.abc(a=(0, "1/2", 1), b=0, c=-1)
        >>> str(own.d), str(own.canonical_d), str(lg.mean_field().d)
        ('0', '1/2', '1/2')
        >>> own.table(lg.mlp(2)).rows == lg.mean_field().table(lg.mlp(2)).rows
        True
        """
        return self.d + self.output.a + self.output.b / 2 - Fraction(1, 2)

    _repr_html_ = in_notebooks

    def __str__(self) -> str:
        changes = f", {in_words(self.distributions)}" if self.distributions else ""
        changes += f", {rates_in_words(self.rates)}" if self.rates else ""
        if self.reference is not None:
            return f"{self.name} from {self.reference}{changes}"
        plain = self.d == 0 or self.name.endswith(")")
        return self.name + ("" if plain else f"(gamma={self.gamma:g})") + changes

    def describe(self) -> str:
        """Return the rule tables of an example network, for gradient descent and for Adam.

        Examples
        --------
        >>> import largen as lg
        >>> print(lg.depth_mup().describe())  # doctest: +ELLIPSIS
        depth_mup(gamma=1), gradient descent
        ...
        """
        net = residual_mlp(2, bias_std=1.0) if self.branch else mlp(2, bias_std=1.0)
        tables = (self.table(net, GradientDescent(1.0)), self.table(net, Adam(1.0)))
        return "\n\n".join(map(str, tables))
