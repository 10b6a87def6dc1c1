"""A parameterization from a network that is given at one width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from largen.arrays import integer, real
from largen.errors import InvalidInput, one_of
from largen.parameterizations.laws import ROLES, laws_of
from largen.parameterizations.parameterization import Parameterization, Reference
from largen.parameterizations.powers import power
from largen.parameterizations.reference import Numbers
from largen.parameterizations.schemes import scaling_of, standard


def from_reference(
    *,
    width: int,
    scaling: Any,
    reference: Parameterization | None = None,
    init_std: Any = None,
    lr: Any = None,
    law: Any = None,
) -> Parameterization:
    """Return the parameterization that scales a network, given at one width, to all others.

    Every entry of the rule table is the reference's at its width N*, times the scaling's
    power of N/N*: σ = σ*(N/N*)^(q_σ), η̂ = η̂*(N/N*)^q̃ (Golikov, App. A). So all scalings
    agree at N*, and the same raw rates and deviations have a limit in each of them.

    Parameters
    ----------
    width
        N*, the reference width.
    scaling
        Whose powers of the width: a parameterization such as :func:`largen.mean_field`, a
        point (q_σ, q̃_a, q̃_w) as in :func:`largen.scaling`, or one of the names ``"NTK"``,
        ``"intermediate"``, ``"mean field"``, ``"default"``.
    reference
        The rules at N*: :func:`largen.standard` by default, deviations σ_w/√fan_in with the
        layers' σ_w and one raw rate for all, which is the optimizer's.
    init_std, lr
        Numbers that the reference has instead at N*, for some of the roles ``"input"``,
        ``"hidden"``, ``"output"``, ``"bias"``: initial deviations (the layers' σ_w plays no
        part then), and raw rates in units of the optimizer's.
    law
        Of single weights, see :meth:`largen.Parameterization.with_law`; the reference's by
        default. PyTorch's affine maps start uniform within ±1/√fan_in: ``"uniform"`` with
        ``weight_std=3**-0.5``.

    Returns
    -------
    Parameterization
        With γ₀ such that γ = γ₀Nᵈ has the reference's value at N*.

    Raises
    ------
    InvalidInput
        If the width or a number is not positive, a role or name is not known, or the
        reference has a reference itself.

    Examples
    --------
    >>> import largen as lg
    >>> param = lg.from_reference(width=128, scaling="mean field")
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
    laws = given.laws if law is None else laws_of(law)
    gamma = _gamma_from(start, powers.d)
    return replace(powers, gamma=gamma, reference=start, laws=laws)


def _reference_of(
    width: Any, param: Parameterization, init_std: Any = None, lr: Any = None
) -> Reference:
    """Check a reference.

    Raises
    ------
    InvalidInput
        If the width or a number is not positive, a role is not known, or ``param`` has a
        reference itself.
    """
    if param.reference is not None:
        raise InvalidInput(f"reference: {param} has a reference itself; give a plain one.")
    width = integer("width", width, at_least=1)
    return Reference(width, param, _numbers("init_std", init_std), _numbers("lr", lr))


def _gamma_from(reference: Reference, d: Fraction) -> float:
    """Return γ₀ of γ = γ₀Nᵈ that has the reference's value at N*."""
    own = reference.param
    return own.gamma * power(reference.width, own.d - d)


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
