"""The named parameterizations, each a row of exponents."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from largen.bibliography import cites
from largen.errors import InvalidInput, one_of
from largen.parameterizations.exponents import Exponents, exact
from largen.parameterizations.parameterization import Parameterization

HALF = Fraction(1, 2)


@cites("jacot2018neural", "pehlevan2023lecture")
def ntk(*given: Any) -> Parameterization:
    """NTK parameterization, whose infinite-width limit is kernel regression.

    Standard Gaussian weights, multipliers 1/√fan_in, f = w·φ/√N and a rate that does not depend
    on the width: Pehlevan and Bordelon, eq. (1) with γ = 1. Features do not move as N → ∞.

    Raises
    ------
    InvalidInput
        If it is given anything: the neural tangent kernel of a network is
        :func:`largen.ntk_kernel`.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.ntk().table(lg.mlp(1, "tanh")))
    ntk, gradient descent
    weight    role    multiplier  init_std  lr  weight_decay  eps
    --------  ------  ----------  --------  --  ------------  -----
    0.weight  input   D⁻¹ᐟ²       1         1   1             N⁻¹ᐟ²
    2.weight  output  N⁻¹ᐟ²       1         1   1             N⁻¹ᐟ²
    """
    if given:
        raise InvalidInput(
            "ntk: is the NTK parameterization and takes no arguments, as in lg.Run(net, lg.ntk(), "
            "data). The neural tangent kernel at infinite width is lg.ntk_kernel(net, x), and that "
            "of a finite network lg.networks.empirical_ntk(net, params, x)."
        )
    return abc(a=(0, HALF, HALF), b=0, c=0, name="ntk")


@cites("mei2018mean", "pehlevan2023lecture")
def mean_field(gamma: float = 1.0) -> Parameterization:
    """Mean-field parameterization, whose infinite-width limit learns features.

    f = w·φ/(γ₀N) and raw rates η₀γ₀²N: Pehlevan and Bordelon, eq. (1) and §4, with d = ½.

    Parameters
    ----------
    gamma
        γ₀, the richness: features move by order γ₀, and γ₀ → 0 is the kernel limit from f = 0.

    Raises
    ------
    InvalidInput
        If ``gamma`` is not positive. For the limit γ₀ → 0 itself use :func:`ntk`.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.mean_field(gamma=0.5))
    mean_field(gamma=0.5)
    """
    return abc(a=(0, HALF, HALF), b=0, c=0, d=HALF, gamma=gamma, name="mean_field")


def standard() -> Parameterization:
    """Standard parameterization: variances 1/fan_in, no multipliers, one rate for all.

    The default of deep-learning frameworks. At a fixed rate training becomes unstable as the width
    grows, because the tangent kernel grows with N; the rate must fall as 1/N.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.standard().table(lg.mlp(1, "tanh"))["2.weight"])
    Rule(multiplier=1, init_std=N⁻¹ᐟ², lr=1, weight_decay=1, eps=1)
    """
    fixed = {"adaptive_rate": Fraction(0), "adaptive_eps": Fraction(0)}
    zero, one = Fraction(0), Fraction(1)
    return Parameterization(
        "standard",
        input=Exponents(zero, zero, zero, **fixed),
        hidden=Exponents(zero, one, zero, **fixed),
        output=Exponents(zero, one, zero, **fixed),
        bias=Exponents(zero, zero, zero, **fixed),
        std_in="init_std",
    )


@cites("yang2021tensor", "yang2022tensor")
def mup(gamma: float = 1.0) -> Parameterization:
    """Maximal update parameterization (μP), in the form that is used in practice.

    Variances 1/fan_in in the initialisation, rates N (vectors), 1 (hidden), N (read-out) for
    gradient descent and 1, 1/N, 1 for Adam, read-out multiplier 1/N: Yang and Hu 2021, Yang et
    al. 2022, Table 8. It is :func:`mean_field` moved along the abc-symmetry; for σ_w = 1 only
    the read-in's rate differs, by the constant D.

    Parameters
    ----------
    gamma
        γ₀ as in :func:`mean_field`.

    Raises
    ------
    InvalidInput
        If ``gamma`` is not positive.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.mup().table(lg.mlp(2, "relu"), lg.adam(lr=1e-3)))
    mup(gamma=1), adaptive optimizer
    weight    role    multiplier  init_std  lr   weight_decay  eps
    --------  ------  ----------  --------  ---  ------------  ---
    0.weight  input   1           D⁻¹ᐟ²     1    1             N⁻¹
    2.weight  hidden  1           N⁻¹ᐟ²     N⁻¹  N             N⁻¹
    4.weight  output  N⁻¹         1         1    1             N⁻¹
    """
    return abc(
        a=(0, 0, HALF),
        b=(0, 1, 0),
        c=(0, 1, 0),
        d=HALF,
        gamma=gamma,
        std_in="init_std",
        name="mup",
    )


@cites("bordelon2023depthwise")
def depth_mup(gamma: float = 1.0) -> Parameterization:
    """Depth-μP: mean-field in width, residual branches 1/√L in depth.

    hˡ⁺¹ = hˡ + Wˡφ(hˡ)/√(LN), f = w·φ(hᴸ)/(γ₀N), η = η₀γ₀²N: Bordelon et al., *Depthwise
    hyperparameter transfer in residual networks*, eq. (1) and Table 1.

    Parameters
    ----------
    gamma
        γ₀ as in :func:`mean_field`.

    Raises
    ------
    InvalidInput
        If ``gamma`` is not positive.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.depth_mup().table(lg.residual_mlp(8, "relu")))
    depth_mup(gamma=1), gradient descent
    weight          role    multiplier  init_std  lr  weight_decay  eps
    --------------  ------  ----------  --------  --  ------------  -----------
    0.weight        input   D⁻¹ᐟ²       1         N   N⁻¹           N⁻¹
    1.0.0.1.weight  hidden  N⁻¹ᐟ²       1         N   N⁻¹           N⁻³ᐟ²·L⁻¹ᐟ²
    3.weight        output  N⁻¹         1         N   N⁻¹           N⁻¹
    residual branches × L⁻¹ᐟ²
    """
    return _in_depth("depth_mup", HALF, gamma)


@cites("dey2025dont")
def complete_p(gamma: float = 1.0) -> Parameterization:
    """CompleteP: mean-field in width, residual branches 1/L in depth.

    Dey et al. 2025. With gradient descent the rates within branches grow as L^(2α−1) = L.

    Parameters
    ----------
    gamma
        γ₀ as in :func:`mean_field`.

    Raises
    ------
    InvalidInput
        If ``gamma`` is not positive.

    Examples
    --------
    >>> import largen as lg
    >>> lg.complete_p().table(lg.residual_mlp(8, "relu")).branch
    Power(constant=1.0, width=0, depth=Fraction(-1, 1), inputs=0)
    """
    return _in_depth("complete_p", Fraction(1), gamma)


@cites("yang2021tensor", "pehlevan2023lecture")
def abc(
    *,
    a: Any,
    b: Any,
    c: Any,
    d: Any = 0,
    gamma: float = 1.0,
    branch: Any = 0,
    branch_rate: Any = 0,
    std_in: str = "multiplier",
    name: str = "abc",
) -> Parameterization:
    """Any abc-parameterization: multipliers N^(−a), variances N^(−b), rates η₀γ²N^(−c).

    Pehlevan and Bordelon's lecture notes, §4, with γ = γ₀Nᵈ dividing the output. Preactivations
    are finite if 2a + b = 0 for the read-in and 1 for all later layers; outputs move in finite
    time if c = b for every role; features move at order one iff d = ½.

    Parameters
    ----------
    a, b, c
        One exponent for all weights, or three, for (input, hidden, output). Exact: integers,
        ``fractions.Fraction``, strings such as ``"1/2"``, or floats that are fractions.
    d
        The exponent of N in γ = γ₀Nᵈ.
    gamma
        γ₀ > 0, the constant in γ = γ₀Nᵈ.
    branch
        α: residual branches carry L^(−α).
    branch_rate
        The exponent of L in gradient descent's rates within branches.
    std_in
        ``"multiplier"`` or ``"init_std"``: which of the two contains σ_w and the read-in's 1/√D.
    name
        Its name in tables and results.

    Raises
    ------
    InvalidInput
        If an exponent is not rational or there are not one or three of them.

    Examples
    --------
    >>> import largen as lg
    >>> lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, name="ntk") == lg.ntk()
    True
    """
    std_in = one_of("std_in", std_in, ("multiplier", "init_std"))
    roles = zip(_three("a", a), _three("b", b), _three("c", c), strict=True)
    into, hidden, out = (Exponents(*powers) for powers in roles)
    return Parameterization(
        name,
        input=into,
        hidden=hidden,
        output=out,
        bias=Exponents(Fraction(0), Fraction(0), Fraction(0)),
        d=exact("d", d),
        gamma=gamma,
        branch=exact("branch", branch),
        branch_rate=exact("branch_rate", branch_rate),
        std_in=std_in,
    )


@cites("golikov2020towards")
def plane_scheme(
    q_sigma: Any, rate_a: Any, rate_w: Any = None, rate_v: Any = None, *, name: str | None = None
) -> Parameterization:
    """The parameterization at a point of Golikov's plane of scalings.

    σ = σ_a σ_w ∝ N^(q_σ), η̂_a = η_a/σ_a² ∝ N^(q̃_a), η̂_w = η_w/σ_w² ∝ N^(q̃_w): Golikov,
    *Towards a general theory of infinite-width limits of neural classifiers*, §3, without
    multipliers and with σ_w of order one, as in its App. A. :func:`largen.scaling.plane_class` says
    what its limit is.

    Parameters
    ----------
    q_sigma, rate_a, rate_w
        q_σ, q̃_a and q̃_w, exact as in :func:`abc`; q̃_w = q̃_a by default.
    rate_v
        q̃_v of hidden matrices, whose initial size is N^(q_σ) too (§4); q̃_a + q̃_w by default, as
        in the paper's scalings of deep networks.
    name
        Its name in tables and results; by default the point itself.

    Raises
    ------
    InvalidInput
        If an exponent is not rational.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.scaling.plane_scheme("-3/4", "1/2").table(lg.mlp(1, "relu")))
    scaling(-3/4, 1/2, 1/2), gradient descent
    weight    role    multiplier  init_std  lr    weight_decay  eps
    --------  ------  ----------  --------  ----  ------------  -----
    0.weight  input   1           D⁻¹ᐟ²     N¹ᐟ²  N⁻¹ᐟ²         N⁻³ᐟ⁴
    2.weight  output  1           N⁻³ᐟ⁴     N⁻¹   N             1
    """
    sigma, first = exact("q_sigma", q_sigma), exact("rate_a", rate_a)
    second = first if rate_w is None else exact("rate_w", rate_w)
    between = first + second if rate_v is None else exact("rate_v", rate_v)
    # γ = Nᵈ with f = w·φ/(γ√N) for standard Gaussian w: d = −q_σ − ½. It divides the read-out.
    d = -sigma - HALF
    return abc(
        a=(0, 0, -d),
        b=(0, -2 * sigma, -2 * sigma),
        c=(2 * d - second, 2 * (d - sigma) - between, 2 * (d - sigma) - first),
        d=d,
        std_in="init_std",
        name=f"scaling({sigma}, {first}, {second})" if name is None else name,
    )


def scaling_of(value: Any) -> Any:
    """Return the parameterization of a named scaling or of a point; other values unchanged."""
    if isinstance(value, str):
        from largen.parameterizations.classification.plane import NAMED

        return plane_scheme(*NAMED[one_of("scaling", value, NAMED)], name=value)
    if isinstance(value, (tuple, list)):
        if len(value) not in (2, 3, 4):
            raise InvalidInput(f"scaling: wanted (q_σ, q̃_a, q̃_w), got {value!r}.")
        return plane_scheme(*value)
    return value


def _in_depth(name: str, alpha: Fraction, gamma: float) -> Parameterization:
    return abc(
        a=(0, HALF, HALF),
        b=0,
        c=0,
        d=HALF,
        gamma=gamma,
        branch=alpha,
        branch_rate=2 * alpha - 1,
        name=name,
    )


def _three(name: str, value: Any) -> tuple[Fraction, Fraction, Fraction]:
    if isinstance(value, (tuple, list)):
        if len(value) != 3:
            raise InvalidInput(
                f"{name}: wanted one exponent or three (input, hidden, output), got {value!r}."
            )
        first, second, third = (exact(f"{name}[{i}]", v) for i, v in enumerate(value))
        return first, second, third
    same = exact(name, value)
    return same, same, same
