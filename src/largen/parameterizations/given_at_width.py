"""The parameterization that starts from a reference network of one width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from largen.bibliography import cites
from largen.errors import InvalidInput, one_of
from largen.parameterizations.distributions import ROLES, checked_distributions
from largen.parameterizations.parameterization import Parameterization, Reference
from largen.parameterizations.powers import power
from largen.parameterizations.reference import Numbers
from largen.parameterizations.schemes import scaling_of, standard
from largen.scalars import integer, real


@cites("golikov2020towards")
def from_reference(
    *,
    width: int,
    scaling: Any,
    reference: Parameterization | None = None,
    init_std: Any = None,
    lr: Any = None,
    distribution: Any = None,
) -> Parameterization:
    """Return the parameterization that scales a network, given at one width, to all others.

    Every entry of the rule table is the reference's at its width N*, times the scaling's
    power of N/N*: σ = σ*(N/N*)^(q_σ), η̂ = η̂*(N/N*)^q̃ (Golikov, App. A). So all scalings
    agree at N*, and the same raw rates and standard deviations have a limit in each of them.

    Parameters
    ----------
    width
        N*, the reference width.
    scaling
        The powers of the width: those of a parameterization such as :func:`largen.mean_field`, of a
        point (q_σ, q̃_a, q̃_w) as in :func:`largen.scaling.plane_scheme`, or of one of the names
        ``"NTK"``,
        ``"intermediate"``, ``"mean field"``, ``"default"``.
    reference
        The rules at N*: by default those of :func:`largen.standard`, which are standard deviations
        σ_w/√fan_in with the layers' σ_w, and the optimizer's rate as the raw rate of all weights.
    init_std, lr
        Initial standard deviations and raw rates at N* that replace those of the reference, for
        some of the roles ``"input"``, ``"hidden"``, ``"output"``, ``"bias"``. Such a standard
        deviation does not depend on the layers' σ_w; rates are in units of the optimizer's.
    distribution
        The distribution of single weights, see
        :meth:`largen.scaling.Parameterization.with_distribution`; the reference's by default.
        PyTorch's affine maps start uniform within ±1/√fan_in:
        ``"uniform"`` with ``weight_std=3**-0.5``.

    Returns
    -------
    Parameterization
        The powers of ``scaling``, with γ₀ such that γ = γ₀Nᵈ has the reference's value at N*.

    Raises
    ------
    InvalidInput
        If the reference has a reference itself.

    Examples
    --------
    >>> import largen as lg
    >>> param = lg.scaling.from_reference(width=128, scaling="mean field")
    >>> print(param.table(lg.mlp(1, "relu"), width=128, inputs=4)["2.weight"])
    Rule(multiplier=1, init_std=0.08839, lr=1, weight_decay=1, eps=1)
    >>> print(param.table(lg.mlp(1, "relu"), width=512, inputs=4)["2.weight"])
    Rule(multiplier=1, init_std=0.0221, lr=0.25, weight_decay=4, eps=1)
    """
    powers = scaling_of(scaling)
    given = standard() if reference is None else reference
    for name, value in (("scaling", powers), ("reference", given)):
        if not isinstance(value, Parameterization):
            raise InvalidInput(f"{name}: wanted a parameterization, got {value!r}.")
    start = _reference_of(width, given, init_std, lr)
    distributions = given.distributions
    if distribution is not None:
        distributions = checked_distributions(distribution)
    # The γ₀ for which γ = γ₀Nᵈ has the reference's value at N*.
    gamma = given.gamma * power(start.width, given.canonical_d - powers.canonical_d)
    return replace(powers, gamma=gamma, reference=start, distributions=distributions)


def _reference_of(
    width: Any, param: Parameterization, init_std: Any = None, lr: Any = None
) -> Reference:
    """Return the reference network, after a check of its numbers."""
    if param.reference is not None:
        raise InvalidInput(f"reference: {param} has a reference itself; give a plain one.")
    width = integer("width", width, at_least=1)
    return Reference(width, param, _numbers("init_std", init_std), _numbers("lr", lr))


def _numbers(name: str, value: Any) -> Numbers:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"{name}: wanted numbers by role, such as {{'output': 0.05}}, got {value!r}."
        )
    for role in value:
        one_of(name, role, ROLES)
    return tuple(
        (role, real(f"{name}[{role!r}]", value[role], above=0)) for role in ROLES if role in value
    )
